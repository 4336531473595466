/* The process sets of a session: at least two, with names, read into buffers that are large enough and that are not,
   and sizes.
   ranks 1 3
   not on peers: MPICH does not count the null byte */
#include "session.h"

static int size_of(MPI_Session session, const char *set) {
    MPI_Info info;
    char value[32];
    int len = sizeof value, flag = 0;
    OK(MPI_Session_get_pset_info(session, set, &info));
    OK(MPI_Info_get_string(info, "mpi_size", &len, value, &flag));
    CHECK(flag);
    OK(MPI_Info_free(&info));
    return atoi(value);
}

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int sets = 0, size, world = 0, self = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets));
    CHECK(sets >= 2);
    for (int n = 0; n < sets; n++) {
        char name[MPI_MAX_PSET_NAME_LEN], less[6] = "?????";
        int len = 0, room = sizeof name, little = 5;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, less));
        CHECK(strcmp(less, "?????") == 0);
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &room, name));
        CHECK(room == len && len == (int)strlen(name) + 1);
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &little, less));
        CHECK(little == len && strlen(less) == 4 && strncmp(less, name, 4) == 0);
        world += strcmp(name, "mpi://WORLD") == 0;
        self += strcmp(name, "mpi://SELF") == 0;
    }
    CHECK(world == 1 && self == 1);
    comm = comm_of(session, "mpi://WORLD", "psets");
    OK(MPI_Comm_size(comm, &size));
    CHECK(size_of(session, "mpi://WORLD") == size);
    CHECK(size_of(session, "mpi://SELF") == 1);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
