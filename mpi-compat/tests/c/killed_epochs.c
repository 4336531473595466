/* A rank is killed inside an epoch of the kind that the argument names: every other rank that needs it gets
   MPI_ERR_PROC_ABORTED by the handler of the window; with a second argument the default handler ends the job.
   not on peers: they end the job, or wait */
#include "rma.h"
#include <signal.h>
#include <unistd.h>

enum { VICTIM = 1 };

static int calls_of_handler;

static void handler(MPI_Win *of, int *code, ...) { calls_of_handler += *of == win && class_of(*code) == MPI_ERR_PROC_ABORTED; }

/* The victim ends as a crash does, when all others have come as far. */
static void die(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == VICTIM) raise(SIGKILL);
}

int main(int argc, char **argv) {
    const char *phase = argc > 1 ? argv[1] : "";
    int code = MPI_SUCCESS, flag = 0;
    int64_t value = 7, old, *memory = NULL;
    MPI_Aint at = 0;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int victim = VICTIM, *others = malloc(sizeof(int) * (size_t)size), n = 0;
    for (int r = 0; r < size; r++)
        if (r != VICTIM) others[n++] = r;
    MPI_Group alone = group_of(1, &victim), rest = group_of(n, others);
    if (!strcmp(phase, "dynamic")) {
        memory = calloc(1, sizeof *memory);
        OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        OK(MPI_Win_attach(win, memory, sizeof *memory));
        OK(MPI_Get_address(memory, &at));
        MPI_Bcast(&at, 1, MPI_AINT, VICTIM, MPI_COMM_WORLD);
    } else
        OK(MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    if (argc <= 2) {
        MPI_Errhandler mine;
        OK(MPI_Win_create_errhandler(handler, &mine));
        OK(MPI_Win_set_errhandler(win, mine));
    }
#define PUT_TO_VICTIM() MPI_Put(&value, 1, MPI_INT64_T, VICTIM, at, 1, MPI_INT64_T, win)
    if (!strcmp(phase, "fence")) {
        OK(MPI_Win_fence(0, win));
        OK(MPI_Put(&value, 1, MPI_INT64_T, right(), 0, 1, MPI_INT64_T, win));
        die();
        code = MPI_Win_fence(0, win);
    } else if (!strcmp(phase, "access") || !strcmp(phase, "access_test")) {
        if (me == VICTIM) {
            OK(MPI_Win_start(rest, 0, win));
            for (int i = 0; i < n; i++) OK(MPI_Put(&value, 1, MPI_INT64_T, others[i], 0, 1, MPI_INT64_T, win));
        } else
            OK(MPI_Win_post(alone, 0, win));
        die();
        if (!strcmp(phase, "access"))
            code = MPI_Win_wait(win);
        else
            while (code == MPI_SUCCESS && !flag) code = MPI_Win_test(win, &flag);
    } else if (!strcmp(phase, "exposure")) {
        if (me == VICTIM) OK(MPI_Win_post(rest, 0, win));
        die();
        /* One epoch gets everything that it needs, since the exposure was open. */
        while (code == MPI_SUCCESS) {
            code = MPI_Win_start(alone, 0, win);
            if (code == MPI_SUCCESS) code = PUT_TO_VICTIM();
            if (code == MPI_SUCCESS) code = MPI_Win_complete(win);
        }
    } else if (!strcmp(phase, "lock")) {
        if (me == VICTIM) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
            OK(MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win));
            OK(MPI_Win_flush(0, win));
        }
        die();
        code = MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        if (code == MPI_SUCCESS) code = MPI_Get(&old, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
        if (code == MPI_SUCCESS) code = MPI_Win_unlock(0, win);
    } else if (!strcmp(phase, "lock_all")) {
        if (me == VICTIM) {
            OK(MPI_Win_lock_all(0, win));
            for (int r = 0; r < size; r++) OK(MPI_Fetch_and_op(&value, &old, MPI_INT64_T, r, 0, MPI_SUM, win));
            OK(MPI_Win_flush_all(win));
        }
        die();
        code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        if (code == MPI_SUCCESS) code = MPI_Get(&old, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
        if (code == MPI_SUCCESS) code = MPI_Win_unlock(0, win);
    } else if (!strcmp(phase, "flush") || !strcmp(phase, "dynamic")) {
        OK(MPI_Win_lock_all(0, win));
        OK(PUT_TO_VICTIM());
        OK(MPI_Win_flush(VICTIM, win));
        die();
        while (code == MPI_SUCCESS) {
            code = PUT_TO_VICTIM();
            if (code == MPI_SUCCESS) code = MPI_Win_flush(VICTIM, win);
        }
    } else if (!strcmp(phase, "free")) {
        die();
        code = MPI_Win_free(&win);
    }
    CHECK(class_of(code) == MPI_ERR_PROC_ABORTED);
    CHECK(calls_of_handler > 0);
    printf(failures == 0 && argc <= 2 ? "got the error\n" : "it went on\n");
    fflush(stdout);
    _exit(1);
}
