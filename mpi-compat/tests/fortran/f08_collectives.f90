! Chapter 6 with mpi_f08: in place, operators of the program, sections, alltoallw, calls that do not block.
! ranks 1 2 4
program collectives
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: rank, size, i, n, wrong = 0
  integer, allocatable :: all_(:), counts(:), places(:), block(:), back(:)
  type(MPI_Datatype), allocatable :: types(:)
  integer :: v(4), total(4), matrix(4, 8), sums(8)
  real :: a(3, 4)
  type(MPI_Op) :: op
  type(MPI_Request) :: request
  logical :: commutes

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  allocate (all_(size), counts(size), places(size), types(size), block(2 * size), back(2 * size))
  n = size * (size + 1) / 2
  v = rank + 1
  call MPI_Allreduce(MPI_IN_PLACE, v, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call check(all(v == n), 'in place')
  call MPI_Op_create(add, .true., op)
  call MPI_Op_commutative(op, commutes)
  call check(commutes, 'commutative')
  v = rank + 1
  call MPI_Allreduce(v, total, 4, MPI_INTEGER, op, MPI_COMM_WORLD)
  call check(all(total == n), 'operator')
  ! Rows of matrices, which are not contiguous: copied for the call.
  matrix = rank + 1
  sums = 0
  call MPI_Reduce(matrix(2, :), sums, 8, MPI_INTEGER, op, 0, MPI_COMM_WORLD)
  if (rank == 0) call check(all(sums == n), 'a reduced row')
  call MPI_Allreduce(MPI_IN_PLACE, matrix(3, 1:8:2), 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call check(all(matrix(3, 1:8:2) == n) .and. all(matrix(3, 2:8:2) == rank + 1), 'a section in place')
  call check(all(matrix([1, 2, 4], :) == rank + 1), 'nothing beside it')
  call MPI_Op_free(op)
  call check(op == MPI_OP_NULL, 'operator freed')
  a = rank
  call MPI_Bcast(a(2, :), 4, MPI_REAL, size - 1, MPI_COMM_WORLD)
  call check(all(a(2, :) == size - 1) .and. all(a(1, :) == rank), 'a broadcast row')
  a = rank
  call MPI_Ibcast(a(1:3:2, :), 8, MPI_REAL, 0, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check(all(a(1:3:2, :) == 0) .and. all(a(2, :) == rank), 'a started broadcast')
  call MPI_Allgather(rank, 1, MPI_INTEGER, all_, 1, MPI_INTEGER, MPI_COMM_WORLD)
  call check(all(all_ == [(i, i = 0, size - 1)]), 'allgather')
  call MPI_Gather(matrix(1:4:3, 2), 2, MPI_INTEGER, block, 2, MPI_INTEGER, 0, MPI_COMM_WORLD)
  if (rank == 0) call check(all(block == [(i / 2 + 1, i = 0, 2 * size - 1)]), 'gather')
  counts = 2
  places = [(8 * i, i = 0, size - 1)]
  types = MPI_INTEGER
  block = [(100 * rank + i, i = 1, 2 * size)]
  back = 0
  call MPI_Alltoallw(block, counts, places, types, back, counts, places, types, MPI_COMM_WORLD)
  call check(all(back == [((100 * i + 2 * rank + n, n = 1, 2), i = 0, size - 1)]), 'alltoallw')
  back = 0
  call MPI_Ialltoallw(block, counts, places, types, back, counts, places, types, MPI_COMM_WORLD, request)
  types = MPI_DATATYPE_NULL
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check(all(back == [((100 * i + 2 * rank + n, n = 1, 2), i = 0, size - 1)]), 'started alltoallw')
  call MPI_Alltoallw(MPI_IN_PLACE, counts, places, types, block, counts, places, [(MPI_INTEGER, i = 1, size)], MPI_COMM_WORLD)
  call check(all(block == back), 'alltoallw in place')
  call MPI_Allgatherv([rank, rank], 2, MPI_INTEGER, back, counts, places / 4, MPI_INTEGER, MPI_COMM_WORLD)
  call check(all(back == [(i / 2, i = 0, 2 * size - 1)]), 'allgatherv')
  call MPI_Exscan(1, n, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank > 0) call check(n == rank, 'exscan')
  call MPI_Barrier(MPI_COMM_WORLD)
  if (wrong == 0) print '(a, i0)', 'collectives of rank ', rank
  call MPI_Finalize()
contains
  subroutine add(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: in(:), inout(:)
    call check(datatype == MPI_INTEGER, 'datatype of the operator')
    call c_f_pointer(invec, in, [len])
    call c_f_pointer(inoutvec, inout, [len])
    inout = in + inout
  end subroutine
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) print *, 'FAILED ', rank, what
    if (.not. good) wrong = wrong + 1
  end subroutine
end program
