/* Windows over memory of the program cost the same however many there are: the later ones read a few values of what
   the kernel knows of this process, and not the list of its mappings.
   ranks 2
   not on peers: what they read is theirs */
#include "check.h"

enum { MANY = 700, LATER = 100, LEN = 8192 };

/* The bytes that this process has read. */
static long bytes_read(void) {
    long bytes = -1;
    char line[256];
    FILE *file = fopen("/proc/self/io", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "rchar: %ld", &bytes);
    if (file) fclose(file);
    return bytes;
}

int main(void) {
    start();
    static MPI_Win windows[MANY];
    static char *memory[MANY];
    int me = rank_of(MPI_COMM_WORLD), n = is_emulated() ? 0 : MANY;
    long before = 0, read;
    for (int i = 0; i < n; i++) {
        if (i == MANY - LATER) before = bytes_read();
        memory[i] = calloc(LEN, 1);
        OK(MPI_Win_create(memory[i], LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &windows[i]));
    }
    read = bytes_read() - before;
    if (n > 0 && before >= 0 && read > LATER * 8192L) printf("FAILED: rank %d: %ld bytes for %d windows\n", me, read, LATER);
    for (int i = 0; i < n; i += 97) {
        char byte = (char)(i + 1);
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 1 - me, 0, windows[i]));
        OK(MPI_Put(&byte, 1, MPI_CHAR, 1 - me, 5000, 1, MPI_CHAR, windows[i]));
        OK(MPI_Win_unlock(1 - me, windows[i]));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < n; i++) {
        OK(MPI_Win_free(&windows[i]));
        CHECK(memory[i][5000] == (char)(i % 97 ? 0 : i + 1));
        free(memory[i]);
    }
    return finish();
}
