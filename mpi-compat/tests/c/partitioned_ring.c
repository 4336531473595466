/* Rounds of a partitioned message, whose partitions become ready in another order each time.
   ranks 1 2 3 4 */
#include "check.h"

enum { PARTS = 6, LEN = 100 };

int main(void) {
    MPI_Request requests[2];
    int rank, size, *out = malloc(PARTS * LEN * sizeof(int)), *in = malloc(PARTS * LEN * sizeof(int));
    start();
    rank = rank_of(MPI_COMM_WORLD);
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Psend_init(out, PARTS, LEN, MPI_INT, (rank + 1) % size, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(in, PARTS, LEN, MPI_INT, (rank + size - 1) % size, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 5; round++) {
        OK(MPI_Startall(2, requests));
        for (int i = 0; i < PARTS; i++) {
            int part = (i * 5 + round) % PARTS;
            for (int j = 0; j < LEN; j++) out[part * LEN + j] = round * 100000 + rank * 10000 + part * LEN + j;
            OK(MPI_Pready(part, requests[0]));
        }
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int j = 0; j < PARTS * LEN; j++)
            CHECK(in[j] == round * 100000 + (rank + size - 1) % size * 10000 + j);
    }
    for (int i = 0; i < 2; i++) {
        OK(MPI_Request_free(&requests[i]));
        CHECK(requests[i] == MPI_REQUEST_NULL);
    }
    return finish();
}
