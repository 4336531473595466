/* Handlers are made for one kind of object; predefined ones fit all. */
#include "check.h"

static void for_windows(MPI_Win *win, int *code, ...) { (void)win, (void)code; }
static void for_files(MPI_File *file, int *code, ...) { (void)file, (void)code; }
static void for_sessions(MPI_Session *session, int *code, ...) { (void)session, (void)code; }

int main(void) {
    MPI_Errhandler windows, files, sessions, found;
    start();
    OK(MPI_Win_create_errhandler(for_windows, &windows));
    OK(MPI_File_create_errhandler(for_files, &files));
    OK(MPI_Session_create_errhandler(for_sessions, &sessions));
    CHECK(windows != files && files != sessions && sessions != windows);
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRHANDLER_NULL) != MPI_SUCCESS);

    /* The handler of files that are opened later is that of MPI_FILE_NULL. */
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &found));
    CHECK(found == MPI_ERRORS_RETURN);
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, files));
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &found));
    CHECK(found == files);
    OK(MPI_Errhandler_free(&found));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&windows));
    OK(MPI_Errhandler_free(&files));
    OK(MPI_Errhandler_free(&sessions));
    return finish();
}
