! The communication of the NAS kernels: transposes of CG, faces of MG, the all-to-all of FT, the wavefront of LU, the sort of IS; each result
! is compared with that of one rank alone.
! ranks 1 2 4
module kernels
  use mpi
  implicit none
  integer, parameter :: n = 16
  integer :: rank, size, ierror, wrong = 0
contains
  subroutine check(right, what)
    logical, intent(in) :: right
    character(len=*), intent(in) :: what
    if (.not. right) then
      print *, 'FAILED ', rank, what
      wrong = wrong + 1
    end if
  end subroutine

  ! A square matrix on a grid of ranks: partial sums go along the rows by recursive halving of their number, then each rank exchanges
  ! with the one that is its mirror image.
  subroutine conjugate_gradient()
    integer :: rows, columns, row, column, wide, high, i, j, step, partner, request, begin, length
    double precision :: a(n, n), x(n), y(n), q(n), other(n)
    columns = 1
    do while (columns * columns < size)
      columns = 2 * columns
    end do
    rows = size / columns
    row = rank / columns
    column = mod(rank, columns)
    wide = n / columns
    high = n / rows
    a = reshape([((1d0 / (i + 2 * j), i = 1, n), j = 1, n)], [n, n])
    x = [(1d0, i = 1, n)]
    y = x
    do i = 1, 3
      y = matmul(a, y) / 2
      q(1:high) = matmul(a(row * high + 1:(row + 1) * high, column * wide + 1:(column + 1) * wide), &
          x(column * wide + 1:(column + 1) * wide)) / 2
      step = 1
      do while (step < columns)
        partner = row * columns + ieor(column, step)
        call MPI_Irecv(other, high, MPI_DOUBLE_PRECISION, partner, step, MPI_COMM_WORLD, request, ierror)
        call MPI_Send(q, high, MPI_DOUBLE_PRECISION, partner, step, MPI_COMM_WORLD, ierror)
        call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
        q(1:high) = q(1:high) + other(1:high)
        step = 2 * step
      end do
      ! This rank has the elements of its row, and needs those of its column.
      begin = mod(column * wide, n)
      length = wide
      if (rows == columns) then
        partner = column * columns + row
        call MPI_Irecv(x(begin + 1), length, MPI_DOUBLE_PRECISION, partner, 7, MPI_COMM_WORLD, request, ierror)
        call MPI_Send(q, high, MPI_DOUBLE_PRECISION, partner, 7, MPI_COMM_WORLD, ierror)
        call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
      else
        x(begin + 1:begin + length) = q(begin - row * high + 1:begin - row * high + length)
      end if
    end do
    call check(all(abs(x(begin + 1:begin + wide) - y(begin + 1:begin + wide)) < 1d-12), 'CG')
  end subroutine

  ! A periodic grid in slabs: its faces go both ways before each step, as sections of the array.
  subroutine multigrid()
    double precision :: whole(0:n + 1, 0:n + 1, 0:n + 1), next(n, n, n)
    double precision, allocatable :: own(:, :, :)
    integer :: i, j, k, step, thick, up, down, requests(4), statuses(MPI_STATUS_SIZE, 4)
    thick = n / size
    allocate(own(0:n + 1, 0:thick + 1, 0:n + 1))
    do k = 1, n
      do j = 1, n
        do i = 1, n
          whole(i, j, k) = mod(7 * i + 11 * j * k, 13)
        end do
      end do
    end do
    own(1:n, 1:thick, 1:n) = whole(1:n, rank * thick + 1:(rank + 1) * thick, 1:n)
    up = mod(rank + 1, size)
    down = mod(rank + size - 1, size)
    do step = 1, 3
      own(0, 1:thick, 1:n) = own(n, 1:thick, 1:n)
      own(n + 1, 1:thick, 1:n) = own(1, 1:thick, 1:n)
      own(:, 1:thick, 0) = own(:, 1:thick, n)
      own(:, 1:thick, n + 1) = own(:, 1:thick, 1)
      call MPI_Irecv(own(:, 0, :), (n + 2)**2, MPI_DOUBLE_PRECISION, down, 1, MPI_COMM_WORLD, requests(1), ierror)
      call MPI_Irecv(own(:, thick + 1, :), (n + 2)**2, MPI_DOUBLE_PRECISION, up, 2, MPI_COMM_WORLD, requests(2), ierror)
      call MPI_Isend(own(:, thick, :), (n + 2)**2, MPI_DOUBLE_PRECISION, up, 1, MPI_COMM_WORLD, requests(3), ierror)
      call MPI_Isend(own(:, 1, :), (n + 2)**2, MPI_DOUBLE_PRECISION, down, 2, MPI_COMM_WORLD, requests(4), ierror)
      call MPI_Waitall(4, requests, statuses, ierror)
      call smooth(own, thick)
      whole(0, 1:n, 1:n) = whole(n, 1:n, 1:n)
      whole(n + 1, 1:n, 1:n) = whole(1, 1:n, 1:n)
      whole(:, 1:n, 0) = whole(:, 1:n, n)
      whole(:, 1:n, n + 1) = whole(:, 1:n, 1)
      whole(:, 0, :) = whole(:, n, :)
      whole(:, n + 1, :) = whole(:, 1, :)
      call smooth(whole, n)
    end do
    next = whole(1:n, 1:n, 1:n)
    call check(maxval(abs(own(1:n, 1:thick, 1:n) - next(:, rank * thick + 1:(rank + 1) * thick, :))) < 1d-12, 'MG')
  end subroutine

  subroutine smooth(u, thick)
    integer, intent(in) :: thick
    double precision, intent(inout) :: u(0:n + 1, 0:thick + 1, 0:n + 1)
    u(1:n, 1:thick, 1:n) = (u(0:n - 1, 1:thick, 1:n) + u(2:n + 1, 1:thick, 1:n) + u(1:n, 0:thick - 1, 1:n) &
        + u(1:n, 2:thick + 1, 1:n) + u(1:n, 1:thick, 0:n - 1) + u(1:n, 1:thick, 2:n + 1)) / 6
  end subroutine

  ! A transform in two dimensions: of columns, a transpose by an all-to-all of blocks, of columns again. A wave becomes one peak.
  subroutine fourier()
    double complex :: u(n, n / size), blocks(n / size, n / size, size), others(n / size, n / size, size), factors(n, n)
    double precision, parameter :: turn = 8 * atan(1d0) / n
    integer :: i, j, wide, pass
    wide = n / size
    factors = reshape([((exp((0d0, -1d0) * turn * i * j), i = 0, n - 1), j = 0, n - 1)], [n, n])
    u = reshape([((exp((0d0, 1d0) * turn * (3 * i + 5 * (rank * wide + j))), i = 0, n - 1), j = 0, wide - 1)], [n, wide])
    do pass = 1, 2
      u = matmul(factors, u)
      do i = 1, size
        blocks(:, :, i) = transpose(u((i - 1) * wide + 1:i * wide, :))
      end do
      call MPI_Alltoall(blocks, wide * wide, MPI_DOUBLE_COMPLEX, others, wide * wide, MPI_DOUBLE_COMPLEX, MPI_COMM_WORLD, ierror)
      do i = 1, size
        u((i - 1) * wide + 1:i * wide, :) = others(:, :, i)
      end do
    end do
    if (rank == 5 / wide) u(4, mod(5, wide) + 1) = u(4, mod(5, wide) + 1) - n * n
    call check(all(abs(u) < 1d-9), 'FT')
  end subroutine

  ! Each point needs those before it in three directions: planes follow each other through a grid of ranks.
  subroutine wavefront()
    integer, parameter :: modulus = 1009
    integer :: rows, columns, row, column, wide, high, i, j, k
    integer :: whole(0:n, 0:n, 0:n)
    integer, allocatable :: own(:, :, :)
    rows = merge(2, 1, mod(size, 2) == 0)
    columns = size / rows
    row = rank / columns
    column = mod(rank, columns)
    high = n / rows
    wide = n / columns
    whole = 1
    do k = 1, n
      do j = 1, n
        do i = 1, n
          whole(i, j, k) = mod(whole(i - 1, j, k) + 3 * whole(i, j - 1, k) + 5 * whole(i, j, k - 1), modulus)
        end do
      end do
    end do
    allocate(own(0:high, 0:wide, 0:n))
    own = 1
    do k = 1, n
      if (row > 0) call MPI_Recv(own(0, 1:wide, k), wide, MPI_INTEGER, rank - columns, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
      if (column > 0) call MPI_Recv(own(1:high, 0, k), high, MPI_INTEGER, rank - 1, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
      do j = 1, wide
        do i = 1, high
          own(i, j, k) = mod(own(i - 1, j, k) + 3 * own(i, j - 1, k) + 5 * own(i, j, k - 1), modulus)
        end do
      end do
      if (row < rows - 1) call MPI_Send(own(high, 1:wide, k), wide, MPI_INTEGER, rank + columns, k, MPI_COMM_WORLD, ierror)
      if (column < columns - 1) call MPI_Send(own(1:high, wide, k), high, MPI_INTEGER, rank + 1, k, MPI_COMM_WORLD, ierror)
    end do
    call check(all(own(1:, 1:, 1:) == whole(row * high + 1:(row + 1) * high, column * wide + 1:(column + 1) * wide, 1:)), 'LU')
  end subroutine

  ! Keys go to the rank of their bucket: sizes, then keys; the ranks' parts follow each other.
  subroutine integer_sort()
    integer, parameter :: keys = 500, largest = 1000
    integer :: own(keys), sorted(keys), to(size), from(size), at(size), places(size), target, i, total, last, request
    integer, allocatable :: mine(:), histogram(:)
    own = [(mod(i * i * 31 + rank * 17 * i, largest), i = 1, keys)]
    to = 0
    do i = 1, keys
      target = own(i) * size / largest + 1
      to(target) = to(target) + 1
    end do
    at = [(sum(to(:i - 1)), i = 1, size)]
    places = at
    do i = 1, keys
      target = own(i) * size / largest + 1
      places(target) = places(target) + 1
      sorted(places(target)) = own(i)
    end do
    call MPI_Alltoall(to, 1, MPI_INTEGER, from, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    places = [(sum(from(:i - 1)), i = 1, size)]
    allocate(mine(sum(from)), histogram(0:largest - 1))
    call MPI_Alltoallv(sorted, to, at, MPI_INTEGER, mine, from, places, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call MPI_Allreduce(sum(from), total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(total == keys * size, 'IS: number of keys')
    histogram = 0
    do i = 1, keys
      histogram(own(i)) = histogram(own(i)) + 1
    end do
    call MPI_Allreduce(MPI_IN_PLACE, histogram, largest, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    do i = 1, sum(from)
      histogram(mine(i)) = histogram(mine(i)) - 1
    end do
    call check(all(pack(histogram, [(i * size / largest == rank, i = 0, largest - 1)]) == 0), 'IS: keys of my part')
    ! The least key of a rank is above the greatest one of the rank before it.
    last = -1
    if (rank > 0) call MPI_Irecv(last, 1, MPI_INTEGER, rank - 1, 1, MPI_COMM_WORLD, request, ierror)
    if (rank < size - 1) call MPI_Send(maxval(mine), 1, MPI_INTEGER, rank + 1, 1, MPI_COMM_WORLD, ierror)
    if (rank > 0) call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call check(last < minval(mine), 'IS: order')
  end subroutine
end module

program nas
  use kernels
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  call conjugate_gradient()
  call multigrid()
  call fourier()
  call wavefront()
  call integer_sort()
  if (wrong == 0) print '(a, i0)', 'kernels of rank ', rank
  call MPI_Finalize(ierror)
end program
