/* Types made with large counts report them in the envelope of the _c form. */
#include "check.h"

static void show(const char *what, MPI_Datatype type) {
    MPI_Count ni, na, nl, nd, counts[64];
    int combiner, integers[64];
    MPI_Aint addresses[64];
    MPI_Datatype types[64];
    OK(MPI_Type_get_envelope_c(type, &ni, &na, &nl, &nd, &combiner));
    printf("%s: combiner %d, %d integers, %d addresses, %d counts, %d types:", what, combiner, (int)ni, (int)na, (int)nl,
        (int)nd);
    OK(MPI_Type_get_contents_c(type, ni, na, nl, nd, integers, addresses, counts, types));
    for (int i = 0; i < ni; i++) printf(" %d", integers[i]);
    printf(" |");
    for (int i = 0; i < nl; i++) printf(" %ld", (long)counts[i]);
    printf("\n");
    OK(MPI_Type_free(&type));
}

int main(void) {
    MPI_Datatype type;
    MPI_Count size;
    start();
    OK(MPI_Type_contiguous_c((MPI_Count)1 << 33, MPI_INT, &type));
    OK(MPI_Type_size_c(type, &size));
    CHECK(size == (MPI_Count)1 << 35);
    show("contiguous", type);
    OK(MPI_Type_vector_c(3, 2, 4, MPI_DOUBLE, &type));
    show("vector", type);
    OK(MPI_Type_create_hvector_c(3, 2, 20, MPI_SHORT, &type));
    show("hvector", type);
    OK(MPI_Type_indexed_c(2, (MPI_Count[]){2, 1}, (MPI_Count[]){4, 1}, MPI_INT, &type));
    show("indexed", type);
    OK(MPI_Type_create_hindexed_c(2, (MPI_Count[]){2, 1}, (MPI_Count[]){-8, 30}, MPI_INT, &type));
    show("hindexed", type);
    OK(MPI_Type_create_indexed_block_c(2, 2, (MPI_Count[]){0, 5}, MPI_CHAR, &type));
    show("indexed_block", type);
    OK(MPI_Type_create_hindexed_block_c(2, 3, (MPI_Count[]){3, 40}, MPI_CHAR, &type));
    show("hindexed_block", type);
    OK(MPI_Type_create_struct_c(2, (MPI_Count[]){1, 2}, (MPI_Count[]){0, 8}, (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE}, &type));
    show("struct", type);
    OK(MPI_Type_create_resized_c(MPI_INT, -4, 16, &type));
    show("resized", type);
    OK(MPI_Type_create_subarray_c(2, (MPI_Count[]){4, 6}, (MPI_Count[]){2, 3}, (MPI_Count[]){1, 2}, MPI_ORDER_C, MPI_INT, &type));
    show("subarray", type);
    OK(MPI_Type_create_darray_c(4, 1, 2, (MPI_Count[]){8, 6}, (int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
        (int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, (int[]){2, 2}, MPI_ORDER_C, MPI_INT, &type));
    show("darray", type);
    return finish();
}
