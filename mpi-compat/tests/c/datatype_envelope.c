/* The envelope counts the arguments of the constructor, and the contents return them. */
#include "check.h"

static void show(const char *what, MPI_Datatype type) {
    int ni, na, nd, combiner, integers[64];
    MPI_Aint addresses[64];
    MPI_Datatype types[64];
    OK(MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner));
    printf("%s: combiner %d, %d integers, %d addresses, %d types:", what, combiner, ni, na, nd);
    OK(MPI_Type_get_contents(type, ni, na, nd, integers, addresses, types));
    for (int i = 0; i < ni; i++) printf(" %d", integers[i]);
    printf(" |");
    for (int i = 0; i < na; i++) printf(" %ld", (long)addresses[i]);
    printf(" |");
    for (int i = 0; i < nd; i++) printf(" %x", MPI_Type_toint(types[i]));
    printf("\n");
    OK(MPI_Type_free(&type));
}

int main(void) {
    MPI_Datatype type;
    int ni, na, nd, combiner;
    start();
    OK(MPI_Type_get_envelope(MPI_INT, &ni, &na, &nd, &combiner));
    CHECK(ni == 0 && na == 0 && nd == 0 && combiner == MPI_COMBINER_NAMED);
    OK(MPI_Type_dup(MPI_INT, &type));
    show("dup", type);
    OK(MPI_Type_contiguous(5, MPI_INT, &type));
    show("contiguous", type);
    OK(MPI_Type_vector(3, 2, 4, MPI_DOUBLE, &type));
    show("vector", type);
    OK(MPI_Type_create_hvector(3, 2, 20, MPI_SHORT, &type));
    show("hvector", type);
    OK(MPI_Type_indexed(2, (int[]){2, 1}, (int[]){4, 1}, MPI_INT, &type));
    show("indexed", type);
    OK(MPI_Type_create_hindexed(2, (int[]){2, 1}, (MPI_Aint[]){-8, 30}, MPI_INT, &type));
    show("hindexed", type);
    OK(MPI_Type_create_indexed_block(2, 2, (int[]){0, 5}, MPI_CHAR, &type));
    show("indexed_block", type);
    OK(MPI_Type_create_hindexed_block(2, 3, (MPI_Aint[]){3, 40}, MPI_CHAR, &type));
    show("hindexed_block", type);
    OK(MPI_Type_create_struct(2, (int[]){1, 2}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE}, &type));
    show("struct", type);
    OK(MPI_Type_create_resized(MPI_INT, -4, 16, &type));
    show("resized", type);
    OK(MPI_Type_create_subarray(2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_C, MPI_INT, &type));
    show("subarray", type);
    OK(MPI_Type_create_darray(4, 1, 2, (int[]){8, 6}, (int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
        (int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, (int[]){2, 2}, MPI_ORDER_C, MPI_INT, &type));
    show("darray", type);
    return finish();
}
