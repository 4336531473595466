/* Union, intersection and difference: members of the first group come first, in its order.
   ranks 4 */
#include "check.h"

static void show(const char *what, MPI_Group group, MPI_Group world) {
    int n, from[4] = {0, 1, 2, 3}, to[4];
    OK(MPI_Group_size(group, &n));
    OK(MPI_Group_translate_ranks(group, n, from, world, to));
    printf("%s:", what);
    for (int i = 0; i < n; i++) printf(" %d", to[i]);
    printf("\n");
}

int main(void) {
    MPI_Group world, a, b, both, common, rest, none;
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 3, (int[]){3, 1, 0}, &a));
    OK(MPI_Group_incl(world, 2, (int[]){2, 1}, &b));
    OK(MPI_Group_union(a, b, &both));
    OK(MPI_Group_intersection(a, b, &common));
    OK(MPI_Group_difference(a, b, &rest));
    show("union", both, world);
    show("intersection", common, world);
    show("difference", rest, world);
    OK(MPI_Group_difference(b, world, &none));
    CHECK(none == MPI_GROUP_EMPTY);
    OK(MPI_Group_union(MPI_GROUP_EMPTY, b, &none));
    show("with the empty one", none, world);
    return finish();
}
