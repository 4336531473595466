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
type, bind(C) :: MPI_Status
  integer :: MPI_SOURCE, MPI_TAG, MPI_ERROR
  integer, private :: internal(5)
end type MPI_Status
integer, parameter :: MPI_SOURCE = 1, MPI_TAG = 2, MPI_ERROR = 3
type(MPI_Status) :: MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE(1)
abstract interface
  subroutine MPI_User_function(invec, inoutvec, len, datatype)
    import
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
  end subroutine
  subroutine MPI_User_function_c(invec, inoutvec, len, datatype)
    import
    type(c_ptr), value :: invec, inoutvec
    integer(MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
  end subroutine
  subroutine MPI_Comm_copy_attr_function(old, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    import
    type(MPI_Comm) :: old
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
  end subroutine
  subroutine MPI_Comm_delete_attr_function(comm, keyval, attribute_val, extra_state, ierror)
    import
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
  end subroutine
  subroutine MPI_Type_copy_attr_function(old, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    import
    type(MPI_Datatype) :: old
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
  end subroutine
  subroutine MPI_Type_delete_attr_function(datatype, keyval, attribute_val, extra_state, ierror)
    import
    type(MPI_Datatype) :: datatype
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
  end subroutine
  subroutine MPI_Win_copy_attr_function(old, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    import
    type(MPI_Win) :: old
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
  end subroutine
  subroutine MPI_Win_delete_attr_function(win, keyval, attribute_val, extra_state, ierror)
    import
    type(MPI_Win) :: win
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
  end subroutine
  subroutine MPI_Comm_errhandler_function(comm, error_code)
    import
    type(MPI_Comm) :: comm
    integer :: error_code
  end subroutine
  subroutine MPI_Win_errhandler_function(win, error_code)
    import
    type(MPI_Win) :: win
    integer :: error_code
  end subroutine
  subroutine MPI_File_errhandler_function(file, error_code)
    import
    type(MPI_File) :: file
    integer :: error_code
  end subroutine
  subroutine MPI_Session_errhandler_function(session, error_code)
    import
    type(MPI_Session) :: session
    integer :: error_code
  end subroutine
  subroutine MPI_Grequest_query_function(extra_state, status, ierror)
    import
    integer(MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
  end subroutine
  subroutine MPI_Grequest_free_function(extra_state, ierror)
    import
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
  end subroutine
  subroutine MPI_Grequest_cancel_function(extra_state, complete, ierror)
    import
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
  end subroutine
  subroutine MPI_Datarep_extent_function(datatype, extent, extra_state, ierror)
    import
    type(MPI_Datatype) :: datatype
    integer(MPI_ADDRESS_KIND) :: extent, extra_state
    integer :: ierror
  end subroutine
  subroutine MPI_Datarep_conversion_function(userbuf, datatype, count, filebuf, position, extra_state, ierror)
    import
    type(c_ptr), value :: userbuf, filebuf
    type(MPI_Datatype) :: datatype
    integer :: count
    integer :: ierror
    integer(MPI_OFFSET_KIND) :: position
    integer(MPI_ADDRESS_KIND) :: extra_state
  end subroutine
  subroutine MPI_Datarep_conversion_function_c(userbuf, datatype, count, filebuf, position, extra_state, ierror)
    import
    type(c_ptr), value :: userbuf, filebuf
    type(MPI_Datatype) :: datatype
    integer(MPI_COUNT_KIND) :: count
    integer :: ierror
    integer(MPI_OFFSET_KIND) :: position
    integer(MPI_ADDRESS_KIND) :: extra_state
  end subroutine
end interface
procedure(MPI_Comm_copy_attr_function) :: MPI_COMM_NULL_COPY_FN, MPI_COMM_DUP_FN
procedure(MPI_Comm_delete_attr_function) :: MPI_COMM_NULL_DELETE_FN
procedure(MPI_Type_copy_attr_function) :: MPI_TYPE_NULL_COPY_FN, MPI_TYPE_DUP_FN
procedure(MPI_Type_delete_attr_function) :: MPI_TYPE_NULL_DELETE_FN
procedure(MPI_Win_copy_attr_function) :: MPI_WIN_NULL_COPY_FN, MPI_WIN_DUP_FN
procedure(MPI_Win_delete_attr_function) :: MPI_WIN_NULL_DELETE_FN
procedure(MPI_Datarep_conversion_function) :: MPI_CONVERSION_FN_NULL
procedure(MPI_Datarep_conversion_function_c) :: MPI_CONVERSION_FN_NULL_C
interface
  subroutine MPI_Sizeof(x, size, ierror) bind(C, name="mpi_sizeof_f08ts_")
    type(*), dimension(..), intent(in) :: x
    integer, intent(out) :: size
    integer, optional, intent(out) :: ierror
  end subroutine MPI_Sizeof
  subroutine MPI_F_sync_reg(buf) bind(C, name="mpi_f_sync_reg_f08ts_")
    type(*), dimension(..), asynchronous :: buf
  end subroutine MPI_F_sync_reg
  subroutine MPI_Status_f2f08(f_status, f08_status, ierror) bind(C, name="mpi_status_f2f08_")
    import
    integer, intent(in) :: f_status(MPI_STATUS_SIZE)
    type(MPI_Status), intent(out) :: f08_status
    integer, optional, intent(out) :: ierror
  end subroutine MPI_Status_f2f08
  subroutine MPI_Status_f082f(f08_status, f_status, ierror) bind(C, name="mpi_status_f082f_")
    import
    type(MPI_Status), intent(in) :: f08_status
    integer, intent(out) :: f_status(MPI_STATUS_SIZE)
    integer, optional, intent(out) :: ierror
  end subroutine MPI_Status_f082f
end interface
