/* A million messages to a rank that does not receive yet: flow control slows the sender, so that neither rank's memory
   grows with their number, and all are received in order.
   ranks 2
   not on peers: how much memory they take is theirs */
#include "check.h"
#include <unistd.h>

enum { LIMIT_KIB = 4 * 1024 };

/* The most memory that this process has had, in KiB. */
static long peak(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %ld", &kib);
    if (file) fclose(file);
    return kib;
}

int main(void) {
    start();
    const int N = rounds(1000000);
    int me = rank_of(MPI_COMM_WORLD), wrong = 0;
    long before = peak();
    CHECK(before > 0);
    if (me == 0) {
        for (int i = 0; i < N; i++) OK(MPI_Send(&i, 1, MPI_INT, 1, 3, MPI_COMM_WORLD));
    } else {
        for (int i = 0; i < N; i++) {
            int value = -1, flag;
            /* Outside the library, and inside it for something else. */
            if (i % (N / 4) == 0) usleep(200000);
            if (i % (N / 4) == 0) OK(MPI_Iprobe(0, 4, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            wrong += value != i;
        }
    }
    long grown = peak() - before;
    if (grown >= LIMIT_KIB) printf("FAILED: rank %d has grown by %ld KiB\n", me, grown);
    CHECK(wrong == 0 && grown < LIMIT_KIB);
    return finish();
}
