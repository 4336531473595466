/* With MPI_THREAD_MULTIPLE several threads make objects at the same time, and only one is the main one.
   link -lpthread */
#include <pthread.h>
#include "check.h"

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
    int provided, numbers[THREADS];
    pthread_t threads[THREADS];
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(wrong[i] == 0);
    }
    return finish();
}
