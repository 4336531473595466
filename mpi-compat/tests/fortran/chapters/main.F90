! Chapters 3 to 14 and 19 in one of the three interfaces: see interfaces.h.
! ranks 2 4
#include "interfaces.h"
program chapters
  use checks
  use chapter_messages
  use chapter_datatypes
  use chapter_collectives
  use chapter_groups
  use chapter_environment
  use chapter_windows
  use chapter_files
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer :: ierror, provided, length
  character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: text
  COMM :: comm

  call MPI_Init_thread(MPI_THREAD_SERIALIZED, provided, ierror)
  if (was_spawned()) then
    call MPI_Finalize(ierror)
    stop
  end if
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierror)
  call MPI_Comm_rank(comm, rank, ierror)
  call MPI_Comm_size(comm, ranks, ierror)
  call MPI_Get_library_version(text, length, ierror)
  on_intel = index(text, 'Intel') > 0
  next = mod(rank + 1, ranks)
  previous = mod(rank + ranks - 1, ranks)
  call messages(comm)
  call datatypes(comm)
  call collectives(comm)
  call groups(comm)
  call environment(comm)
  call windows(comm)
  call files(comm)
  call MPI_Comm_free(comm, ierror)
  if (wrong == 0) print '(a, i0)', 'chapters of rank ', rank
  call MPI_Finalize(ierror)
end program
