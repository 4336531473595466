! Chapters 5, 7, 9, 10, 13 with mpi_f08: attributes, error handlers, strings, topologies, datatypes, generalized requests.
! ranks 1 4
module callbacks
  use mpi_f08
  implicit none
  integer :: copied = 0, deleted = 0, handled = 0, queried = 0, freed = 0
contains
  subroutine copy(old, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Comm) :: old
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    copied = copied + 1
    attribute_val_out = attribute_val_in + extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine
  subroutine remove(comm, keyval, attribute_val, extra_state, ierror)
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    if (extra_state == 5) deleted = deleted + int(attribute_val)
    ierror = MPI_SUCCESS
  end subroutine
  subroutine handler(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code, class
    call MPI_Error_class(error_code, class)
    if (comm == MPI_COMM_SELF .and. class == MPI_ERR_TAG) handled = handled + 1
  end subroutine
  subroutine query(extra_state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    queried = queried + 1
    call MPI_Status_set_elements(status, MPI_INTEGER, int(extra_state))
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = MPI_UNDEFINED
    status%MPI_TAG = MPI_UNDEFINED
    ierror = MPI_SUCCESS
  end subroutine
  subroutine release(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine
  subroutine cancel(extra_state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    ierror = MPI_SUCCESS
  end subroutine
end module

program objects
  use callbacks
  implicit none
  integer :: rank, size, key, i, n, wrong = 0, dims(2), coords(2), ierror, len, counts(3)
  integer(MPI_ADDRESS_KIND) :: value, lb, extent, places(3)
  integer(MPI_COUNT_KIND) :: large
  type(MPI_Comm) :: comm, grid, row
  type(MPI_Errhandler) :: errhandler
  type(MPI_Info) :: info
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  type(MPI_Datatype) :: type, parts(3), real
  type(MPI_Group) :: group, some
  character(len=40) :: text
  character(len=MPI_MAX_ERROR_STRING) :: message
  logical :: flag, periods(2), back(2)
  type :: particle
    sequence
    integer :: kind
    double precision :: place(3)
    real :: weight
  end type
  type(particle) :: particles(2), received(2)

  call MPI_Init(ierror)
  call check(ierror == MPI_SUCCESS, 'ierror')
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  ! Attributes.
  call MPI_Comm_create_keyval(copy, remove, key, 5_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_SELF, key, 10_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(MPI_COMM_SELF, comm)
  call MPI_Comm_get_attr(comm, key, value, flag)
  call check(flag .and. value == 15 .and. copied == 1, 'copied attribute')
  call MPI_Comm_set_attr(comm, key, 100_MPI_ADDRESS_KIND)
  call check(deleted == 15, 'replaced attribute')
  call MPI_Comm_free(comm)
  call check(deleted == 115 .and. comm == MPI_COMM_NULL, 'freed with its communicator')
  call MPI_Comm_delete_attr(MPI_COMM_SELF, key)
  call MPI_Comm_get_attr(MPI_COMM_SELF, key, value, flag)
  call check(deleted == 125 .and. .not. flag, 'deleted attribute')
  call MPI_Comm_free_keyval(key)
  call check(key == MPI_KEYVAL_INVALID, 'freed key')
  call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
  call MPI_Type_set_attr(MPI_REAL, key, 77_MPI_ADDRESS_KIND)
  call MPI_Type_dup(MPI_REAL, type)
  call MPI_Type_get_attr(type, key, value, flag)
  call check(flag .and. value == 77, 'attribute of a datatype')
  call MPI_Type_free(type)
  call MPI_Type_delete_attr(MPI_REAL, key)
  call MPI_Type_free_keyval(key)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag)
  call check(flag .and. value >= 32767, 'largest tag')
  ! Error handlers and errors.
  call MPI_Comm_create_errhandler(handler, errhandler)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler)
  call MPI_Send(rank, 1, MPI_INTEGER, 0, -5, MPI_COMM_SELF, ierror)
  call check(handled == 1, 'handler')
  call MPI_Errhandler_free(errhandler)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
  call MPI_Error_string(MPI_ERR_TAG, message, len)
  call check(len > 0 .and. message(len:len) /= ' ' .and. message(len + 1:) == ' ', 'text of an error')
  ! Strings.
  call MPI_Info_create(info)
  call MPI_Info_set(info, ' key ', '  a value  ')
  call MPI_Info_set(info, 'second', 'b')
  call MPI_Info_get_nkeys(info, n)
  text = 'xxx'
  len = 40
  call MPI_Info_get_string(info, 'key', len, text, flag)
  call check(flag .and. text == 'a value' .and. len == 7 .and. n == 2, 'info')
  call MPI_Info_get_valuelen(info, 'key', len, flag)
  call check(flag .and. len == 7, 'length of a value')
  call MPI_Info_get_string(info, 'none', len, text, flag)
  call check(.not. flag, 'no such key')
  call MPI_Info_get_nthkey(info, 1, text)
  call check(text == 'second', 'second key')
  call MPI_Info_free(info)
  call MPI_Comm_set_name(MPI_COMM_SELF, 'self alone')
  call MPI_Comm_get_name(MPI_COMM_SELF, text, len)
  call check(text == 'self alone' .and. len == 10, 'name')
  call MPI_Get_processor_name(message, len)
  call check(len > 0 .and. message(len + 1:) == ' ', 'processor')
  ! Topologies.
  dims = 0
  call MPI_Dims_create(size, 2, dims)
  periods = [.true., .false.]
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .false., grid)
  call MPI_Cart_get(grid, 2, dims, back, coords)
  call check((back(1) .eqv. .true.) .and. (back(2) .eqv. .false.), 'periods')
  call MPI_Cart_rank(grid, coords, i)
  call check(i == rank, 'rank of coordinates')
  call MPI_Cart_sub(grid, [.false., .true.], row)
  call MPI_Comm_size(row, n)
  call check(n == dims(2), 'a row of the grid')
  call MPI_Topo_test(grid, i)
  call check(i == MPI_CART, 'a grid')
  call MPI_Comm_free(row)
  call MPI_Comm_free(grid)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [rank], MPI_UNWEIGHTED, 1, [rank], MPI_UNWEIGHTED, &
                                      MPI_INFO_NULL, .false., comm)
  call MPI_Dist_graph_neighbors_count(comm, i, n, flag)
  call check(i == 1 .and. n == 1 .and. .not. flag, 'a graph without weights')
  call MPI_Comm_free(comm)
  call MPI_Comm_group(MPI_COMM_WORLD, group)
  call MPI_Group_range_incl(group, 1, reshape([size - 1, 0, -1], [3, 1]), some)
  call MPI_Group_rank(some, i)
  call check(i == size - 1 - rank, 'ranks backwards')
  call MPI_Group_free(some)
  call MPI_Group_free(group)
  ! Datatypes.
  counts = [1, 3, 1]
  parts = [MPI_INTEGER, MPI_DOUBLE_PRECISION, MPI_REAL]
  call MPI_Get_address(particles(1)%kind, places(1))
  call MPI_Get_address(particles(1)%place, places(2))
  call MPI_Get_address(particles(1)%weight, places(3))
  value = places(1)
  places = [(MPI_Aint_diff(places(i), value), i = 1, 3)]
  call MPI_Type_create_struct(3, counts, places, parts, type)
  call MPI_Get_address(particles(2)%kind, extent)
  call MPI_Type_create_resized(type, 0_MPI_ADDRESS_KIND, extent - value, real)
  call MPI_Type_free(type)
  call MPI_Type_commit(real)
  call MPI_Type_get_extent(real, lb, extent)
  call MPI_Type_size(real, n)
  call MPI_Type_size(real, large)
  call check(lb == 0 .and. extent == places(2) - places(1) + 32 .and. n == 32 .and. large == 32, 'extent and size')
  do i = 1, 2
    particles(i) = particle(i, [1d0, 2d0, 3d0] * i, 0.5 * i)
    received(i) = particle(0, [0d0, 0d0, 0d0], 0.)
  end do
  call MPI_Sendrecv(particles, 2, real, 0, 0, received, 2, real, 0, 0, MPI_COMM_SELF, status)
  call check(all(received%kind == [1, 2]) .and. all(received(2)%place == [2d0, 4d0, 6d0]), 'particles')
  call check(received(2)%weight == 1, 'weight of a particle')
  call MPI_Get_elements(status, real, n)
  call check(n == 10, 'elements')
  call MPI_Type_free(real)
  call MPI_Type_create_f90_real(15, 300, type)
  call MPI_Type_size(type, n)
  call check(n == 8, 'real of 15 digits')
  call MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 8, type)
  call MPI_Type_size(type, n)
  call check(n == 8, 'an integer of 8 bytes')
  call MPI_Pack_size(3, MPI_INTEGER, MPI_COMM_SELF, n)
  call check(n >= 12, 'packed size')
  ! A generalized request.
  call MPI_Grequest_start(query, release, cancel, 9_MPI_ADDRESS_KIND, request)
  call MPI_Test(request, flag, status)
  call check(.not. flag, 'in progress')
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  call MPI_Get_elements(status, MPI_INTEGER, n)
  call check(n == 9 .and. queried == 1 .and. freed == 9 .and. request == MPI_REQUEST_NULL, 'generalized request')
  if (wrong == 0) print '(a, i0)', 'objects of rank ', rank
  call MPI_Finalize()
contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) print *, 'FAILED ', rank, what
    if (.not. good) wrong = wrong + 1
  end subroutine
end program
