/* Reduce and allreduce with predefined operators: every root, in place and not, long vectors, pairs.
   ranks 1 2 3 4 */
#include "check.h"

enum { LONG = 20000 };

struct pair { double value; int at; };

int main(void) {
    int rank, size, lengths[] = {1, 3, LONG};
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int l = 0; l < COUNT(lengths); l++) {
        int n = lengths[l];
        int64_t *from = malloc(n * sizeof *from), *to = malloc(n * sizeof *to);
        for (int root = -1; root < size; root++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                int has = root < 0 || rank == root, right = 1;
                for (int i = 0; i < n; i++) from[i] = rank + i, to[i] = in_place ? rank + i : -1;
                const void *send = in_place && has ? MPI_IN_PLACE : from;
                if (root < 0) OK(MPI_Allreduce(send, to, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
                else OK(MPI_Reduce(send, has ? to : NULL, n, MPI_INT64_T, MPI_SUM, root, MPI_COMM_WORLD));
                for (int i = 0; has && i < n; i++) right &= to[i] == size * (size - 1) / 2 + (int64_t)size * i;
                for (int i = 0; i < n; i++) right &= from[i] == rank + i;
                CHECK(right);
            }
        }
        free(from);
        free(to);
    }
    struct pair mine[2] = {{rank % 2, rank}, {-rank, 10 + rank}}, least[2], most[2];
    OK(MPI_Allreduce(mine, least, 2, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
    OK(MPI_Allreduce(mine, most, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    CHECK(least[0].value == 0 && least[0].at == 0 && least[1].value == 1 - size && least[1].at == 9 + size);
    CHECK(most[0].value == (size > 1) && most[0].at == (size > 1) && most[1].value == 0 && most[1].at == 10);
    unsigned char bits = 1 << rank, all = 0;
    OK(MPI_Allreduce(&bits, &all, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
    CHECK(all == (1 << size) - 1);
    float f = rank + 1, product = 0;
    OK(MPI_Allreduce(&f, &product, 1, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD));
    for (int i = 1; i <= size; i++) product /= i;
    CHECK(product == 1);
    int yes = rank == 0, and, or;
    OK(MPI_Allreduce(&yes, &and, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
    OK(MPI_Allreduce(&yes, &or, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    CHECK(and == (size == 1) && or == 1);
    OK(MPI_Allreduce(&yes, &or, 0, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    return finish();
}
