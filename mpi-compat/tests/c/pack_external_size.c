/* The size in external32 is computed as a product, in constant time for any number of elements.
   not on peers: MPICH ends by a signal */
#include "check.h"

int main(void) {
    int lens[] = {1, 1, 1};
    MPI_Aint at[] = {0, 8, 16}, size;
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_SHORT}, record, table;
    MPI_Count large;
    start();
    OK(MPI_Type_create_struct(3, lens, at, types, &record));
    OK(MPI_Type_vector(1 << 20, 3, 5, record, &table));
    OK(MPI_Pack_external_size("external32", 100000000, record, &size));
    CHECK(size == 1400000000);
    OK(MPI_Pack_external_size_c("external32", 1LL << 50, record, &large));
    CHECK(large == 14LL << 50);
    OK(MPI_Pack_external_size_c("external32", 1LL << 30, table, &large));
    CHECK(large == 42LL << 50);
    OK(MPI_Type_free(&table));
    OK(MPI_Type_free(&record));
    return finish();
}
