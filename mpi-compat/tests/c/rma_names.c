/* The name of a window is empty until it is set, and can be changed. */
#include "rma.h"

int main(void) {
    char name[MPI_MAX_OBJECT_NAME] = "?";
    int len = -1;
    begin(1);
    OK(MPI_Win_get_name(win, name, &len));
    CHECK(len == 0 && name[0] == 0);
    OK(MPI_Win_set_name(win, "first"));
    OK(MPI_Win_set_name(win, "the second name"));
    OK(MPI_Win_get_name(win, name, &len));
    CHECK(len == 15 && strcmp(name, "the second name") == 0);
    return done();
}
