/* The granted thread level is at least the requested one, and can be queried. */
#include "check.h"

int main(void) {
    int provided = -1, level = -1, main_thread = 0;
    OK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_Query_thread(&level));
    CHECK(level == provided);
    OK(MPI_Is_thread_main(&main_thread));
    CHECK(main_thread);
    CHECK(MPI_THREAD_SINGLE < MPI_THREAD_FUNNELED && MPI_THREAD_FUNNELED < MPI_THREAD_SERIALIZED);
    CHECK(MPI_THREAD_SERIALIZED < MPI_THREAD_MULTIPLE);
    return finish();
}
