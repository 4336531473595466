/* The use of a freed handle is detected, also after another object has taken its place.
   not on peers: it is wrong in a way that a library need not notice */
#include "check.h"

int main(void) {
    MPI_Datatype type, old, other;
    MPI_Group group, old_group;
    MPI_Info info, old_info;
    int n;
    start();
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    old = type;
    OK(MPI_Type_free(&type));
    FAILS(MPI_ERR_TYPE, MPI_Type_size(old, &n));
    OK(MPI_Type_contiguous(4, MPI_INT, &other));
    FAILS(MPI_ERR_TYPE, MPI_Type_size(old, &n));
    type = old;
    FAILS(MPI_ERR_TYPE, MPI_Type_free(&type));
    OK(MPI_Type_free(&other));

    OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
    old_group = group;
    OK(MPI_Group_free(&group));
    FAILS(MPI_ERR_GROUP, MPI_Group_size(old_group, &n));
    OK(MPI_Info_create(&info));
    old_info = info;
    OK(MPI_Info_free(&info));
    FAILS(MPI_ERR_INFO, MPI_Info_get_nkeys(old_info, &n));

    /* A request, of a receive that the call completes at once, also after another has taken its place. */
    MPI_Request request, old_request;
    for (int i = 0; i < 3; i++) {
        int from = i, into = -1;
        OK(MPI_Irecv(&into, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
        if (i > 0) CHECK(request != old_request);
        if (i > 0) FAILS(MPI_ERR_REQUEST, MPI_Wait(&old_request, MPI_STATUS_IGNORE));
        OK(MPI_Send(&from, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
        old_request = request;
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(into == i && request == MPI_REQUEST_NULL);
        FAILS(MPI_ERR_REQUEST, MPI_Test(&old_request, &n, MPI_STATUS_IGNORE));
        FAILS(MPI_ERR_REQUEST, MPI_Cancel(&old_request));
        FAILS(MPI_ERR_REQUEST, MPI_Waitall(1, &old_request, MPI_STATUSES_IGNORE));
    }

    /* Handles of another kind, uninitialized, invented. */
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    FAILS(MPI_ERR_COMM, MPI_Comm_size((MPI_Comm)type, &n));
    FAILS(MPI_ERR_COMM, MPI_Comm_size((MPI_Comm)MPI_INT, &n));
    FAILS(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype)0, &n));
    FAILS(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype)0x2ff, &n));
    FAILS(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype)123456789, &n));
    FAILS(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype)-1, &n));
    OK(MPI_Type_free(&type));
    return finish();
}
