/* Messages that are received after a later one of another tag are stored, also when they are many: their sends complete
   before their receives are posted.
   ranks 2 */
#include "check.h"
#include <unistd.h>

enum { LEN = 1000 };

int main(void) {
    start();
    alarm(120);
    const int N = rounds(20000);
    int me = rank_of(MPI_COMM_WORLD), wrong = 0;
    char bytes[LEN] = {0};
    if (me == 0) {
        for (int i = 0; i < N; i++) {
            bytes[i % LEN] = (char)i;
            OK(MPI_Send(bytes, LEN, MPI_CHAR, 1, 7, MPI_COMM_WORLD));
        }
        OK(MPI_Send(bytes, 1, MPI_CHAR, 1, 8, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(bytes, LEN, MPI_CHAR, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < N; i++) {
            OK(MPI_Recv(bytes, LEN, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            wrong += bytes[i % LEN] != (char)i;
        }
        CHECK(wrong == 0);
    }
    return finish();
}
