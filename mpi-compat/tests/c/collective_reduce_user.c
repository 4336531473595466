/* User-defined operators that do not commute combine the ranks in order, also on a datatype with gaps, which stay
   unchanged, and on one whose elements interleave.
   ranks 1 2 3 5 */
#include "check.h"

/* x -> a x + b modulo 1009: composition is associative and does not commute. */
struct map { int a, gap, b; };

static struct map then(struct map f, struct map g) {
    return (struct map){f.a * g.a % 1009, -1, (f.b * g.a + g.b) % 1009};
}

static void compose(void *in, void *inout, int *length, MPI_Datatype *type) {
    MPI_Aint lb, extent;
    MPI_Type_get_extent(*type, &lb, &extent);
    for (int i = 0; i < *length; i++) {
        struct map *f = (struct map *)((char *)in + i * extent), *g = (struct map *)((char *)inout + i * extent);
        struct map h = then(*f, *g);
        g->a = h.a;
        g->b = h.b;
    }
}

/* Elements of two ints, two apart, one int from one to the next. */
static void add_and_multiply(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *length; i++) {
        int *a = (int *)in + i, *b = (int *)inout + i;
        b[0] += a[0];
        b[2] *= a[2];
    }
}

static struct map mine(int rank, int i) { return (struct map){2 + rank + i, -1, 5 * rank + 3 * i + 1}; }

enum { N = 500 };

int main(void) {
    int rank, size, blocks[] = {1, 1};
    MPI_Aint at[] = {0, 8};
    MPI_Op op, two;
    MPI_Datatype type, interleaved, part;
    static struct map from[8 * N], to[8 * N];
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_create_hindexed(2, blocks, at, MPI_INT, &type);
    OK(MPI_Type_commit(&type));
    OK(MPI_Op_create(compose, 0, &op));
    for (int n = 0; n <= N; n = n == 0 ? 1 : n * 5 % 1249) {
        for (int in_place = 0; in_place < 2; in_place++) {
            for (int what = 0; what < 5 + size; what++) {
                int last = what == 1 ? rank : what == 2 ? rank - 1 : size - 1, first = 0, len = n;
                for (int i = 0; i < n * size; i++) {
                    from[i] = mine(rank, i % n);
                    to[i] = in_place ? from[i] : (struct map){-5, -5, -5};
                    to[i].gap = -7;
                }
                const void *send = in_place ? MPI_IN_PLACE : from;
                if (what == 0) OK(MPI_Allreduce(send, to, n, type, op, MPI_COMM_WORLD));
                if (what == 1) OK(MPI_Scan(send, to, n, type, op, MPI_COMM_WORLD));
                if (what == 2) OK(MPI_Exscan(send, to, n, type, op, MPI_COMM_WORLD));
                if (what == 3) OK(MPI_Reduce_scatter_block(send, to, n, type, op, MPI_COMM_WORLD));
                if (what == 4) {
                    int counts[8];
                    for (int i = 0; i < size; i++) counts[i] = i == 1 ? 0 : i == 0 && size > 1 ? 2 * n : n;
                    OK(MPI_Reduce_scatter(send, to, counts, type, op, MPI_COMM_WORLD));
                    len = counts[rank];
                }
                if (what >= 5) {
                    send = in_place && rank == what - 5 ? MPI_IN_PLACE : from;
                    OK(MPI_Reduce(send, to, n, type, op, what - 5, MPI_COMM_WORLD));
                    if (rank != what - 5) continue;
                }
                for (int i = 0; i < len; i++) {
                    struct map sum = mine(first, i % n);
                    for (int r = first + 1; r <= last; r++) sum = then(sum, mine(r, i % n));
                    if (last < first) break;
                    if (to[i].a != sum.a || to[i].b != sum.b || to[i].gap != -7) {
                        printf("FAILED operation %d of %d at %d: %d %d, not %d %d; %d\n", what, n, i, to[i].a, to[i].b, sum.a,
                               sum.b, to[i].gap);
                        failures++;
                        break;
                    }
                }
                if (what == 2 && rank == 0 && n > 0) CHECK(to[0].a == (in_place ? 2 : -5) && to[0].gap == -7);
            }
        }
    }
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&type));

    int a[4] = {1, 2, 3, 4}, b[4] = {-1, -1, -1, -1};
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &part));
    OK(MPI_Type_create_resized(part, 0, sizeof(int), &interleaved));
    OK(MPI_Type_commit(&interleaved));
    OK(MPI_Op_create(add_and_multiply, 0, &two));
    OK(MPI_Allreduce(a, b, 1, interleaved, two, MPI_COMM_WORLD));
    int product = 1;
    for (int i = 0; i < size; i++) product *= 3;
    CHECK(b[0] == size && b[1] == -1 && b[2] == product && b[3] == -1);
    OK(MPI_Op_free(&two));
    OK(MPI_Type_free(&part));
    OK(MPI_Type_free(&interleaved));
    return finish();
}
