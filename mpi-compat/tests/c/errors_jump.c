/* Functions of the program may jump out of MPI calls: error handlers, attribute callbacks, functions of generalized
   requests. All threads can call MPI afterwards.
   link -pthread
   not on peers: not promised */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

static jmp_buf back;

static void of_comm(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    longjmp(back, 1);
}

static void of_win(MPI_Win *win, int *code, ...) {
    (void)win, (void)code;
    longjmp(back, 1);
}

static int copy(MPI_Comm comm, int key, void *extra, void *value, void *copied, int *flag) {
    (void)comm, (void)key, (void)extra, (void)value, (void)copied, (void)flag;
    longjmp(back, 1);
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    longjmp(back, 1);
}

static int query(void *extra, MPI_Status *status) {
    (void)extra, (void)status;
    longjmp(back, 1);
}

static int released(void *extra) {
    (void)extra;
    longjmp(back, 1);
}

static int cancelled(void *extra, int complete) {
    (void)extra, (void)complete;
    longjmp(back, 1);
}

static void *other(void *data) {
    int rank;
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    return data;
}

/* The call is left by a jump, and another thread and this one can call MPI then. */
#define JUMPS(call) \
    do { \
        if (!setjmp(back)) { \
            call; \
            printf("FAILED line %d: %s came back\n", __LINE__, #call); \
            failures++; \
        } \
        pthread_t thread; \
        alarm(20); \
        pthread_create(&thread, NULL, other, NULL); \
        pthread_join(thread, NULL); \
        alarm(0); \
        other(NULL); \
    } while (0)

static void all_jumps(void) {
    int key, x = 0;
    MPI_Comm comm;
    MPI_Errhandler handler, of_windows;
    MPI_Request request;
    MPI_Win win;
    OK(MPI_Comm_create_errhandler(of_comm, &handler));
    OK(MPI_Win_create_errhandler(of_win, &of_windows));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Win_create(&x, sizeof x, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win));
    OK(MPI_Comm_set_errhandler(comm, handler));
    OK(MPI_Win_set_errhandler(win, of_windows));
    JUMPS(MPI_Send(&x, 1, MPI_INT, -9, 0, comm));
    JUMPS(MPI_Recv(NULL, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE));
    JUMPS(MPI_Put(&x, 1, MPI_INT, 5, 0, 1, MPI_INT, win));
    JUMPS(MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER));
    JUMPS(MPI_Win_call_errhandler(win, MPI_ERR_OTHER));

    OK(MPI_Comm_create_keyval(copy, delete, &key, NULL));
    OK(MPI_Comm_set_attr(comm, key, &x));
    MPI_Comm new;
    JUMPS(MPI_Comm_dup(comm, &new));
    JUMPS(MPI_Comm_delete_attr(comm, key));
    JUMPS(MPI_Comm_free(&comm));

    OK(MPI_Grequest_start(query, released, cancelled, NULL, &request));
    JUMPS(MPI_Cancel(&request));
    OK(MPI_Grequest_complete(request));
    JUMPS(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Grequest_start(query, released, cancelled, NULL, &request));
    OK(MPI_Grequest_complete(request));
    JUMPS(MPI_Request_free(&request));
    OK(MPI_Win_free(&win));
}

int main(void) {
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    all_jumps();
    return finish();
}
