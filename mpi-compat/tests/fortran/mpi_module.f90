! The module mpi: handles as integers, statuses as arrays, sections, both forms of returned memory, PMPI.
! ranks 2 3
program module_mpi
  use mpi
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: rank, size, ierror, i, n, wrong = 0, requests(2), statuses(MPI_STATUS_SIZE, 2), status(MPI_STATUS_SIZE)
  integer :: window, comm, op, type, key, errhandler
  integer(MPI_ADDRESS_KIND) :: base, value
  integer, pointer :: memory(:)
  type(c_ptr) :: place
  double precision :: m(6, 6), x(6), since
  character(len=8) :: letters
  logical :: flag
  external :: largest, ignore
  integer :: ignored
  common /seen/ ignored

  ignored = 0
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call PMPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  since = MPI_Wtime()
  call check(since > 0 .and. MPI_Wtick() > 0, 'clock')
  m = reshape([(dble(i), i = 1, 36)], [6, 6])
  if (rank == 0) then
    call MPI_Send(m(4, :), 6, MPI_DOUBLE_PRECISION, 1, 1, MPI_COMM_WORLD, ierror)
    call MPI_Isend(m(1:6:5, 1:6:5), 4, MPI_DOUBLE_PRECISION, 1, 2, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Isend('letters!', 8, MPI_CHARACTER, 1, 3, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
  else if (rank == 1) then
    call MPI_Recv(x, 6, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_WORLD, status, ierror)
    call check(status(MPI_SOURCE) == 0 .and. status(MPI_TAG) == 1 .and. all(x == m(4, :)), 'a row')
    call MPI_Irecv(m(2:3, 2:3), 4, MPI_DOUBLE_PRECISION, 0, 2, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Irecv(letters, 8, MPI_CHARACTER, 0, 3, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Waitall(2, requests, statuses, ierror)
    call check(all(m(2:3, 2:3) == reshape([1d0, 6d0, 31d0, 36d0], [2, 2])), 'corners')
    call check(letters == 'letters!' .and. statuses(MPI_TAG, 2) == 3, 'letters')
  end if
  call MPI_Op_create(largest, .true., op, ierror)
  n = rank
  call MPI_Allreduce(MPI_IN_PLACE, n, 1, MPI_INTEGER, op, MPI_COMM_WORLD, ierror)
  call check(n == size - 1, 'operator')
  call MPI_Op_free(op, ierror)
  call MPI_Win_allocate(8_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, place, window, ierror)
  call c_f_pointer(place, memory, [2])
  call MPI_Win_get_attr(window, MPI_WIN_BASE, value, flag, ierror)
  call check(flag .and. value == transfer(place, value), 'base')
  memory = 0
  call MPI_Win_fence(0, window, ierror)
  call MPI_Put(rank + 1, 1, MPI_INTEGER, mod(rank + 1, size), 1_MPI_ADDRESS_KIND, 1, MPI_INTEGER, window, ierror)
  call MPI_Win_fence(0, window, ierror)
  call check(memory(2) == mod(rank + size - 1, size) + 1 .and. memory(1) == 0, 'put')
  call MPI_Win_free(window, ierror)
  call MPI_Alloc_mem(64_MPI_ADDRESS_KIND, MPI_INFO_NULL, base, ierror)
  call check(base /= 0, 'memory as a number')
  call MPI_Alloc_mem(64_MPI_ADDRESS_KIND, MPI_INFO_NULL, place, ierror)
  call c_f_pointer(place, memory, [16])
  memory = 5
  call MPI_Free_mem(memory, ierror)
  call MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, key, 0, ierror)
  call MPI_Attr_put(MPI_COMM_SELF, key, -3, ierror)
  call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
  call MPI_Attr_get(comm, key, n, flag, ierror)
  call check(flag .and. n == -3, 'an old attribute')
  call MPI_Comm_free(comm, ierror)
  call MPI_Comm_create_errhandler(ignore, errhandler, ierror)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler, ierror)
  call MPI_Send(n, -1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, ierror)
  call check(ignored == 1, 'handler')
  call MPI_Error_class(MPI_ERR_COUNT, n, ierror)
  call check(n == MPI_ERR_COUNT, 'class of an error')
  call MPI_Type_vector(2, 1, 3, MPI_INTEGER, type, ierror)
  call MPI_Type_commit(type, ierror)
  call MPI_Type_size(type, n, ierror)
  call check(n == 8, 'size')
  call MPI_Type_free(type, ierror)
  call check(type == MPI_DATATYPE_NULL, 'freed')
  call MPI_Sizeof(m, n, ierror)
  call check(n == 8, 'sizeof')
  if (wrong == 0) print '(a, i0)', 'module of rank ', rank
  call MPI_Finalize(ierror)
contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) print *, 'FAILED ', rank, what
    if (.not. good) wrong = wrong + 1
  end subroutine
end program

subroutine largest(in, inout, n, datatype)
  integer :: n, datatype, in(n), inout(n)
  inout = max(in, inout)
end subroutine

subroutine ignore(comm, error)
  integer :: comm, error, ignored
  common /seen/ ignored
  ignored = ignored + 1
end subroutine
