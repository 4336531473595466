/* Unknown hints are ignored, and the hints in use can be queried. */
#include "check.h"

int main(void) {
    MPI_Info info, used;
    int n = -1;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no_such_hint_exists", "true"));
    OK(MPI_Comm_set_info(MPI_COMM_WORLD, info));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_get_info(MPI_COMM_WORLD, &used));
    OK(MPI_Info_get_nkeys(used, &n));
    CHECK(n >= 0);
    OK(MPI_Info_free(&used));
    return finish();
}
