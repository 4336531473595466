/* Values that do not fit the int form are MPI_UNDEFINED there, and correct in the other forms. */
#include "check.h"

int main(void) {
    MPI_Datatype row, all;
    int size;
    MPI_Count large, lb, extent;
    MPI_Aint small_lb, small_extent;
    start();
    OK(MPI_Type_contiguous(1 << 20, MPI_DOUBLE, &row));
    OK(MPI_Type_contiguous(1 << 20, row, &all));
    OK(MPI_Type_size(all, &size));
    CHECK(size == MPI_UNDEFINED);
    OK(MPI_Type_size_x(all, &large));
    CHECK(large == (MPI_Count)1 << 43);
    OK(MPI_Type_get_extent_x(all, &lb, &extent));
    CHECK(lb == 0 && extent == (MPI_Count)1 << 43);
    OK(MPI_Type_get_extent(all, &small_lb, &small_extent));
    CHECK(small_extent == (MPI_Aint)1 << 43);
    OK(MPI_Type_get_true_extent_x(all, &lb, &extent));
    CHECK(lb == 0 && extent == (MPI_Count)1 << 43);
    OK(MPI_Type_free(&row));
    OK(MPI_Type_free(&all));
    return finish();
}
