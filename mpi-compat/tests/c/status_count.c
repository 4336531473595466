/* Counts of types and of basic elements of the data in a status. */
#include "check.h"

int main(void) {
    MPI_Status status;
    MPI_Datatype type;
    MPI_Count large;
    int count;
    start();
    memset(&status, 0, sizeof status);
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Status_set_elements(&status, MPI_INT, 6));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 6);
    OK(MPI_Get_count(&status, type, &count));
    CHECK(count == 2);
    OK(MPI_Get_elements(&status, type, &count));
    CHECK(count == 6);
    OK(MPI_Status_set_elements(&status, MPI_INT, 7));
    OK(MPI_Get_count(&status, type, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Get_elements(&status, type, &count));
    CHECK(count == 7);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == MPI_UNDEFINED);

    /* More than an int holds. */
    OK(MPI_Status_set_elements_x(&status, MPI_CHAR, (MPI_Count)1 << 40));
    OK(MPI_Get_elements_x(&status, MPI_CHAR, &large));
    CHECK(large == (MPI_Count)1 << 40);
    OK(MPI_Get_count(&status, MPI_CHAR, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Type_free(&type));
    return finish();
}
