/* An exclusive lock that several ranks want goes from one to the next, whether they share a node or not, while the ranks
   without it sleep: first the target and its neighbours wait in a barrier, then all want the lock. A rank that the next
   one is not woken by costs it a second and more, until it checks its peers; then the program does not end in time.
   ranks 4
   env FARSIDE_TEST_NODES=2 FARSIDE_PEER_CHECK_MS=2000 */
#include "check.h"
#include <unistd.h>

int main(void) {
    start();
    alarm(60);
    const int EPOCHS = rounds(100);
    int me = rank_of(MPI_COMM_WORLD), n, *counts;
    MPI_Win window;
    OK(MPI_Comm_size(MPI_COMM_WORLD, &n));
    OK(MPI_Win_allocate(n * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &counts, &window));
    for (int i = 0; i < n; i++) counts[i] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int all = 0; all < 2; all++) {
        const int one = 1;
        for (int i = 0; i < EPOCHS && (all || me % 2); i++) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
            OK(MPI_Accumulate(&one, 1, MPI_INT, 0, me, 1, MPI_INT, MPI_SUM, window));
            OK(MPI_Win_unlock(0, window));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
        for (int i = 0; i < n && me == 0; i++) CHECK(counts[i] == (all + i % 2) * EPOCHS);
        OK(MPI_Win_unlock(0, window));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_free(&window));
    return finish();
}
