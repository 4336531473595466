/* Request-based transfers of layouts and of many bytes, under different kinds of locks.
   ranks 2 */
#include "rma.h"

enum { LEN = 300000 };

int main(void) {
    MPI_Win win;
    MPI_Request requests[3];
    MPI_Datatype pieces;
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = 1 - me;
    unsigned char *base = malloc(LEN), *data = malloc(LEN), *got = calloc(LEN, 1), sum[10] = {0};
    OK(MPI_Type_vector(LEN / 100, 50, 100, MPI_BYTE, &pieces));
    OK(MPI_Type_commit(&pieces));
    fill(base, LEN, me);
    OK(MPI_Win_create(base, LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, win));
    OK(MPI_Rget(got, LEN, MPI_BYTE, peer, 0, LEN, MPI_BYTE, win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(is_filled(got, LEN, peer));
    OK(MPI_Win_unlock(peer, win));
    MPI_Barrier(MPI_COMM_WORLD);
    fill(data, LEN, 5 + me);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win));
    OK(MPI_Rput(data, 1, pieces, peer, 0, 1, pieces, win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Rget(sum, 10, MPI_BYTE, peer, 45, 10, MPI_BYTE, win, &requests[1]));
    OK(MPI_Waitany(2, requests, &(int){0}, MPI_STATUS_IGNORE));
    for (int i = 0; i < 10; i++) CHECK(sum[i] == (i < 5 ? byte_at(5 + me, 45 + (size_t)i) : byte_at(peer, 45 + (size_t)i)));
    OK(MPI_Win_unlock(peer, win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < LEN; i++)
        if (base[i] != byte_at(i % 100 < 50 ? 5 + peer : me, i)) {
            CHECK(!"a byte");
            break;
        }
    end_window(&win);
    OK(MPI_Type_free(&pieces));
    free(base);
    free(data);
    free(got);
    return finish();
}
