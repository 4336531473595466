/* A handle converts to an integer and back; predefined ones are their constants, and all others are greater. */
#include "check.h"

int main(void) {
    MPI_Datatype type;
    MPI_Group group;
    MPI_Info info;
    MPI_Op op;
    MPI_Errhandler handler;
    start();
    CHECK(MPI_Comm_toint(MPI_COMM_WORLD) == 0x101 && MPI_Comm_fromint(0x101) == MPI_COMM_WORLD);
    CHECK(MPI_Type_toint(MPI_INT) == (int)(intptr_t)MPI_INT && MPI_Type_fromint(MPI_Type_toint(MPI_INT)) == MPI_INT);
    CHECK(MPI_Op_fromint(MPI_Op_toint(MPI_SUM)) == MPI_SUM);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_NULL)) == MPI_COMM_NULL);
    CHECK(MPI_Request_fromint(MPI_Request_toint(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);
    CHECK(MPI_File_fromint(MPI_File_toint(MPI_FILE_NULL)) == MPI_FILE_NULL);
    CHECK(MPI_Message_fromint(MPI_Message_toint(MPI_MESSAGE_NO_PROC)) == MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Session_fromint(MPI_Session_toint(MPI_SESSION_NULL)) == MPI_SESSION_NULL);
    CHECK(MPI_Win_fromint(MPI_Win_toint(MPI_WIN_NULL)) == MPI_WIN_NULL);
    CHECK(MPI_Errhandler_fromint(MPI_Errhandler_toint(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN);

    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
    OK(MPI_Info_create(&info));
    CHECK(MPI_Type_fromint(MPI_Type_toint(type)) == type);
    CHECK(MPI_Group_fromint(MPI_Group_toint(group)) == group);
    CHECK(MPI_Info_fromint(MPI_Info_toint(info)) == info);
    CHECK((uintptr_t)type > 4095 && (uintptr_t)info > 4095);
    OK(MPI_Type_free(&type));
    OK(MPI_Group_free(&group));
    OK(MPI_Info_free(&info));
    (void)op, (void)handler;
    return finish();
}
