/* Parts without a neighbour are not checked: parts beyond the border of a grid, and parts of a rank without neighbours.
   ranks 3
   says VERIFY MPI_NEIGHBOR_ALLTOALLV(0): sendsize=8 > expected recvsize(1)[0]=4 */
#include "check.h"

int main(void) {
    int in[2], out[2] = {-1, -1}, one = 1, zero = 0, counts[2] = {1, 1}, other[2] = {1, 1}, places[2] = {0, 1}, last, first;
    MPI_Aint start_of = 0, origin, far[2] = {0, 4};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT}, type;
    MPI_Comm line, star, point;
    start();
    first = rank == 0;
    last = rank == size - 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &zero, 0, &line);
    handle(line);
    /* At the ends of the grid both parts share one offset. */
    if (first || last) places[0] = places[1] = 0;
    if (first) other[1] = WRONG_AT(0, 2, 1);
    in[0] = in[1] = rank;
    MPI_Neighbor_alltoallv(in, other, (int[]){0, 0}, MPI_INT, out, counts, places, MPI_INT, line);
    if (!IS_WRONG && out[0] != (first ? 1 : rank - 1)) printf("FAILED rank %d gets %d\n", rank, out[0]);
    /* Parts beyond the ends have the address NULL. */
    MPI_Get_address(out, &origin);
    if (first) far[0] = -origin;
    if (last) far[1] = -origin;
    MPI_Neighbor_alltoallw(in, counts, (MPI_Aint[]){0, 0}, types, out, counts, far, types, line);
    MPI_Comm_free(&line);
    /* A grid of one rank: nothing is received, and the type leads to NULL. */
    origin = -origin;
    MPI_Type_create_hindexed(1, &one, &origin, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Cart_create(MPI_COMM_SELF, 1, &one, &zero, 0, &point);
    handle(point);
    MPI_Neighbor_allgather(in, 1, MPI_INT, out, 1, type, point);
    MPI_Type_free(&type);
    type = MPI_INT;
    MPI_Comm_free(&point);
    /* Rank 0 receives from rank 1, to which no rank sends; rank 2 has no neighbours. */
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, first, &one, MPI_UNWEIGHTED, rank == 1, &zero, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &star);
    handle(star);
    out[0] = -1;
    if (first) MPI_Neighbor_alltoallw(NULL, NULL, NULL, NULL, out, &one, &start_of, &type, star);
    if (rank == 1) MPI_Neighbor_alltoallw(in, &one, &start_of, &type, NULL, NULL, NULL, NULL, star);
    if (rank == 2) MPI_Neighbor_alltoallw(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, star);
    if (first && out[0] != 1) printf("FAILED rank 0 gets %d\n", out[0]);
    MPI_Comm_free(&star);
    return finish();
}
