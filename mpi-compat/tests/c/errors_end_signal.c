/* A signal handler that ends the job while the process waits in a call: the process ends with that code. An error in the
   exit handler then does not replace it.
   code 9
   says another error while the process exits with code 9
   not on peers: what they do is not promised */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static void err(void) {
    MPI_Datatype type = MPI_INT;
    MPI_Type_free(&type);
}

static void ended(int number) {
    (void)number;
    MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(void) {
    int word;
    MPI_Init(NULL, NULL);
    atexit(err);
    signal(SIGALRM, ended);
    alarm(1);
    MPI_Recv(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
