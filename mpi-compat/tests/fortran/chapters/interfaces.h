! One spelling for the three interfaces: mpif.h where MPIF_H is defined, the module mpi where MPI_MODULE is, else mpi_f08.
! DELAYED marks variables that a library reads or changes after its call has returned; asynchronous ones need interfaces,
! and for flang volatile ones do.
#if defined(MPIF_H) || defined(MPI_MODULE)
#if defined(MPIF_H)
#define USE_MPI
#define INCLUDE_MPI include 'mpif.h'
#if defined(__GFORTRAN__)
#define DELAYED , volatile
#else
#define DELAYED , target
#endif
#else
#define USE_MPI use mpi
#define INCLUDE_MPI
#define DELAYED , asynchronous
#endif
#define COMM integer
#define DATATYPE integer
#define ERRHANDLER integer
#define FILE integer
#define GROUP integer
#define INFO integer
#define MESSAGE integer
#define OP integer
#define REQUEST integer
#define SESSION integer
#define WINDOW integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#define STATUSES(n) integer, dimension(MPI_STATUS_SIZE, n)
#define SOURCE_OF(s) s(MPI_SOURCE)
#define TAG_OF(s) s(MPI_TAG)
#define TAG_AT(ss, i) ss(MPI_TAG, i)
#define BUFFER_PLACE integer(MPI_ADDRESS_KIND)
#else
#define USE_MPI use mpi_f08
#define INCLUDE_MPI
#define DELAYED , asynchronous
#define COMM type(MPI_Comm)
#define DATATYPE type(MPI_Datatype)
#define ERRHANDLER type(MPI_Errhandler)
#define FILE type(MPI_File)
#define GROUP type(MPI_Group)
#define INFO type(MPI_Info)
#define MESSAGE type(MPI_Message)
#define OP type(MPI_Op)
#define REQUEST type(MPI_Request)
#define SESSION type(MPI_Session)
#define WINDOW type(MPI_Win)
#define STATUS type(MPI_Status)
#define STATUSES(n) type(MPI_Status), dimension(n)
#define SOURCE_OF(s) s%MPI_SOURCE
#define TAG_OF(s) s%MPI_TAG
#define TAG_AT(ss, i) ss(i)%MPI_TAG
#define BUFFER_PLACE type(c_ptr)
#endif
