/* Attributes, names, groups and error handlers of windows.
   ranks 1 3 */
#include "check.h"

int main(void) {
    int flag, size, *unit, *flavor, *model, len, array[8], *mine;
    void *base;
    MPI_Aint *bytes;
    MPI_Win win, other;
    MPI_Group group, world;
    MPI_Errhandler handler;
    char name[MPI_MAX_OBJECT_NAME];
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_create(array, (MPI_Aint)sizeof array, 4 + me, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag));
    CHECK(flag && base == array);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag));
    CHECK(flag && *bytes == (MPI_Aint)sizeof array);
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag));
    CHECK(flag && *unit == 4 + me);
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    CHECK(flag && *flavor == MPI_WIN_FLAVOR_CREATE);
    OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
    CHECK(flag && *model == MPI_WIN_UNIFIED);

    OK(MPI_Win_get_name(MPI_WIN_NULL, name, &len));
    CHECK(strcmp(name, "MPI_WIN_NULL") == 0 && len == 12);
    OK(MPI_Win_get_name(win, name, &len));
    CHECK(len == 0 && name[0] == 0);
    OK(MPI_Win_set_name(win, "halo"));
    OK(MPI_Win_get_name(win, name, &len));
    CHECK(len == 4 && !strcmp(name, "halo"));

    OK(MPI_Win_get_group(win, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_compare(group, world, &flag));
    CHECK(flag == MPI_IDENT);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));

    OK(MPI_Win_get_errhandler(win, &handler));
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    OK(MPI_Errhandler_free(&handler));

    OK(MPI_Win_allocate(me * 16, 2, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &other));
    OK(MPI_Win_get_attr(other, MPI_WIN_BASE, &base, &flag));
    CHECK(flag && base == mine);
    OK(MPI_Win_get_attr(other, MPI_WIN_SIZE, &bytes, &flag));
    CHECK(flag && *bytes == me * 16);
    OK(MPI_Win_get_attr(other, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    CHECK(flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
    OK(MPI_Win_free(&other));
    CHECK(other == MPI_WIN_NULL);
    OK(MPI_Win_free(&win));
    return finish();
}
