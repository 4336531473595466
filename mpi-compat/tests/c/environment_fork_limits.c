/* A child made by fork that gets no memory or no descriptor for its copies ends with a text that gives the reason,
   rather than share memory with its parent, which goes on.
   ranks 2
   says cannot be copied, because of system error
   not on peers: not promised
   not over verbs: no pages of the program are moved */
#include <sys/resource.h>

#include <sys/wait.h>
#include <unistd.h>

#include "rma.h"

enum { LEN = 1000 * 1000 };

/* The wait status of a child that is made under a limit, and would exit by 7. */
static int made_under(int limit, rlim_t most) {
    struct rlimit before, less;
    int status = -1;
    CHECK(getrlimit(limit, &before) == 0);
    less = before;
    less.rlim_cur = most;
    fflush(stdout);
    CHECK(setrlimit(limit, &less) == 0);
    pid_t child = fork();
    if (child == 0) _exit(7);
    CHECK(setrlimit(limit, &before) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(void) {
    start();
    unsigned char *memory = malloc(LEN);
    fill(memory, LEN, 3);
    OK(MPI_Win_create(memory, LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    CHECK(WEXITSTATUS(made_under(RLIMIT_NOFILE, 64)) == 7);
    CHECK(WEXITSTATUS(made_under(RLIMIT_NOFILE, 3)) == 1);
    CHECK(WEXITSTATUS(made_under(RLIMIT_DATA, 4096)) == 1);
    CHECK(is_filled(memory, LEN, 3));
    end_window(&win);
    free(memory);
    return finish();
}
