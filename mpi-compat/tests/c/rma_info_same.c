/* The keys same_size and same_disp_unit are hints: a window whose ranks differ can still be made.
   ranks 2 3 */
#include "rma.h"

/* Each rank puts its number to the last place of the next one's window, of which each has its own unit. */
static void check_units(int *memory, int places, MPI_Info info) {
    int unit = me % 2 ? 4 : 1, next_places = right() == 1 ? 2 : 4;
    OK(MPI_Win_create(memory, 4 * places, unit, info, MPI_COMM_WORLD, &win));
    FENCE();
    PUT(&me, 1, right(), (next_places - 1) * (right() % 2 ? 1 : 4));
    FENCE();
    CHECK(memory[places - 1] == left());
    end_window(&win);
}

int main(void) {
    int memory[4] = {-1, -1, -1, -1}, other[4] = {-1, -1, -1, -1};
    MPI_Info info;
    begin(1);
    OK(MPI_Win_free(&win));
    info = info_with("same_size", "true");
    OK(MPI_Win_create(memory, me == 1 ? 8 : 16, 4, info, MPI_COMM_WORLD, &win));
    CHECK(has_hint(win, "same_size", "true"));
    end_window(&win);
    check_units(memory, me == 1 ? 2 : 4, info);
    OK(MPI_Info_set(info, "same_disp_unit", "true"));
    check_units(other, me == 1 ? 2 : 4, info);
    OK(MPI_Info_free(&info));
    return finish();
}
