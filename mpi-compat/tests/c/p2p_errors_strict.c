/* Errors name function, argument and value; a wrong call has no other effect.
   not on peers: texts are each library's own */
#include "check.h"

static void says(int code, const char *text) {
    char message[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(code, message, &len);
    if (strstr(message, text) == NULL) {
        failures++;
        printf("FAILED: \"%s\" does not say \"%s\"\n", message, text);
    }
}

int main(void) {
    int value = 0, got;
    MPI_Request request;
    MPI_Message message = MPI_MESSAGE_NULL;
    start();
    says(MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_SELF), "MPI_Send: dest is 1, but there are 1 ranks, from 0 to 0");
    says(MPI_Recv(&value, 1, MPI_INT, -9, 0, MPI_COMM_SELF, NULL), "MPI_Recv: source is -9");
    says(MPI_Isend(&value, -3, MPI_INT, 0, 0, MPI_COMM_SELF, &request), "MPI_Isend: count is -3");
    says(MPI_Irecv(NULL, 3, MPI_INT, 0, 0, MPI_COMM_SELF, &request), "MPI_Irecv: buf is a null pointer");
    says(MPI_Sendrecv(&value, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, -4, MPI_COMM_SELF, NULL), "recvtag is -4");
    says(MPI_Sendrecv(MPI_IN_PLACE, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, NULL), "sendbuf is MPI_IN_PLACE");
    says(MPI_Isend(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, NULL), "MPI_Isend: request is a null pointer");
    says(MPI_Mrecv(&value, 1, MPI_INT, &message, NULL), "message");
    FAILS(MPI_ERR_REQUEST, MPI_Mrecv(&value, 1, MPI_INT, &message, NULL));
    FAILS(MPI_ERR_REQUEST, MPI_Mrecv(&value, 1, MPI_INT, NULL, NULL) == MPI_SUCCESS ? 0 : MPI_ERR_REQUEST);
    OK(MPI_Isend(&value, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &request));
    int code = MPI_Recv(&got, 0, MPI_INT, 0, 3, MPI_COMM_SELF, NULL);
    says(code, "MPI_Recv: a message from rank 0 with tag 3 has 4 bytes, but the receive buffer has 0");
    OK(MPI_Wait(&request, NULL));
    return finish();
}
