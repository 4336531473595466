/* The requested thread level is in the info of the session. */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Info info, used;
    char value[64] = "";
    int len = sizeof value, flag = 0;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    OK(MPI_Info_free(&info));
    OK(MPI_Session_get_info(session, &used));
    OK(MPI_Info_get_string(used, "thread_level", &len, value, &flag));
    CHECK(flag && strcmp(value, "MPI_THREAD_MULTIPLE") == 0);
    OK(MPI_Info_free(&used));
    OK(MPI_Session_finalize(&session));
    return end();
}
