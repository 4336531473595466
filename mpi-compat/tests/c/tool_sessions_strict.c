/* Sessions of performance variables can be made, used with all their handles, and freed; without variables no other
   handle is valid. Also after MPI_Finalize.
   not on peers: they have variables */
#include "check.h"

int main(void) {
    MPI_T_pvar_session session, other, old;
    MPI_T_pvar_handle handle;
    int provided, count;
    CHECK_T(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_session_create(&session));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_session_create(&other));
    CHECK(session != other && session != MPI_T_PVAR_SESSION_NULL);
    CHECK_T(MPI_T_ERR_INVALID_INDEX, MPI_T_pvar_handle_alloc(session, 0, NULL, &handle, &count));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    CHECK_T(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_start(session, MPI_T_PVAR_HANDLE_NULL));
    CHECK_T(MPI_T_ERR_INVALID_HANDLE, MPI_T_pvar_read(session, MPI_T_PVAR_HANDLE_NULL, &count));
    CHECK_T(MPI_T_ERR_INVALID_HANDLE, MPI_T_cvar_read(MPI_T_CVAR_HANDLE_NULL, &count));
    old = session;
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL);
    CHECK_T(MPI_T_ERR_INVALID_SESSION, MPI_T_pvar_start(old, MPI_T_PVAR_ALL_HANDLES));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_stop(other, MPI_T_PVAR_ALL_HANDLES));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_session_free(&other));
    CHECK_T(MPI_T_ERR_INVALID, MPI_T_event_get_num(NULL));
    CHECK_T(MPI_SUCCESS, MPI_T_finalize());
    start();
    OK(MPI_Finalize());
    CHECK_T(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_get_num(&count));
    CHECK(count == 0);
    CHECK_T(MPI_SUCCESS, MPI_T_finalize());
    return end();
}
