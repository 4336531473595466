/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF, last one first, while MPI can still be used. */
#include "check.h"

static int deleted;

static int delete_attribute(MPI_Comm comm, int keyval, void *value, void *extra) {
    int finalized = -1, size = 0;
    (void)keyval, (void)extra;
    OK(MPI_Finalized(&finalized));
    CHECK(!finalized && comm == MPI_COMM_SELF);
    OK(MPI_Comm_size(comm, &size));
    CHECK(size == 1);
    CHECK((intptr_t)value == 2 - deleted);
    deleted++;
    return MPI_SUCCESS;
}

int main(void) {
    int keys[3];
    start();
    for (intptr_t i = 0; i < 3; i++) {
        OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, &keys[i], NULL));
        OK(MPI_Comm_set_attr(MPI_COMM_SELF, keys[i], (void *)i));
    }
    MPI_Finalize();
    CHECK(deleted == 3);
    printf("%s\n", failures ? "failed" : "passed");
    return failures != 0;
}
