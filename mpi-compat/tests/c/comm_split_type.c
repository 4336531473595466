/* Ranks that share memory are together; an unknown resource gives no communicator.
   ranks 1 3 */
#include "check.h"

int main(void) {
    MPI_Comm comm;
    MPI_Info info;
    int rank, size, n, together, members[3];
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &comm));
    OK(MPI_Comm_rank(comm, &n));
    OK(MPI_Comm_size(comm, &together));
    CHECK(together <= COUNT(members));
    OK(MPI_Allgather(&rank, 1, MPI_INT, members, 1, MPI_INT, comm));
    CHECK(members[n] == rank);
    for (int i = 1; i < together; i++) CHECK(members[i] < members[i - 1]);
    /* All ranks, unless they are on several nodes, or use a device as if they were. */
    if (getenv("FARSIDE_DEVICE") == NULL) CHECK(together == size);
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, rank ? MPI_COMM_TYPE_SHARED : MPI_UNDEFINED, 0, MPI_INFO_NULL, &comm));
    CHECK((comm == MPI_COMM_NULL) == (rank == 0));
    if (rank) OK(MPI_Comm_free(&comm));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_hw_resource_type", "no such thing"));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &comm));
    CHECK(comm == MPI_COMM_NULL);
    OK(MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory"));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &comm));
    OK(MPI_Comm_size(comm, &n));
    CHECK(n == together);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Info_free(&info));
    FAILS(MPI_ERR_ARG, MPI_Comm_split_type(MPI_COMM_WORLD, 12345, 0, MPI_INFO_NULL, &comm));
    return finish();
}
