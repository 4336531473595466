/* The error classes of wrong arguments of sends, receives and probes. */
#include "check.h"

int main(void) {
    int value = 0, flag;
    MPI_Request request;
    MPI_Status status;
    MPI_Datatype type;
    start();
    FAILS(MPI_ERR_COMM, MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL));
    FAILS(MPI_ERR_COUNT, MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_TYPE, MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_RANK, MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_RANK, MPI_Send(&value, 1, MPI_INT, -5, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_RANK, MPI_Send(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_TAG, MPI_Send(&value, 1, MPI_INT, 0, -1, MPI_COMM_SELF));
    FAILS(MPI_ERR_TAG, MPI_Isend(&value, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_BUFFER, MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_COUNT, MPI_Recv(&value, -2, MPI_INT, 0, 0, MPI_COMM_SELF, &status));
    FAILS(MPI_ERR_RANK, MPI_Recv(&value, 1, MPI_INT, 4, 0, MPI_COMM_SELF, &status));
    FAILS(MPI_ERR_TAG, MPI_Irecv(&value, 1, MPI_INT, 0, -7, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_TYPE, MPI_Irecv(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_BUFFER, MPI_Recv(NULL, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &status));
    FAILS(MPI_ERR_RANK, MPI_Probe(9, 0, MPI_COMM_SELF, &status));
    FAILS(MPI_ERR_TAG, MPI_Iprobe(0, -9, MPI_COMM_SELF, &flag, &status));
    FAILS(MPI_ERR_RANK, MPI_Send_init(&value, 1, MPI_INT, 3, 0, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_TAG, MPI_Sendrecv(&value, 1, MPI_INT, 0, -4, &flag, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &status));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    FAILS(MPI_ERR_TYPE, MPI_Send(&value, 1, type, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_TYPE, MPI_Recv(&value, 1, type, 0, 0, MPI_COMM_SELF, &status));
    OK(MPI_Type_free(&type));
    return finish();
}
