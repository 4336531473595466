! Chapter 12 with mpi_f08: windows, epochs, sections as origins, memory that a call returns, attributes of windows.
! ranks 2 3
program windows
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: rank, size, next, i, wrong = 0, kind, unit
  integer(MPI_ADDRESS_KIND) :: bytes, value
  integer, target :: memory(40)
  integer :: rows(3, 8), old, got(4)
  integer, asynchronous :: added(4) = [1, 2, 3, 4]
  integer, pointer :: shared(:)
  type(c_ptr) :: base
  type(MPI_Win) :: window
  type(MPI_Request) :: request
  type(MPI_Group) :: group, neighbor
  character(len=MPI_MAX_OBJECT_NAME) :: name
  logical :: flag

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  next = mod(rank + 1, size)
  memory = -1
  rows = reshape([(100 * rank + i, i = 1, 24)], [3, 8])
  call MPI_Sizeof(memory, unit)
  call MPI_Win_create(memory, 40_MPI_ADDRESS_KIND * unit, unit, MPI_INFO_NULL, MPI_COMM_WORLD, window)
  call MPI_Win_set_name(window, 'numbers  ')
  call MPI_Win_get_name(window, name, i)
  call check(name == 'numbers' .and. i == 7, 'name')
  call MPI_Win_get_attr(window, MPI_WIN_SIZE, value, flag)
  call check(flag .and. value == 160, 'size')
  call MPI_Win_get_attr(window, MPI_WIN_DISP_UNIT, value, flag)
  call check(flag .and. value == 4, 'unit')
  call MPI_Win_get_attr(window, MPI_WIN_BASE, value, flag)
  call check(flag .and. value == transfer(c_loc(memory), value), 'base')
  call MPI_Win_get_attr(window, MPI_WIN_CREATE_FLAVOR, value, flag)
  call check(flag .and. value == MPI_WIN_FLAVOR_CREATE, 'flavor')
  call MPI_Win_fence(0, window)
  call MPI_Put(rows(2, :), 8, MPI_INTEGER, next, 4_MPI_ADDRESS_KIND, 8, MPI_INTEGER, window)
  call MPI_Win_fence(0, window)
  i = 100 * mod(rank + size - 1, size)
  call check(all(memory(5:12) == [(i + 3 * old - 1, old = 1, 8)]), 'a row was put')
  call check(all(memory(1:4) == -1) .and. all(memory(13:) == -1), 'nothing else')
  call MPI_Win_fence(0, window)
  rows = 0
  call MPI_Get(rows(1, 1:8:2), 4, MPI_INTEGER, next, 4_MPI_ADDRESS_KIND, 4, MPI_INTEGER, window)
  call MPI_Win_fence(0, window)
  call check(all(rows(1, 1:8:2) == [(100 * rank + 3 * i - 1, i = 1, 4)]) .and. sum(abs(rows(2:, :))) == 0, 'a section was got')
  memory(1) = 0
  call MPI_Win_fence(0, window)
  call MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window)
  call MPI_Fetch_and_op(1, old, MPI_INTEGER, 0, 0_MPI_ADDRESS_KIND, MPI_SUM, window)
  call MPI_Win_flush(0, window)
  call check(old >= 0 .and. old < size, 'fetch and op')
  call MPI_Win_unlock(0, window)
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_Win_lock_all(0, window)
  call MPI_Rget(old, 1, MPI_INTEGER, 0, 0_MPI_ADDRESS_KIND, 1, MPI_INTEGER, window, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check(old == size, 'the sum')
  call MPI_Compare_and_swap(rank, -1, old, MPI_INTEGER, rank, 39_MPI_ADDRESS_KIND, window)
  call MPI_Win_unlock_all(window)
  call check(old == -1 .and. memory(40) == rank, 'compare and swap')
  call MPI_Barrier(MPI_COMM_WORLD)
  ! Post, start, complete, wait around the ring.
  call MPI_Comm_group(MPI_COMM_WORLD, group)
  call MPI_Group_incl(group, 1, [mod(rank + size - 1, size)], neighbor)
  call MPI_Win_post(neighbor, 0, window)
  call MPI_Group_free(neighbor)
  call MPI_Group_incl(group, 1, [next], neighbor)
  call MPI_Win_start(neighbor, 0, window)
  call MPI_Accumulate(added, 4, MPI_INTEGER, next, 20_MPI_ADDRESS_KIND, 4, MPI_INTEGER, MPI_SUM, window)
  call MPI_Win_complete(window)
  call MPI_Win_wait(window)
  call check(all(memory(21:24) == [0, 1, 2, 3]), 'accumulate')
  call MPI_Group_free(neighbor)
  call MPI_Group_free(group)
  call MPI_Win_free(window)
  call check(window == MPI_WIN_NULL, 'freed')
  ! Memory of the library.
  call MPI_Win_allocate(16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, window)
  call c_f_pointer(base, shared, [4])
  shared = 0
  call MPI_Win_fence(0, window)
  got = 7 + rank
  call MPI_Put(got, 4, MPI_INTEGER, next, 0_MPI_ADDRESS_KIND, 4, MPI_INTEGER, window)
  call MPI_Win_fence(0, window)
  call check(all(shared == 7 + mod(rank + size - 1, size)), 'allocated')
  call MPI_Win_free(window)
  call MPI_Win_allocate_shared(4_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, window)
  call c_f_pointer(base, shared, [1])
  shared(1) = rank
  call MPI_Win_fence(0, window)
  call MPI_Win_shared_query(window, next, bytes, kind, base)
  call c_f_pointer(base, shared, [1])
  call check(bytes == 4 .and. kind == 4 .and. shared(1) == next, 'shared')
  call MPI_Win_fence(0, window)
  call MPI_Win_free(window)
  if (wrong == 0) print '(a, i0)', 'windows of rank ', rank
  call MPI_Finalize()
contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) print *, 'FAILED ', rank, what
    if (.not. good) wrong = wrong + 1
  end subroutine
end program
