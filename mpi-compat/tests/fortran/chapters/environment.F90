! Chapters 9, 10, 11, 13: classes and texts of errors, handlers, info, sessions, generalized requests, threads.
#include "interfaces.h"
module chapter_environment
  use checks
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: environment, was_spawned
  integer :: handled = 0, freed = 0
contains
  subroutine environment(comm)
    COMM :: comm
    call versions()
    call errors(comm)
    call own_errors()
    call hints()
    call sessions()
    call generalized()
    call processes(comm)
  end subroutine

  subroutine versions()
    integer :: version, subversion, n, level, ierror
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: text
    character(len=MPI_MAX_PROCESSOR_NAME) :: name
    logical :: flag
    double precision :: since
    call MPI_Get_version(version, subversion, ierror)
    call check(version == MPI_VERSION .and. subversion == MPI_SUBVERSION .or. version >= 4, 'version')
    call MPI_Get_library_version(text, n, ierror)
    call check(n > 0 .and. text(n + 1:) == ' ', 'library')
    call MPI_Get_processor_name(name, n, ierror)
    call check(n > 0 .and. name(n:n) /= ' ', 'processor')
    call MPI_Initialized(flag, ierror)
    call check(flag, 'initialized')
    call MPI_Finalized(flag, ierror)
    call check(.not. flag, 'not finalized')
    call MPI_Query_thread(level, ierror)
    call check(level >= MPI_THREAD_SINGLE .and. level <= MPI_THREAD_MULTIPLE, 'level of threads')
    call MPI_Is_thread_main(flag, ierror)
    call check(flag, 'main thread')
    since = MPI_Wtime()
    call check(MPI_Wtime() >= since .and. MPI_Wtick() > 0 .and. MPI_Wtick() < 1, 'clock')
  end subroutine

  subroutine errors(comm)
    COMM :: comm, other
    ERRHANDLER :: made, got
    WINDOW :: window
    integer :: n, ierror, memory(2)
    character(len=MPI_MAX_ERROR_STRING) :: text
    call MPI_Comm_dup(comm, other, ierror)
    call MPI_Comm_get_errhandler(other, got, ierror)
    call check(got == MPI_ERRORS_ARE_FATAL, 'fatal by default')
    call MPI_Comm_create_errhandler(on_comm, made, ierror)
    call MPI_Comm_set_errhandler(other, made, ierror)
    call MPI_Comm_call_errhandler(other, MPI_ERR_OTHER, ierror)
    call check(handled == 1, 'handler of a communicator')
    call MPI_Errhandler_free(made, ierror)
    call MPI_Comm_free(other, ierror)
    call MPI_Win_create(memory, 8_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, comm, window, ierror)
    call MPI_Win_create_errhandler(on_window, made, ierror)
    call MPI_Win_set_errhandler(window, made, ierror)
    call MPI_Win_call_errhandler(window, MPI_ERR_RMA_SYNC, ierror)
    call check(handled == 11, 'handler of a window')
    call MPI_Errhandler_free(made, ierror)
    call check(made == MPI_ERRHANDLER_NULL, 'freed')
    call MPI_Win_free(window, ierror)
    text = repeat('x', MPI_MAX_ERROR_STRING)
    call MPI_Error_string(MPI_ERR_TRUNCATE, text, n, ierror)
    call check(n > 0 .and. text(n + 1:) == ' ', 'text')
  end subroutine
  ! With integers as handles, further arguments may follow, which nobody uses.
  subroutine on_comm(comm, code)
    COMM :: comm
    integer :: code
    handled = handled + 1
  end subroutine
  subroutine on_window(window, code)
    WINDOW :: window
    integer :: code, class, ierror
    call MPI_Error_class(code, class, ierror)
    if (class == MPI_ERR_RMA_SYNC) handled = handled + 10
  end subroutine

  subroutine own_errors()
    integer :: class, code, n, back, ierror
    character(len=MPI_MAX_ERROR_STRING) :: text
    integer(MPI_ADDRESS_KIND) :: last
    logical :: flag
    call MPI_Add_error_class(class, ierror)
    call MPI_Add_error_code(class, code, ierror)
    call MPI_Add_error_string(code, 'our own fault', ierror)
    call MPI_Error_class(code, back, ierror)
    call check(back == class .and. class > MPI_ERR_LASTCODE, 'own class')
    call MPI_Error_string(code, text, n, ierror)
    call check(text == 'our own fault' .and. n == 13, 'own text')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, last, flag, ierror)
    call check(flag .and. (last >= class .or. on_intel), 'last code')
  end subroutine

  subroutine hints()
    INFO :: info, copy
    integer :: n, ierror
    character(len=MPI_MAX_INFO_KEY) :: key
    character(len=10) :: value
    logical :: flag
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'first', ' 1 ', ierror)
    call MPI_Info_set(info, 'second  ', 'a longer value', ierror)
    call MPI_Info_dup(info, copy, ierror)
    call MPI_Info_delete(info, 'first', ierror)
    call MPI_Info_get_nkeys(info, n, ierror)
    call check(n == 1, 'deleted')
    call MPI_Info_get_nkeys(copy, n, ierror)
    call MPI_Info_get_nthkey(copy, 0, key, ierror)
    call check(n == 2 .and. key == 'first', 'copied')
    n = 10
    call MPI_Info_get_string(copy, 'first', n, value, flag, ierror)
    call check(flag .and. value == '1', 'blanks around a value')
    n = 10
    call MPI_Info_get_string(copy, 'second', n, value, flag, ierror)
    call check(flag .and. value(1:9) == 'a longer ' .and. n == 14, 'cut to its variable')
    call MPI_Info_free(info, ierror)
    call MPI_Info_free(copy, ierror)
    call MPI_Info_create_env(info, ierror)
    call MPI_Info_free(info, ierror)
    call check(info == MPI_INFO_NULL, 'freed')
  end subroutine

  subroutine sessions()
    SESSION :: session
    GROUP :: group
    COMM :: comm
    INFO :: info
    integer :: n, i, length, ierror
    character(len=MPI_MAX_PSET_NAME_LEN) :: name
    character(len=20) :: text
    logical :: flag, world
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session, ierror)
    call MPI_Session_get_num_psets(session, MPI_INFO_NULL, n, ierror)
    world = .false.
    do i = 0, n - 1
      length = MPI_MAX_PSET_NAME_LEN
      call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, length, name, ierror)
      world = world .or. name == 'mpi://WORLD'
    end do
    call check(world, 'the set of all processes')
    call MPI_Session_get_pset_info(session, 'mpi://WORLD', info, ierror)
    n = 20
    call MPI_Info_get_string(info, 'mpi_size', n, text, flag, ierror)
    read (text, *) n
    call check(flag .and. n == ranks, 'its size')
    call MPI_Info_free(info, ierror)
    call MPI_Group_from_session_pset(session, 'mpi://WORLD', group, ierror)
    call MPI_Comm_create_from_group(group, 'org.example.chapters', MPI_INFO_NULL, MPI_ERRORS_RETURN, comm, ierror)
    call MPI_Allreduce(1, n, 1, MPI_INTEGER, MPI_SUM, comm, ierror)
    call check(n == ranks, 'a communicator of the session')
    call MPI_Comm_free(comm, ierror)
    call MPI_Group_free(group, ierror)
    call MPI_Session_finalize(session, ierror)
    call check(session == MPI_SESSION_NULL, 'ended')
  end subroutine

  subroutine generalized()
    REQUEST :: r
    STATUS :: s
    integer :: n, ierror
    logical :: flag
    call MPI_Grequest_start(query, release, cancel, 6_MPI_ADDRESS_KIND, r, ierror)
    call MPI_Cancel(r, ierror)
    call MPI_Wait(r, s, ierror)
    call MPI_Get_count(s, MPI_INTEGER, n, ierror)
    call MPI_Test_cancelled(s, flag, ierror)
    call check(n == 6 .and. flag .and. freed == 6, 'generalized request')
  contains
    subroutine cancel(extra_state, complete, ierror)
      integer(MPI_ADDRESS_KIND) :: extra_state
      logical :: complete
      integer :: ierror, inner
      if (.not. complete) call MPI_Grequest_complete(r, inner)
      ierror = MPI_SUCCESS
    end subroutine
  end subroutine
  subroutine query(extra_state, s, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    STATUS :: s
    integer :: ierror
    call MPI_Status_set_elements(s, MPI_INTEGER, int(extra_state), ierror)
    call MPI_Status_set_cancelled(s, .true., ierror)
    SOURCE_OF(s) = MPI_UNDEFINED
    TAG_OF(s) = MPI_UNDEFINED
    ierror = MPI_SUCCESS
  end subroutine
  subroutine release(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  ! Strings of the functions of dynamic processes, which a library may lack.
  subroutine processes(comm)
    COMM :: comm, between
    character(len=MPI_MAX_PORT_NAME) :: port, found
    character(len=200) :: program_, programs(2)
    character(len=12) :: command(2, 4)
    integer :: ierror, codes(3)
    integer(MPI_ADDRESS_KIND) :: value
    logical :: flag
    call MPI_Comm_get_parent(between, ierror)
    call check(ierror /= MPI_SUCCESS .or. between == MPI_COMM_NULL, 'nobody has started this one')
    call MPI_Comm_get_attr(comm, MPI_APPNUM, value, flag, ierror)
    if (flag) call check(value == 0, 'the first program')
    if (on_intel) return
    call get_command_argument(0, program_)
    ! Each list of arguments ends with a blank one.
    command = ' '
    command(:, 1) = ['spawned     ', 'first       ']
    command(:, 2) = [' two words  ', 'second      ']
    command(1, 3) = 'last'
    call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierror)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, ierror)
    call MPI_Open_port(MPI_INFO_NULL, port, ierror)
    if (ierror == MPI_SUCCESS) then
      call check(port /= ' ', 'name of a port')
      call MPI_Close_port(port, ierror)
      call check(ierror == MPI_SUCCESS, 'closed port')
    else
      call unsupported()
      call MPI_Lookup_name('chapters  ', MPI_INFO_NULL, found, ierror)
      call unsupported()
    end if
    call MPI_Comm_spawn(program_, command(1, :), 2, MPI_INFO_NULL, 0, comm, between, codes, ierror)
    if (supported()) then
      call check(all(codes(1:2) == MPI_SUCCESS), 'codes')
      call told([1, 1])
    end if
    ! The second program's list is shorter.
    command(1, 1) = 'again'
    programs = program_
    call MPI_Comm_spawn_multiple(2, programs, command, [1, 2], [MPI_INFO_NULL, MPI_INFO_NULL], 0, comm, between, codes, ierror)
    if (supported()) call told([10, 100, 100])
  contains
    subroutine told(expected)
      integer, intent(in) :: expected(:)
      integer :: i, got
      do i = 1, size(expected)
        if (rank == 0) then
          call MPI_Recv(got, 1, MPI_INTEGER, i - 1, 0, between, MPI_STATUS_IGNORE, ierror)
          call check(got == expected(i), 'arguments of a program that was started')
        end if
      end do
      call MPI_Comm_disconnect(between, ierror)
    end subroutine
    logical function supported()
      supported = ierror == MPI_SUCCESS
      if (.not. supported) call unsupported()
    end function
    subroutine unsupported()
      integer :: class, inner
      call MPI_Error_class(ierror, class, inner)
      call check(class == MPI_ERR_UNSUPPORTED_OPERATION, 'a clear error')
    end subroutine
  end subroutine

  ! A program that was started says which arguments it has got.
  logical function was_spawned()
    COMM :: parent
    character(len=20) :: arguments(4)
    integer :: i, ierror, what
    was_spawned = .false.
    if (command_argument_count() == 0) return
    was_spawned = .true.
    do i = 1, 4
      call get_command_argument(i, arguments(i))
    end do
    what = 0
    if (all(arguments == [character(20) :: 'spawned', ' two words', 'last', ' '])) what = 1
    if (all(arguments == [character(20) :: 'again', ' two words', 'last', ' '])) what = 10
    if (all(arguments == [character(20) :: 'first', 'second', ' ', ' '])) what = 100
    call MPI_Comm_get_parent(parent, ierror)
    call MPI_Send(what, 1, MPI_INTEGER, 0, 0, parent, ierror)
    call MPI_Comm_disconnect(parent, ierror)
  end function
end module
