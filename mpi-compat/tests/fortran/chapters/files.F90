! Chapter 14: views, offsets, shared pointers, requests, data representations. A library may have none of these functions.
#include "interfaces.h"
module chapter_files
  use checks
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: files
contains
  subroutine files(comm)
    COMM :: comm
    FILE :: file
    INFO :: info
    GROUP :: group
    REQUEST :: r
    STATUS :: s
    integer :: i, n, mode, class, ierror, block(4), got(4 * ranks)
    integer(MPI_OFFSET_KIND) :: offset
    integer(MPI_ADDRESS_KIND) :: extent
    character(len=40) :: name
    logical :: flag
    write (name, '(a, i0)') 'chapters-', int(mod(1000 * MPI_Wtime(), 1d9))
    call MPI_Bcast(name, 40, MPI_CHARACTER, 0, comm, ierror)
    call MPI_File_open(comm, name, ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file, ierror)
    if (ierror /= MPI_SUCCESS) then
      call MPI_Error_class(ierror, class, n)
      call check(class == MPI_ERR_UNSUPPORTED_OPERATION, 'a clear error')
      call MPI_File_delete(name, MPI_INFO_NULL, ierror)
      call MPI_Error_class(ierror, class, n)
      call check(class == MPI_ERR_UNSUPPORTED_OPERATION, 'a clear error for a name')
      call MPI_Register_datarep('chapters', MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of, 0_MPI_ADDRESS_KIND, &
                                ierror)
      call MPI_Error_class(ierror, class, n)
      call check(class == MPI_ERR_UNSUPPORTED_OPERATION, 'a clear error for a data representation')
      return
    end if
    call MPI_File_get_amode(file, mode, ierror)
    call check(mode == ior(MPI_MODE_CREATE, MPI_MODE_RDWR), 'mode')
    call MPI_File_get_group(file, group, ierror)
    call MPI_Group_size(group, n, ierror)
    call check(n == ranks, 'group')
    call MPI_Group_free(group, ierror)
    block = [(10 * rank + i, i = 1, 4)]
    if (on_intel) then
      call MPI_File_write_at_all(file, int(16 * rank, MPI_OFFSET_KIND), block, 4, MPI_INTEGER, s, ierror)
    else
      call turns()
    end if
    call MPI_Get_count(s, MPI_INTEGER, n, ierror)
    call check(n == 4, 'written')
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, ierror)
    call MPI_File_sync(file, ierror)
    call MPI_Barrier(comm, ierror)
    call MPI_File_read_at_all(file, 0_MPI_OFFSET_KIND, got, 4 * ranks, MPI_INTEGER, s, ierror)
    call check(all(got == [((10 * n + i, i = 1, 4), n = 0, ranks - 1)]), 'read by all')
    call MPI_File_get_size(file, offset, ierror)
    call check(offset == 16 * ranks, 'size')
    call MPI_File_iread_at(file, int(4 * next, MPI_OFFSET_KIND), block, 4, MPI_INTEGER, r, ierror)
    call MPI_Wait(r, s, ierror)
    call MPI_F_sync_reg(block)
    call check(all(block == [(10 * next + i, i = 1, 4)]), 'started')
    call MPI_File_seek(file, int(4 * ranks - 1, MPI_OFFSET_KIND), MPI_SEEK_SET, ierror)
    call MPI_File_read(file, n, 1, MPI_INTEGER, s, ierror)
    call check(n == 10 * (ranks - 1) + 4 .or. on_intel, 'the last one')
    call MPI_File_get_type_extent(file, MPI_INTEGER, extent, ierror)
    call check(extent == 4, 'extent')
    call MPI_File_get_atomicity(file, flag, ierror)
    call check(.not. flag, 'not atomic')
    call MPI_File_get_info(file, info, ierror)
    call MPI_Info_free(info, ierror)
    call MPI_File_close(file, ierror)
    call check(file == MPI_FILE_NULL, 'closed')
    call MPI_Barrier(comm, ierror)
    if (rank == 0) call MPI_File_delete(name, MPI_INFO_NULL, ierror)
    if (rank == 0) call check(ierror == MPI_SUCCESS, 'deleted')
  contains
    ! Ranks take turns, four integers each.
    subroutine turns()
      DATATYPE :: view, type
      character(len=40) :: representation
      call MPI_Type_create_subarray(1, [4 * ranks], [4], [4 * rank], MPI_ORDER_FORTRAN, MPI_INTEGER, view, ierror)
      call MPI_Type_commit(view, ierror)
      call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, view, 'native', MPI_INFO_NULL, ierror)
      call MPI_File_write_all(file, block, 4, MPI_INTEGER, s, ierror)
      call MPI_File_get_position(file, offset, ierror)
      call check(offset == 4, 'position')
      call MPI_File_get_byte_offset(file, 4_MPI_OFFSET_KIND, offset, ierror)
      call check(offset == 16 * ranks + 16 * rank, 'bytes')
      call MPI_File_get_view(file, offset, type, view, representation, ierror)
      call check(offset == 0 .and. representation == 'native', 'view')
    end subroutine
  end subroutine

  subroutine extent_of(type, extent, extra_state, ierror)
    DATATYPE :: type
    integer(MPI_ADDRESS_KIND) :: extent, extra_state
    integer :: ierror
    extent = 4
    ierror = MPI_SUCCESS
  end subroutine
end module
