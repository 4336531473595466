! What the chapters share. Left out on Intel MPI 2021.18, where C programs fail in the same calls: persistent collectives (old data, and
! the end of the process later), ports, the start of programs on one node, views and positions of files, the last code of an error.
module checks
  implicit none
  integer :: rank, ranks, next, previous, wrong = 0
  logical :: on_intel, one_node
contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (.not. good) print *, 'FAILED ', rank, what
    if (.not. good) wrong = wrong + 1
  end subroutine
end module
