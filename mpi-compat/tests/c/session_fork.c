/* A child made by fork while another thread of the process is in an MPI call exits normally.
   link -pthread
   not on peers: not promised */
#include "session.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static MPI_Comm comm;

static void *receive(void *data) {
    OK(MPI_Recv(data, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE));
    return NULL;
}

int main(void) {
    MPI_Session session;
    pthread_t thread;
    int got = 0, sent = 3, status = -1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://SELF", "fork");
    pthread_create(&thread, NULL, receive, &got);
    usleep(100000);
    pid_t child = fork();
    if (child == 0) {
        /* Ends the child if it hangs. */
        alarm(20);
        exit(0);
    }
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(MPI_Send(&sent, 1, MPI_INT, 0, 0, comm));
    pthread_join(thread, NULL);
    CHECK(got == 3);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
