/* Declares the functions that MPI-3.0 removed, if the header does not: other headers of the ABI omit them, and the
   libraries still export them. */
#ifndef REMOVED_H
#define REMOVED_H

#include "check.h"

#ifdef FARSIDE_MPI_H
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#else
int MPI_Address(void *, MPI_Aint *);
int MPI_Errhandler_create(MPI_Comm_errhandler_function *, MPI_Errhandler *);
int MPI_Errhandler_get(MPI_Comm, MPI_Errhandler *);
int MPI_Errhandler_set(MPI_Comm, MPI_Errhandler);
int MPI_Type_extent(MPI_Datatype, MPI_Aint *);
int MPI_Type_hindexed(int, int *, MPI_Aint *, MPI_Datatype, MPI_Datatype *);
int MPI_Type_hvector(int, int, MPI_Aint, MPI_Datatype, MPI_Datatype *);
int MPI_Type_lb(MPI_Datatype, MPI_Aint *);
int MPI_Type_struct(int, int *, MPI_Aint *, MPI_Datatype *, MPI_Datatype *);
int MPI_Type_ub(MPI_Datatype, MPI_Aint *);
#endif

#endif
