/* An unguided split makes a strict subset, and says in the info object by which resource.
   ranks 4
   env FARSIDE_TEST_NODES=2
   not on peers: they may find other resources */
#include "check.h"

int main(void) {
    MPI_Comm next, again;
    MPI_Info info;
    char type[100] = "";
    int was, is, len = sizeof(type), has = 0, shared = 0;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &was);
    OK(MPI_Info_create(&info));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &next));
    if (next != MPI_COMM_NULL) {
        MPI_Comm_size(next, &is);
        CHECK(is < was);
        OK(MPI_Info_get_string(info, "mpi_hw_resource_type", &len, type, &has));
        CHECK(has && strcmp(type, "mpi_shared_memory") == 0);
        /* A guided split by that resource gives the same. */
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &again));
        MPI_Comm_size(again, &shared);
        CHECK(shared == is);
        OK(MPI_Comm_free(&again));
        /* There is no smaller resource, and the object of a split that makes nothing stays as it is. */
        OK(MPI_Info_free(&info));
        OK(MPI_Info_create(&info));
        OK(MPI_Comm_split_type(next, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &again));
        CHECK(again == MPI_COMM_NULL);
        OK(MPI_Info_get_string(info, "mpi_hw_resource_type", &len, type, &has));
        CHECK(!has);
        OK(MPI_Comm_free(&next));
    }
    OK(MPI_Info_free(&info));
    return finish();
}
