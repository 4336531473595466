/* The forms with large counts that make windows.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int memory[2] = {-1, -1}, value = 8, *base, *other;
    MPI_Aint bytes, unit;
    MPI_Win wins[2];
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_create_c(memory, sizeof memory, (MPI_Aint)sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &wins[0]));
    OK(MPI_Win_allocate_c(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &wins[1]));
    for (int i = 0; i < 2; i++) {
        OK(MPI_Win_fence(0, wins[i]));
        OK(MPI_Put(&value, 1, MPI_INT, right(), i == 0, 1, MPI_INT, wins[i]));
        OK(MPI_Win_fence(0, wins[i]));
        CHECK(i ? base[0] == 8 : memory[0] == -1 && memory[1] == 8);
        MPI_Barrier(MPI_COMM_WORLD);
        end_window(&wins[i]);
    }
    if (getenv("FARSIDE_TEST_FAULT") == NULL || strcmp(getenv("FARSIDE_TEST_FAULT"), "none") == 0) {
        MPI_Comm node = sharing();
        me = rank_of(node);
        MPI_Comm_size(node, &size);
        OK(MPI_Win_allocate_shared_c(sizeof(int), 2, MPI_INFO_NULL, node, &base, &win));
        OK(MPI_Win_shared_query_c(win, right(), &bytes, &unit, &other));
        CHECK(bytes == sizeof(int) && unit == 2 && other != NULL);
        OK(MPI_Win_free(&win));
    }
    return finish();
}
