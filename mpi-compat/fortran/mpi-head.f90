integer, parameter :: MPI_STATUS_SIZE = 8
integer, parameter :: MPI_ADDRESS_KIND = 8, MPI_COUNT_KIND = 8, MPI_OFFSET_KIND = 8, MPI_INTEGER_KIND = 4
integer(MPI_OFFSET_KIND), parameter :: MPI_DISPLACEMENT_CURRENT = -1
logical, parameter :: MPI_SUBARRAYS_SUPPORTED = .true.
logical, parameter :: MPI_ASYNC_PROTECTS_NONBLOCKING = .true.
integer :: MPI_BOTTOM, MPI_IN_PLACE, MPI_BUFFER_AUTOMATIC
integer :: MPI_UNWEIGHTED(1), MPI_WEIGHTS_EMPTY(1), MPI_ERRCODES_IGNORE(1)
common /mpifort_fixed/ MPI_BOTTOM, MPI_IN_PLACE, MPI_BUFFER_AUTOMATIC, MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY, MPI_ERRCODES_IGNORE
common /mpifort_fixed/ MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE
character(1) :: MPI_ARGV_NULL(1), MPI_ARGVS_NULL(1, 1)
common /mpifort_text/ MPI_ARGV_NULL, MPI_ARGVS_NULL
save :: /mpifort_fixed/, /mpifort_text/
integer, parameter :: MPI_SOURCE = 1, MPI_TAG = 2, MPI_ERROR = 3
integer :: MPI_STATUS_IGNORE(MPI_STATUS_SIZE), MPI_STATUSES_IGNORE(MPI_STATUS_SIZE, 1)
external :: MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, MPI_DUP_FN
external :: MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, MPI_COMM_DUP_FN
external :: MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, MPI_TYPE_DUP_FN
external :: MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, MPI_WIN_DUP_FN
external :: MPI_CONVERSION_FN_NULL
interface
  subroutine MPI_Sizeof(x, size, ierror) bind(C, name="mpi_sizeof_f08ts_")
    type(*), dimension(..), intent(in) :: x
    integer, intent(out) :: size, ierror
  end subroutine MPI_Sizeof
  subroutine MPI_F_sync_reg(buf) bind(C, name="mpi_f_sync_reg_f08ts_")
    type(*), dimension(..), asynchronous :: buf
  end subroutine MPI_F_sync_reg
end interface
