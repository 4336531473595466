/* If ranks cannot map each other's memory, all of them get MPI_ERR_RMA_SHARED.
   ranks 2 3
   not on peers: the setting is of this library */
#include "rma.h"

int main(void) {
    int *memory;
    MPI_Info info;
    setenv("FARSIDE_TEST_FAULT", "unmapped", 1);
    start();
    FAILS(MPI_ERR_RMA_SHARED, MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    FAILS(MPI_ERR_RMA_SHARED, MPI_Win_allocate_shared(64, 1, info, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Info_free(&info));
    return finish();
}
