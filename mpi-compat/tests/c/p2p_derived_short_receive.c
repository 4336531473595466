/* A message shorter than its receive fills the first elements of the datatype.
   ranks 2 */
#include "check.h"

int main(void) {
    int data[5] = {1, 2, 3, 4, 5}, got[24], count;
    MPI_Datatype type;
    MPI_Status status;
    start();
    OK(MPI_Type_vector(3, 1, 2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Send(data, 5, MPI_INT, 1, 0, MPI_COMM_WORLD));
    } else {
        memset(got, -1, sizeof got);
        OK(MPI_Recv(got, 4, type, 0, 0, MPI_COMM_WORLD, &status));
        CHECK(got[0] == 1 && got[2] == 2 && got[4] == 3 && got[5] == 4 && got[7] == 5);
        CHECK(got[1] == -1 && got[3] == -1 && got[6] == -1 && got[9] == -1);
        OK(MPI_Get_count(&status, type, &count));
        CHECK(count == MPI_UNDEFINED);
        OK(MPI_Get_elements(&status, type, &count));
        CHECK(count == 5);
    }
    OK(MPI_Type_free(&type));
    return finish();
}
