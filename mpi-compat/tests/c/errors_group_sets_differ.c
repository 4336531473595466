/* Ranks that give groups of different members with the same first rank of the job get an error. A rank that the others
   leave out gets it when they come to the end.
   ranks 2 3
   not on peers: an erroneous program, whose ranks wait forever */
#include "check.h"

int main(void) {
    MPI_Group all, pair, alone;
    MPI_Comm comm;
    char text[MPI_MAX_ERROR_STRING];
    int size, me, length;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    OK(MPI_Group_incl(all, 2, (int[]){0, size - 1}, &pair));
    OK(MPI_Group_incl(all, 1, &me, &alone));
    for (int round = 0; round < 2; round++) {
        /* The last rank omits one. */
        MPI_Group given = me == 2 ? pair : all;
        if (size > 2) {
            int code = MPI_Comm_create_from_group(given, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
            CHECK(class_of(code) == MPI_ERR_GROUP);
            MPI_Error_string(code, text, &length);
            CHECK(me > 0 || strstr(text, "rank 2 of the job passes another group"));
            FAILS(MPI_ERR_GROUP, MPI_Comm_create_group(MPI_COMM_WORLD, given, 5, &comm));
        }
        OK(MPI_Comm_create_from_group(all, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        OK(MPI_Barrier(comm));
        OK(MPI_Comm_free(&comm));
    }
    if (me == 0)
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Comm_create_from_group(all, "u", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    else
        OK(MPI_Comm_create_from_group(alone, "u", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MPI_Group_free(&all);
    MPI_Group_free(&pair);
    MPI_Group_free(&alone);
    return finish();
}
