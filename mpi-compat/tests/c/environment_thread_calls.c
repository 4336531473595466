/* With MPI_THREAD_MULTIPLE several threads make objects at the same time; only one of them is the main thread.
   link -lpthread */
#include "threads.h"

enum { THREADS = 4, ROUNDS = 500 };
static int wrong[THREADS];

static void *work(void *number) {
    int me = *(int *)number, flag = 1, size;
    MPI_Is_thread_main(&flag);
    wrong[me] += flag != 0;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Datatype type;
        MPI_Group group;
        wrong[me] += MPI_Type_contiguous(i + 1, MPI_INT, &type) != MPI_SUCCESS;
        wrong[me] += MPI_Type_size(type, &size) != MPI_SUCCESS || size != (i + 1) * (int)sizeof(int);
        wrong[me] += MPI_Comm_group(MPI_COMM_WORLD, &group) != MPI_SUCCESS;
        wrong[me] += MPI_Type_free(&type) != MPI_SUCCESS || MPI_Group_free(&group) != MPI_SUCCESS;
    }
    return NULL;
}

int main(void) {
    start_with_threads();
    start_threads(THREADS, work);
    join_threads(THREADS);
    for (int i = 0; i < THREADS; i++) CHECK(wrong[i] == 0);
    return finish();
}
