/* A distributed list: elements are made and attached one by one, and appended by compare-and-swap, as in the example
   of section 12.8 of the standard.
   ranks 2 3 */
#include "check.h"

enum { EACH = 30 };

typedef struct {
    int64_t next;
    int value;
    int rank;
} Element;

int main(void) {
    int size;
    MPI_Win win, head_win;
    int64_t *head, seen, got;
    Element *own[EACH];
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &head, &head_win));
    *head = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Win_lock_all(0, head_win));
    for (int i = 0; i < EACH; i++) {
        own[i] = malloc(sizeof(Element));
        OK(MPI_Win_attach(win, own[i], sizeof(Element)));
        own[i]->value = me * EACH + i;
        /* Address and rank in one word, 16 bits of it the rank. */
        int64_t name = (int64_t)(intptr_t)own[i] << 4 | me;
        seen = 0;
        for (;;) {
            own[i]->next = seen;
            OK(MPI_Win_sync(win));
            OK(MPI_Compare_and_swap(&name, &seen, &got, MPI_INT64_T, 0, 0, head_win));
            OK(MPI_Win_flush(0, head_win));
            if (got == seen) break;
            seen = got;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int *found = calloc((size_t)size * EACH, sizeof(int)), n = 0;
    OK(MPI_Get(&got, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, head_win));
    OK(MPI_Win_flush(0, head_win));
    while (got && n++ <= size * EACH) {
        Element copy;
        int rank = (int)(got & 15);
        OK(MPI_Get(&copy, sizeof copy, MPI_BYTE, rank, (MPI_Aint)(got >> 4), sizeof copy, MPI_BYTE, win));
        OK(MPI_Win_flush(rank, win));
        CHECK(copy.value / EACH == rank);
        found[copy.value]++;
        got = copy.next;
    }
    CHECK(n == size * EACH);
    for (int i = 0; i < size * EACH; i++) CHECK(found[i] == 1);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_unlock_all(head_win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < EACH; i++) {
        OK(MPI_Win_detach(win, own[i]));
        free(own[i]);
    }
    OK(MPI_Win_free(&win));
    OK(MPI_Win_free(&head_win));
    free(found);
    return finish();
}
