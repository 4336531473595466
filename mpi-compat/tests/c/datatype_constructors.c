/* Size, extent and true extent of the results of all constructors. */
#include "check.h"

static void show(const char *what, MPI_Datatype type) {
    MPI_Aint lb, extent, true_lb, true_extent;
    int size;
    OK(MPI_Type_size(type, &size));
    OK(MPI_Type_get_extent(type, &lb, &extent));
    OK(MPI_Type_get_true_extent(type, &true_lb, &true_extent));
    printf("%s: size %d, lb %ld, extent %ld, true lb %ld, true extent %ld\n", what, size, (long)lb, (long)extent,
        (long)true_lb, (long)true_extent);
    OK(MPI_Type_free(&type));
}

int main(void) {
    MPI_Datatype type;
    start();
    OK(MPI_Type_contiguous(5, MPI_INT, &type));
    show("contiguous", type);
    OK(MPI_Type_contiguous(0, MPI_INT, &type));
    show("nothing", type);
    OK(MPI_Type_vector(3, 2, 4, MPI_DOUBLE, &type));
    show("vector", type);
    OK(MPI_Type_vector(3, 2, -4, MPI_DOUBLE, &type));
    show("backwards", type);
    OK(MPI_Type_create_hvector(3, 2, 20, MPI_SHORT, &type));
    show("hvector", type);
    OK(MPI_Type_indexed(3, (int[]){2, 0, 1}, (int[]){4, 9, 1}, MPI_INT, &type));
    show("indexed", type);
    OK(MPI_Type_create_hindexed(2, (int[]){2, 1}, (MPI_Aint[]){-8, 32}, MPI_INT, &type));
    show("hindexed", type);
    OK(MPI_Type_create_indexed_block(3, 2, (int[]){0, 5, 9}, MPI_CHAR, &type));
    show("indexed_block", type);
    OK(MPI_Type_create_hindexed_block(2, 3, (MPI_Aint[]){3, 40}, MPI_CHAR, &type));
    show("hindexed_block", type);
    OK(MPI_Type_create_struct(3, (int[]){1, 2, 1}, (MPI_Aint[]){0, 8, 24},
        (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, &type));
    show("struct", type);
    OK(MPI_Type_create_resized(MPI_INT, -4, 16, &type));
    show("resized", type);
    OK(MPI_Type_create_subarray(2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_C, MPI_INT, &type));
    show("subarray", type);
    OK(MPI_Type_create_subarray(2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_FORTRAN, MPI_INT, &type));
    show("subarray, Fortran", type);
    OK(MPI_Type_create_darray(4, 1, 2, (int[]){8, 6}, (int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
        (int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, (int[]){2, 2}, MPI_ORDER_C, MPI_INT, &type));
    show("darray", type);
    OK(MPI_Type_dup(MPI_DOUBLE, &type));
    show("dup", type);
    return finish();
}
