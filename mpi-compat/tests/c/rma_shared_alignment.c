/* MPI_Alloc_mem and windows that allocate honour mpi_minimum_memory_alignment, also if it exceeds a page.
   ranks 1 2
   not on peers: MPICH does not take the hint for windows */
#include "rma.h"

/* The alignment that the window reports. */
static long reported_alignment(void) {
    char text[MPI_MAX_INFO_VAL];
    int flag, len = sizeof text;
    MPI_Info used;
    OK(MPI_Win_get_info(win, &used));
    OK(MPI_Info_get_string(used, "mpi_minimum_memory_alignment", &len, text, &flag));
    OK(MPI_Info_free(&used));
    return flag ? atol(text) : 0;
}

/* Every rank writes the memory of the next one and sees what the one before has written. */
static void works(int *memory, MPI_Comm comm) {
    int n, value, me = rank_of(comm);
    MPI_Comm_size(comm, &n);
    FENCE();
    value = me + 1;
    OK(MPI_Put(&value, 1, MPI_INT, (me + 1) % n, 20, 1, MPI_INT, win));
    FENCE();
    CHECK(memory[20] == (me + n - 1) % n + 1);
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
}

static void check_alignment(const char *alignment, MPI_Comm node) {
    long align = atol(alignment);
    MPI_Info info;
    int *memory;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", alignment));
    for (int i = 0; i < 5; i++) {
        OK(MPI_Alloc_mem(100, info, &memory));
        CHECK((uintptr_t)memory % align == 0);
        OK(MPI_Free_mem(memory));
    }
    OK(MPI_Win_allocate(100, sizeof(int), info, MPI_COMM_WORLD, &memory, &win));
    CHECK((uintptr_t)memory % align == 0 && reported_alignment() >= align);
    works(memory, MPI_COMM_WORLD);
    OK(MPI_Win_free(&win));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    OK(MPI_Win_allocate_shared(100, sizeof(int), info, node, &memory, &win));
    CHECK((uintptr_t)memory % align == 0 && reported_alignment() >= align);
    works(memory, node);
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
}

int main(void) {
    start();
    MPI_Comm node = sharing();
    check_alignment("1024", node);
    check_alignment("65536", node);
    check_alignment("2097152", node);
    OK(MPI_Comm_free(&node));
    return finish();
}
