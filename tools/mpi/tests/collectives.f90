! Collectives of a Fortran program: blocking ones with every way to name a buffer, checked by formula.
! Prints "expected OPERATION CALLS" as collectives.c does.
program collectives
  use mpi
  implicit none
  integer :: ierr, rank, ranks, i, wrong, total
  integer :: own(1000), all(1000)
  double precision :: value, sum
  real :: largest
  integer, allocatable :: gathered(:)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  wrong = 0
  allocate(gathered(1000 * ranks))

  call MPI_Barrier(MPI_COMM_WORLD, ierr)

  own = [(rank + i, i = 1, 1000)]
  call MPI_Allreduce(own, all, 1000, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (any(all /= [(ranks * i + ranks * (ranks - 1) / 2, i = 1, 1000)])) wrong = wrong + 1

  all = own
  call MPI_Allreduce(MPI_IN_PLACE, all, 1000, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
  if (any(all /= [(ranks - 1 + i, i = 1, 1000)])) wrong = wrong + 1

  value = 0.5d0 * (rank + 1)
  call MPI_Reduce(value, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. sum /= 0.25d0 * ranks * (ranks + 1)) wrong = wrong + 1

  largest = real(rank)
  call MPI_Allreduce(MPI_IN_PLACE, largest, 1, MPI_REAL, MPI_MAX, MPI_COMM_WORLD, ierr)
  if (largest /= real(ranks - 1)) wrong = wrong + 1

  if (rank == 1) all = 77
  call MPI_Bcast(all, 1000, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
  if (any(all /= 77)) wrong = wrong + 1

  call MPI_Allgather(own, 1000, MPI_INTEGER, gathered, 1000, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  do i = 0, ranks - 1
    if (gathered(1000 * i + 1) /= i + 1 .or. gathered(1000 * i + 1000) /= i + 1000) wrong = wrong + 1
  end do

  call MPI_Allreduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    print '(a)', 'expected barrier 1'
    print '(a)', 'expected allreduce 4'
    print '(a)', 'expected reduce 1'
    print '(a)', 'expected broadcast 1'
    print '(a)', 'expected allgather 1'
    print '(i0,a)', total, ' wrong'
  end if
  call MPI_Finalize(ierr)
  if (total /= 0) stop 1
end program collectives
