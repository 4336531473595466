/* Functions that may be called at any time may also be called while the main thread waits for a message.
   ranks 2
   link -pthread */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static char path[100];

static void *run(void *unused) {
    int flag = 0, version, subversion;
    (void)unused;
    usleep(1000);
    MPI_Initialized(&flag);
    MPI_Get_version(&version, &subversion);
    if (flag && version >= 5) close(open(path, O_CREAT | O_WRONLY, 0600));
    return NULL;
}

int main(void) {
    int value = 0;
    alarm(60);
    MPI_Init(NULL, NULL);
    if (rank_of(MPI_COMM_WORLD) == 0) {
        pthread_t thread;
        snprintf(path, sizeof path, "/tmp/farside-test-%d", getpid());
        OK(MPI_Send(path, sizeof path, MPI_CHAR, 1, 0, MPI_COMM_WORLD));
        pthread_create(&thread, NULL, run, NULL);
        /* Called only after the thread has returned from its calls. */
        OK(MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(value == 5);
        pthread_join(thread, NULL);
        unlink(path);
    } else {
        OK(MPI_Recv(path, sizeof path, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        while (access(path, F_OK) != 0) usleep(1000);
        value = 5;
        OK(MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD));
    }
    return finish();
}
