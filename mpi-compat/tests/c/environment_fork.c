/* A child made by fork has no part in the job: its calls fail with a text that gives the reason, and the job goes on.
   By default the error handler ends only the child.
   ranks 1 2
   not on peers: not promised */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static MPI_Comm comm;
static MPI_Win win;

static int says_fork(int code) {
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(code, text, &len);
    return class_of(code) == MPI_ERR_OTHER && strstr(text, "fork") != NULL;
}

static void calls_of_child(void) {
    int x = 0, flag;
    MPI_Session session;
    MPI_Request request;
    CHECK(says_fork(MPI_Send(&x, 1, MPI_INT, 0, 0, comm)));
    CHECK(says_fork(MPI_Irecv(&x, 1, MPI_INT, 0, 0, comm, &request)));
    CHECK(says_fork(MPI_Barrier(comm)));
    CHECK(says_fork(MPI_Put(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, win)));
    CHECK(says_fork(MPI_Win_fence(0, win)));
    CHECK(says_fork(MPI_Win_free(&win)));
    CHECK(says_fork(MPI_Comm_free(&comm)));
    CHECK(says_fork(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session)));
    CHECK(says_fork(MPI_Init(NULL, NULL)));
    CHECK(says_fork(MPI_Abort(comm, 3)));
    CHECK(says_fork(MPI_Finalize()));
    OK(MPI_Initialized(&flag));
    CHECK(flag);
    OK(MPI_Finalized(&flag));
    CHECK(flag);
}

/* The wait status of a child. */
static int child(int fatal) {
    int status = -1;
    fflush(stdout);
    pid_t made = fork();
    if (made == 0) {
        alarm(20);
        if (fatal) MPI_Barrier(MPI_COMM_WORLD);
        else calls_of_child();
        fflush(stdout);
        exit(failures);
    }
    waitpid(made, &status, 0);
    return status;
}

int main(void) {
    int x = 0, sum = 0, status;
    MPI_Init(NULL, NULL);
    status = child(1);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Win_create(&x, sizeof x, 1, MPI_INFO_NULL, comm, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_fence(0, win));
    status = child(0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    x = 1;
    OK(MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, comm));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_free(&comm));
    return finish();
}
