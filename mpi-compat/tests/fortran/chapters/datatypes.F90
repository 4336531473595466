! Chapter 5 and section 19.1: constructors, their contents, packing, a transposed matrix, distributed arrays, kinds of numbers.
#include "interfaces.h"
module chapter_datatypes
  use checks
  USE_MPI
  implicit none
  INCLUDE_MPI
  private
  public :: datatypes
contains
  subroutine datatypes(comm)
    COMM :: comm
    call constructors(comm)
    call transposed(comm)
    call triangle(comm)
    call contents()
    call packed(comm)
    call distributed(comm)
    call kinds()
  end subroutine

  subroutine constructors(comm)
    COMM :: comm
    DATATYPE :: kept, made(8)
    integer :: i, n, ierror, from(40), into(40), picked(8)
    integer(MPI_ADDRESS_KIND) :: lb, extent
    logical :: flag
    STATUS :: s
    from = [(i, i = 1, 40)]
    call MPI_Type_contiguous(4, MPI_INTEGER, made(1), ierror)
    call MPI_Type_vector(2, 2, 5, MPI_INTEGER, made(2), ierror)
    call MPI_Type_create_hvector(4, 1, 12_MPI_ADDRESS_KIND, MPI_INTEGER, made(3), ierror)
    call MPI_Type_indexed(2, [3, 1], [0, 9], MPI_INTEGER, made(4), ierror)
    call MPI_Type_create_indexed_block(2, 2, [4, 1], MPI_INTEGER, made(5), ierror)
    call MPI_Type_create_hindexed(2, [2, 2], [16_MPI_ADDRESS_KIND, 40_MPI_ADDRESS_KIND], MPI_INTEGER, made(6), ierror)
    call MPI_Type_create_hindexed_block(4, 1, [0_MPI_ADDRESS_KIND, 8_MPI_ADDRESS_KIND, 20_MPI_ADDRESS_KIND, &
                                               4_MPI_ADDRESS_KIND], MPI_INTEGER, made(7), ierror)
    call MPI_Type_create_subarray(2, [5, 4], [2, 2], [1, 1], MPI_ORDER_FORTRAN, MPI_INTEGER, made(8), ierror)
    do i = 1, 8
      call MPI_Type_commit(made(i), ierror)
      call MPI_Type_size(made(i), n, ierror)
      call check(n == 16, 'size')
      picked = 0
      call MPI_Sendrecv(from, 1, made(i), next, i, picked, 4, MPI_INTEGER, previous, i, comm, s, ierror)
      into = 0
      call MPI_Sendrecv(picked, 4, MPI_INTEGER, next, i, into, 1, made(i), previous, i, comm, s, ierror)
      call MPI_Get_elements(s, made(i), n, ierror)
      call check(n == 4, 'elements')
      select case (i)
      case (1); call placed([1, 2, 3, 4])
      case (2); call placed([1, 2, 6, 7])
      case (3); call placed([1, 4, 7, 10])
      case (4); call placed([1, 2, 3, 10])
      case (5); call placed([5, 6, 2, 3])
      case (6); call placed([5, 6, 11, 12])
      case (7); call placed([1, 3, 6, 2])
      case (8); call placed([7, 8, 12, 13])
      end select
    end do
    call MPI_Type_get_extent(made(2), lb, extent, ierror)
    call check(lb == 0 .and. extent == 28, 'extent of a vector')
    call MPI_Type_get_extent(made(8), lb, extent, ierror)
    call check(lb == 0 .and. extent == 80, 'extent of a subarray')
    call MPI_Type_get_true_extent(made(8), lb, extent, ierror)
    call check(lb == 24 .and. extent == 28, 'true extent of a subarray')
    call MPI_Type_dup(made(4), kept, ierror)
    do i = 1, 8
      call MPI_Type_free(made(i), ierror)
      flag = made(i) == MPI_DATATYPE_NULL
      call check(flag, 'freed')
    end do
    call MPI_Type_size(kept, n, ierror)
    call check(n == 16, 'a copy stays')
    call MPI_Type_free(kept, ierror)
  contains
    subroutine placed(places)
      integer, intent(in) :: places(4)
      call check(all(picked(1:4) == places) .and. all(into(places) == places) .and. count(into /= 0) == 4, 'places')
    end subroutine
  end subroutine

  ! A matrix is sent by rows and received by columns.
  subroutine transposed(comm)
    COMM :: comm
    integer, parameter :: n = 9
    double precision :: a(n, n), b(n, n)
    DATATYPE :: row, rows
    integer :: i, bytes, ierror
    integer(MPI_ADDRESS_KIND) :: step
    call MPI_Type_size(MPI_DOUBLE_PRECISION, bytes, ierror)
    step = bytes
    call MPI_Type_vector(n, 1, n, MPI_DOUBLE_PRECISION, row, ierror)
    call MPI_Type_create_hvector(n, 1, step, row, rows, ierror)
    call MPI_Type_commit(rows, ierror)
    a = reshape([(dble(1000 * rank + i), i = 1, n * n)], [n, n])
    call MPI_Sendrecv(a, 1, rows, next, 0, b, n * n, MPI_DOUBLE_PRECISION, previous, 0, comm, MPI_STATUS_IGNORE, ierror)
    call check(all(b == transpose(a) + 1000 * (previous - rank)), 'transposed')
    call MPI_Type_free(row, ierror)
    call MPI_Type_free(rows, ierror)
  end subroutine

  ! The lower triangle of a matrix: one block a column.
  subroutine triangle(comm)
    COMM :: comm
    integer, parameter :: n = 20
    real :: a(n, n), b(n, n)
    integer :: i, j, ierror
    DATATYPE :: lower
    call MPI_Type_indexed(n, [(n - i, i = 0, n - 1)], [(i * (n + 1), i = 0, n - 1)], MPI_REAL, lower, ierror)
    call MPI_Type_commit(lower, ierror)
    a = reshape([(real(i + rank), i = 1, n * n)], [n, n])
    b = -1
    call MPI_Sendrecv(a, 1, lower, previous, 0, b, 1, lower, next, 0, comm, MPI_STATUS_IGNORE, ierror)
    do j = 1, n
      call check(all(b(j:, j) == a(j:, j) + next - rank) .and. all(b(:j - 1, j) == -1), 'triangle')
    end do
    call MPI_Type_free(lower, ierror)
  end subroutine

  subroutine contents()
    DATATYPE :: made, inner(1), odd
    integer :: integers(8), ni, na, nd, combiner, ierror
    integer(MPI_ADDRESS_KIND) :: addresses(2)
    call MPI_Type_vector(3, 2, 5, MPI_REAL, made, ierror)
    call MPI_Type_get_envelope(made, ni, na, nd, combiner, ierror)
    call check(ni == 3 .and. na == 0 .and. nd == 1 .and. combiner == MPI_COMBINER_VECTOR, 'envelope')
    call MPI_Type_get_contents(made, 8, 2, 1, integers, addresses, inner, ierror)
    call check(all(integers(1:3) == [3, 2, 5]) .and. inner(1) == MPI_REAL, 'contents')
    call MPI_Type_create_resized(made, -4_MPI_ADDRESS_KIND, 100_MPI_ADDRESS_KIND, odd, ierror)
    call MPI_Type_get_envelope(odd, ni, na, nd, combiner, ierror)
    call check(ni == 0 .and. na == 2 .and. nd == 1 .and. combiner == MPI_COMBINER_RESIZED, 'envelope of resized')
    call MPI_Type_get_contents(odd, 8, 2, 1, integers, addresses, inner, ierror)
    call check(all(addresses == [-4, 100]), 'bounds')
    call MPI_Type_get_envelope(inner(1), ni, na, nd, combiner, ierror)
    call check(combiner == MPI_COMBINER_VECTOR, 'what was resized')
    call MPI_Type_free(inner(1), ierror)
    call MPI_Type_free(odd, ierror)
    call MPI_Type_free(made, ierror)
    call MPI_Type_get_envelope(MPI_COMPLEX, ni, na, nd, combiner, ierror)
    call check(combiner == MPI_COMBINER_NAMED, 'a named type')
  end subroutine

  subroutine packed(comm)
    COMM :: comm
    character :: space(200)
    character(len=5) :: word
    integer :: place, bytes, n, ierror
    integer(MPI_ADDRESS_KIND) :: size_, position
    complex :: z(2)
    place = 0
    call MPI_Pack([rank, 3], 2, MPI_INTEGER, space, 200, place, comm, ierror)
    call MPI_Pack('words', 5, MPI_CHARACTER, space, 200, place, comm, ierror)
    call MPI_Pack([(1.5, -2.), (0., 9.)], 2, MPI_COMPLEX, space, 200, place, comm, ierror)
    bytes = place
    call MPI_Pack_size(2, MPI_COMPLEX, comm, n, ierror)
    call check(bytes >= 8 + 5 + 16 .and. n >= 16, 'packed')
    call MPI_Sendrecv_replace(space, 200, MPI_PACKED, next, 0, previous, 0, comm, MPI_STATUS_IGNORE, ierror)
    place = 0
    call unpack_numbers()
    call MPI_Unpack(space, 200, place, word, 5, MPI_CHARACTER, comm, ierror)
    call MPI_Unpack(space, 200, place, z, 2, MPI_COMPLEX, comm, ierror)
    call check(word == 'words' .and. all(z == [(1.5, -2.), (0., 9.)]) .and. place == bytes, 'unpacked')
    ! The portable representation has its most significant byte first.
    call MPI_Pack_external_size('external32', 2, MPI_INTEGER, size_, ierror)
    position = 0
    call MPI_Pack_external('external32', [258, -1], 2, MPI_INTEGER, space, 200_MPI_ADDRESS_KIND, position, ierror)
    call check(size_ == 8 .and. position == 8, 'external size')
    call check(all(ichar(space(1:4)) == [0, 0, 1, 2]) .and. ichar(space(8)) == 255, 'external bytes')
    position = 4
    call MPI_Unpack_external('external32', space, 200_MPI_ADDRESS_KIND, position, n, 1, MPI_INTEGER, ierror)
    call check(n == -1 .and. position == 8, 'from external')
  contains
    subroutine unpack_numbers()
      integer :: numbers(2)
      call MPI_Unpack(space, 200, place, numbers, 2, MPI_INTEGER, comm, ierror)
      call check(all(numbers == [previous, 3]), 'numbers')
    end subroutine
  end subroutine

  ! Blocks of a distributed array are collected by the types of their owners.
  subroutine distributed(comm)
    COMM :: comm
    integer, parameter :: n = 7, m = 5
    integer :: whole(n, m), mine(n * m), rows(n, m), i, count_, ierror
    DATATYPE :: part
    STATUS :: s
    call MPI_Type_create_darray(ranks, rank, 2, [n, m], [MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE], &
                                [2, MPI_DISTRIBUTE_DFLT_DARG], [ranks, 1], MPI_ORDER_FORTRAN, MPI_INTEGER, part, ierror)
    call MPI_Type_commit(part, ierror)
    call MPI_Type_size(part, count_, ierror)
    count_ = count_ / 4
    whole = reshape([(i, i = 1, n * m)], [n, m])
    mine = 0
    call MPI_Sendrecv(whole, 1, part, rank, 1, mine, n * m, MPI_INTEGER, rank, 1, comm, s, ierror)
    rows = mod(whole - 1, n)
    call check(all(mine(1:count_) == pack(whole, mod(rows / 2, ranks) == rank)), 'rows in turn')
    whole = 0
    if (rank == 0) then
      call MPI_Sendrecv(mine, count_, MPI_INTEGER, 0, 2, whole, 1, part, 0, 2, comm, s, ierror)
      do i = 1, ranks - 1
        call MPI_Type_free(part, ierror)
        call MPI_Type_create_darray(ranks, i, 2, [n, m], [MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE], &
                                    [2, MPI_DISTRIBUTE_DFLT_DARG], [ranks, 1], MPI_ORDER_FORTRAN, MPI_INTEGER, part, ierror)
        call MPI_Type_commit(part, ierror)
        call MPI_Recv(whole, 1, part, i, 3, comm, s, ierror)
      end do
      call check(all(whole == reshape([(i, i = 1, n * m)], [n, m])), 'collected')
    else
      call MPI_Send(mine, count_, MPI_INTEGER, 0, 3, comm, ierror)
    end if
    call MPI_Type_free(part, ierror)
  end subroutine

  subroutine kinds()
    DATATYPE :: made, other
    integer :: n, ierror
    integer(selected_int_kind(15)) :: long(2)
    double precision :: d(2)
    complex :: z
    logical :: flag
    call MPI_Type_create_f90_integer(15, made, ierror)
    call MPI_Type_size(made, n, ierror)
    call check(n == 8, 'integer of 15 digits')
    call MPI_Type_create_f90_integer(15, other, ierror)
    flag = made == other
    call check(flag, 'the same type')
    call MPI_Type_create_f90_complex(6, MPI_UNDEFINED, made, ierror)
    call MPI_Type_size(made, n, ierror)
    call check(n == 8, 'complex of 6 digits')
    call MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 16, made, ierror)
    call MPI_Type_size(made, n, ierror)
    call check(n == 16, 'complex of 16 bytes')
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, 4, made, ierror)
    flag = made == MPI_REAL .or. made == MPI_REAL4
    call check(flag, 'real of 4 bytes')
#ifndef MPIF_H
    call MPI_Sizeof(long, n, ierror)
    call check(n == 8, 'size of a long integer')
    call MPI_Sizeof(d, n, ierror)
    call check(n == 8, 'size of a real')
    call MPI_Sizeof(z, n, ierror)
    call check(n == 8, 'size of a complex number')
#else
    long = 0
    d = 0
    z = 0
#endif
  end subroutine
end module
