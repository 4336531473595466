/* Hundreds of regions are attached at a time; memory that is not attached is out of range.
   ranks 2
   not on peers: what is not attached is not looked for there */
#include "rma.h"

enum { PIECES = 600 };

int main(void) {
    static int memory[PIECES * 3];
    int value = 7, got;
    MPI_Aint bases[2], mine;
    MPI_Win win, plain;
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = 1 - me;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Get_address(memory, &mine));
    MPI_Allgather(&mine, 1, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD);
    for (int i = 0; i < PIECES; i++) OK(MPI_Win_attach(win, &memory[3 * i], 8));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, &memory[1], 4));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, &memory[1]));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, win));
    for (int i = 0; i < PIECES; i++) {
        OK(MPI_Put(&value, 1, MPI_INT, peer, bases[peer] + 12 * i + 4, 1, MPI_INT, win));
        OK(MPI_Win_flush_local(peer, win));
    }
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, peer, bases[peer] + 8, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Get(&got, 1, MPI_INT, peer, 64, 1, MPI_INT, win));
    OK(MPI_Win_unlock(peer, win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3 * PIECES; i++) CHECK(memory[i] == (i % 3 == 1 ? 7 : 0));
    overwritten_at(win, MPI_COMM_WORLD, memory, mine, 8);
    for (int i = 0; i < PIECES; i += 2) OK(MPI_Win_detach(win, &memory[3 * i]));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Get(&got, 1, MPI_INT, peer, bases[peer] + 12 + 4, 1, MPI_INT, win));
    /* Afterwards the lock is held, so an error is an error of the call and not of the unlock. */
    OK(MPI_Win_flush(peer, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, peer, bases[peer], 1, MPI_INT, win));
    OK(MPI_Win_unlock_all(win));
    CHECK(got == 7);
    OK(MPI_Win_create(memory, 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &plain));
    OK(MPI_Win_set_errhandler(plain, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_attach(plain, memory, 4));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_detach(plain, memory));
    OK(MPI_Win_free(&plain));
    OK(MPI_Win_free(&win));
    return finish();
}
