/* A persistent request keeps its datatype.
   ranks 2 */
#include "check.h"

int main(void) {
    int data[6] = {0, 1, 2, 3, 4, 5};
    MPI_Datatype type;
    MPI_Request request;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Type_vector(3, 1, 2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    if (me == 0) OK(MPI_Send_init(data, 1, type, 1, 0, MPI_COMM_WORLD, &request));
    else OK(MPI_Recv_init(data, 1, type, 0, 0, MPI_COMM_WORLD, &request));
    OK(MPI_Type_free(&type));
    for (int round = 1; round < 4; round++) {
        for (int i = 0; i < 6; i++) data[i] = me == 0 ? i * round : -1;
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < 6; i++) CHECK(data[i] == (me == 0 || i % 2 == 0 ? i * round : -1));
    }
    OK(MPI_Request_free(&request));
    return finish();
}
