/* mpi_minimum_memory_alignment is met by MPI_Alloc_mem and by windows that allocate.
   ranks 1 2
   not on peers: MPICH does not take the hint for windows */
#include "rma.h"

int main(void) {
    MPI_Info info;
    void *memory;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", "1024"));
    for (int i = 0; i < 5; i++) {
        OK(MPI_Alloc_mem(100, info, &memory));
        CHECK((uintptr_t)memory % 1024 == 0);
        OK(MPI_Free_mem(memory));
    }
    OK(MPI_Win_allocate(100, 1, info, MPI_COMM_WORLD, &memory, &win));
    CHECK((uintptr_t)memory % 1024 == 0);
    OK(MPI_Win_free(&win));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    OK(MPI_Win_allocate_shared(100, 1, info, MPI_COMM_SELF, &memory, &win));
    CHECK((uintptr_t)memory % 1024 == 0);
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
    return finish();
}
