/* A duplicate has the same group, another context, the attributes that the callbacks copy, and the error handler, but
   no name.
   ranks 1 2 4 */
#include "check.h"

static int copied, deleted;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key;
    CHECK(extra == &copied);
    copied++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}

int main(void) {
    MPI_Comm dup, again;
    MPI_Errhandler handler;
    MPI_Info info;
    int rank, size, result, flag, key, other, n, sum;
    char name[MPI_MAX_OBJECT_NAME], *value, base[4];
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_create_keyval(copy, delete, &key, &copied));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &other, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, base));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, other, base));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    CHECK(copied == 1);
    OK(MPI_Comm_compare(MPI_COMM_WORLD, dup, &result));
    CHECK(result == MPI_CONGRUENT);
    OK(MPI_Comm_get_attr(dup, key, &value, &flag));
    CHECK(flag && value == base + 1);
    OK(MPI_Comm_get_attr(dup, other, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_get_name(dup, name, &n));
    CHECK(n == 0);
    OK(MPI_Comm_get_errhandler(dup, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    OK(MPI_Errhandler_free(&handler));
    /* Collectives of the two are separate. */
    for (int i = 0; i < 50; i++) {
        MPI_Comm comm = i % 3 ? dup : MPI_COMM_WORLD;
        int one = i + rank;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == size * i + size * (size - 1) / 2);
    }
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "a", "b"));
    OK(MPI_Comm_dup_with_info(dup, info, &again));
    OK(MPI_Info_free(&info));
    CHECK(copied == 2);
    OK(MPI_Comm_get_attr(again, key, &value, &flag));
    CHECK(flag && value == base + 2);
    OK(MPI_Comm_free(&dup));
    CHECK(dup == MPI_COMM_NULL && deleted == 1);
    OK(MPI_Barrier(again));
    OK(MPI_Comm_disconnect(&again));
    CHECK(again == MPI_COMM_NULL && deleted == 2);
    OK(MPI_Comm_dup(MPI_COMM_SELF, &dup));
    OK(MPI_Comm_size(dup, &n));
    CHECK(n == 1);
    OK(MPI_Comm_free(&dup));
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    return finish();
}
