/* Two threads of each process make communicators of the same group at the same time, distinguished by their string
   tags.
   ranks 1 2 4
   link -pthread */
#include "session.h"
#include "threads.h"

static MPI_Session session;
static MPI_Comm comms[2];
static const char *tags[2] = {"first thread", "second thread"};

static void *make(void *which) {
    int i = *(int *)which, rank, sum, size;
    MPI_Group group;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, tags[i], MPI_INFO_NULL, MPI_ERRORS_RETURN, &comms[i]);
    MPI_Group_free(&group);
    MPI_Comm_rank(comms[i], &rank);
    MPI_Comm_size(comms[i], &size);
    for (int n = 0; n < 20; n++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
        if (sum != size * (size - 1) / 2) *(int *)which = -1;
    }
    return NULL;
}

int main(void) {
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    OK(MPI_Info_free(&info));
    start_threads(2, make);
    join_threads(2);
    CHECK(thread_numbers[0] == 0 && thread_numbers[1] == 1);
    for (int i = 0; i < 2; i++) OK(MPI_Comm_free(&comms[i]));
    OK(MPI_Session_finalize(&session));
    return end();
}
