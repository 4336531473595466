/* Functions that are not implemented raise an error: of files at the handler of MPI_FILE_NULL, which returns unless it is
   replaced, others at that of their communicator.
   not on peers: they have them */
#include "check.h"

static int calls, file_calls;
static void handler(MPI_Comm *comm, int *code, ...) {
    calls += *comm == MPI_COMM_WORLD && class_of(*code) == MPI_ERR_UNSUPPORTED_OPERATION;
}
static void file_handler(MPI_File *file, int *code, ...) {
    file_calls += *file == MPI_FILE_NULL && class_of(*code) == MPI_ERR_UNSUPPORTED_OPERATION;
}

int main(void) {
    MPI_Errhandler mine, of_files;
    MPI_File file;
    MPI_Comm comm;
    start();
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION,
        MPI_File_open(MPI_COMM_WORLD, "none", MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_delete("none", MPI_INFO_NULL));
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    OK(MPI_File_create_errhandler(file_handler, &of_files));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, of_files));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION,
        MPI_File_open(MPI_COMM_WORLD, "none", MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    CHECK(calls == 0 && file_calls == 1);
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION,
        MPI_Comm_spawn("none", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &comm, MPI_ERRCODES_IGNORE));
    CHECK(calls == 1 && file_calls == 1);
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&of_files));
    OK(MPI_Errhandler_free(&mine));
    return finish();
}
