/* A handler for another kind of object is refused.
   not on peers: MPICH does not look at this */
#include "check.h"

static void for_windows(MPI_Win *win, int *code, ...) { (void)win, (void)code; }
static void for_files(MPI_File *file, int *code, ...) { (void)file, (void)code; }

int main(void) {
    MPI_Errhandler windows, files;
    start();
    OK(MPI_Win_create_errhandler(for_windows, &windows));
    OK(MPI_File_create_errhandler(for_files, &files));
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, windows) != MPI_SUCCESS);
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, files) != MPI_SUCCESS);
    return finish();
}
