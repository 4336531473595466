/* Programs that are started while there is a window over memory of the program, by `system`, `popen` and `posix_spawn`,
   run, and change nothing of the window.
   ranks 2
   not on peers: not promised */
#include <spawn.h>

#include "fork.h"
#include "rma.h"

enum { LEN = 200 * 1000 };

extern char **environ;

static void start_programs(void) {
    char line[20] = "", *arguments[] = {"sh", "-c", "exit 5", NULL};
    int status = -1;
    pid_t pid = -1;
    CHECK(WEXITSTATUS(system("exit 3")) == 3);
    FILE *words = popen("echo some words", "r");
    CHECK(words && fgets(line, sizeof line, words) && strcmp(line, "some words\n") == 0);
    CHECK(pclose(words) == 0);
    CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
}

int main(void) {
    start();
    unsigned char *memory = malloc(LEN);
    fill(memory, LEN, 3);
    OK(MPI_Win_create(memory, LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    start_programs();
    CHECK(is_filled(memory, LEN, 3));
    OK(MPI_Win_fence(0, win));
    start_programs();
    overwritten(win, MPI_COMM_WORLD);
    start_programs();
    OK(MPI_Win_free(&win));
    free(memory);
    return finish();
}
