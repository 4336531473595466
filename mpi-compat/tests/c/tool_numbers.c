/* The numbers of variables, categories, events and sources are those that the calls return, and unknown names are
   errors.
   not on peers: MPICH crashes */
#include "check.h"

int main(void) {
    int provided, number = -1, at;
    CHECK_T(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK_T(MPI_SUCCESS, MPI_T_cvar_get_num(&number));
    CHECK(number >= 0);
    CHECK_T(MPI_T_ERR_INVALID_INDEX,
            MPI_T_cvar_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK_T(MPI_T_ERR_INVALID_NAME, MPI_T_cvar_get_index("no such variable", &at));
    CHECK_T(MPI_SUCCESS, MPI_T_pvar_get_num(&number));
    CHECK(number >= 0);
    CHECK_T(MPI_T_ERR_INVALID_INDEX, MPI_T_pvar_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                                         NULL, NULL, NULL));
    CHECK_T(MPI_T_ERR_INVALID_NAME, MPI_T_pvar_get_index("no such variable", MPI_T_PVAR_CLASS_COUNTER, &at));
    CHECK_T(MPI_SUCCESS, MPI_T_category_get_num(&number));
    CHECK(number >= 0);
    CHECK_T(MPI_T_ERR_INVALID_INDEX, MPI_T_category_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK_T(MPI_T_ERR_INVALID_NAME, MPI_T_category_get_index("no such category", &at));
    CHECK_T(MPI_SUCCESS, MPI_T_event_get_num(&number));
    CHECK(number >= 0);
    CHECK_T(MPI_SUCCESS, MPI_T_source_get_num(&number));
    CHECK(number >= 0);
    CHECK_T(MPI_SUCCESS, MPI_T_category_changed(&number));
    CHECK_T(MPI_SUCCESS, MPI_T_finalize());
    return end();
}
