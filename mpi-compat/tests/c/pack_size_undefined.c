/* Sizes and counts that do not fit an int are MPI_UNDEFINED; the large forms return them. */
#include "check.h"

int main(void) {
    int small;
    MPI_Count large;
    MPI_Datatype big, huge;
    MPI_Status status;
    start();
    OK(MPI_Type_contiguous(1 << 20, MPI_INT, &big));
    OK(MPI_Type_commit(&big));
    OK(MPI_Type_contiguous(4096, big, &huge));
    OK(MPI_Type_commit(&huge));

    OK(MPI_Pack_size(4096, big, MPI_COMM_SELF, &small));
    CHECK(small == MPI_UNDEFINED);
    OK(MPI_Pack_size_c(4096, big, MPI_COMM_SELF, &large));
    CHECK(large >= 1LL << 34);
    OK(MPI_Pack_size(511, big, MPI_COMM_SELF, &small));
    CHECK(small >= 511 << 22);
    OK(MPI_Type_size(huge, &small));
    CHECK(small == MPI_UNDEFINED);
    OK(MPI_Type_size_c(huge, &large));
    CHECK(large == 1LL << 34);

    memset(&status, 0, sizeof status);
    OK(MPI_Status_set_elements_c(&status, MPI_INT, 1LL << 32));
    OK(MPI_Get_count(&status, MPI_INT, &small));
    CHECK(small == MPI_UNDEFINED);
    OK(MPI_Get_elements(&status, MPI_INT, &small));
    CHECK(small == MPI_UNDEFINED);
    OK(MPI_Get_elements(&status, huge, &small));
    CHECK(small == MPI_UNDEFINED);
    OK(MPI_Get_count(&status, huge, &small));
    CHECK(small == 1);
    OK(MPI_Get_count_c(&status, MPI_INT, &large));
    CHECK(large == 1LL << 32);
    OK(MPI_Get_elements_c(&status, huge, &large));
    CHECK(large == 1LL << 32);
    OK(MPI_Type_free(&huge));
    OK(MPI_Type_free(&big));
    return finish();
}
