! Random collectives of a Fortran program, checked against what each rank computes by itself from the contributions of all ranks, which
! it knows. All ranks draw the same numbers from the seed. Prints "expected OPERATION CALLS" as collectives.c does.
!
!   collectives SEED CASES [fractions]
!
! With fractions, sums and products of floats round, and may differ from the exact results by that.
program collectives
  use mpi
  implicit none
  integer, parameter :: operations = 11, longest = 3000, ranks_max = 8
  integer, parameter :: barrier = 1, bcast = 2, reduce = 3, allreduce = 4, scatter = 5, gather = 6, allgather = 7, alltoall = 8, &
    reduce_scatter = 9, scan = 10, exscan = 11
  character(14), parameter :: names(operations) = [character(14) :: 'barrier', 'broadcast', 'reduce', 'allreduce', 'scatter', &
    'gather', 'allgather', 'alltoall', 'reduce_scatter', 'scan', 'exscan']
  integer, parameter :: bytes(4) = [4, 8, 4, 8], wide = selected_real_kind(30)
  integer :: types(4), folds(6), expected(operations), ierr, rank, ranks, cases, number, what, kind, fold, count, root, wrong, total
  integer :: i, given, taken
  logical :: in_place, fractions, is_root
  character(32) :: argument
  integer(8) :: state
  ! One memory, seen as any of the four types.
  real(8) :: send(longest * ranks_max), receive(longest * ranks_max)
  external :: make_call, put, get

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  types = [MPI_INTEGER, MPI_INTEGER8, MPI_REAL, MPI_DOUBLE_PRECISION]
  folds = [MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BAND, MPI_BOR]
  call get_command_argument(1, argument)
  read (argument, *) state
  call get_command_argument(2, argument)
  read (argument, *) cases
  call get_command_argument(3, argument)
  fractions = argument == 'fractions'
  wrong = 0
  expected = 0

  do number = 1, cases
    what = 1 + draw(operations)
    kind = 1 + draw(4)
    fold = 1 + draw(merge(6, 4, kind <= 2))
    count = 1 + draw(merge(longest, 40, draw(5) == 0))
    root = draw(ranks)
    in_place = draw(3) == 0 .and. what /= barrier .and. what /= bcast
    is_root = rank == root
    expected(what) = expected(what) + 1
    given = count * merge(ranks, 1, what == alltoall .or. what == reduce_scatter .or. (what == scatter .and. is_root))
    if ((what == bcast .and. .not. is_root) .or. what == barrier) given = 0
    if (what == scatter .and. .not. is_root) given = 0
    ! Elements that are not given or taken have a value of their own.
    do i = 1, count * ranks
      call put(send, kind, i, -1.0_wide)
      call put(receive, kind, i, -2.0_wide)
    end do
    do i = 1, given
      call put(send, kind, i, element(rank, i))
      if (what == bcast) call put(receive, kind, i, element(rank, i))
      if (.not. in_place) cycle
      select case (what)
      case (allreduce, reduce_scatter, scan, exscan, alltoall); call put(receive, kind, i, element(rank, i))
      case (allgather); call put(receive, kind, rank * count + i, element(rank, i))
      case (reduce); if (is_root) call put(receive, kind, i, element(rank, i))
      case (gather); if (is_root) call put(receive, kind, rank * count + i, element(rank, i))
      end select
    end do
    call make_call(what, send, receive, count, types(kind), folds(fold), root, merge(1, 0, in_place), is_root)
    taken = count * merge(ranks, 1, what == allgather .or. what == alltoall .or. what == gather)
    if (what == barrier .or. ((what == reduce .or. what == gather) .and. .not. is_root)) taken = 0
    if ((what == scatter .and. is_root .and. in_place) .or. (what == exscan .and. rank == 0)) taken = 0
    do i = 1, taken
      call check(i, result_of(i))
    end do
    ! An in-place reduce_scatter leaves the input there, or not; the first rank of an exscan gets anything.
    if (taken < count * ranks .and. .not. in_place .and. .not. (what == exscan .and. rank == 0)) call check(taken + 1, -2.0_wide)
  end do

  call MPI_Allreduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  expected(allreduce) = expected(allreduce) + 1
  if (rank == 0) then
    do i = 1, operations
      print '(a,i0)', 'expected ' // trim(names(i)) // ' ', expected(i)
    end do
    print '(i0,a,i0,a)', cases, ' cases, ', total, ' wrong'
  end if
  call MPI_Finalize(ierr)
  if (total /= 0) stop 1

contains

  integer function draw(below)
    integer, intent(in) :: below
    state = ieor(state, ishft(state, 13))
    state = ieor(state, ishft(state, -7))
    state = ieor(state, ishft(state, 17))
    draw = int(modulo(ishft(state, -20), int(below, 8)))
  end function draw

  ! Element `at` of what rank `of` gives in this call: small and, but for fractions, whole.
  real(wide) function element(of, at)
    integer, intent(in) :: of, at
    integer(8) :: mixed
    mixed = modulo(int(number, 8) * 7919 + int(of, 8) * 104729 + int(at, 8) * 1299709, 2147483647_8)
    mixed = modulo(mixed * 48271, 2147483647_8)
    element = real(modulo(mixed, merge(2_8, 9_8, folds(fold) == MPI_PROD)) + merge(1, 0, folds(fold) == MPI_PROD), wide)
    if (fractions .and. kind == 3) element = element + real(modulo(mixed, 1024_8), wide) / 1024
    if (fractions .and. kind == 4) element = element + real(modulo(mixed, 1048576_8), wide) / 1048576
  end function element

  real(wide) function folded(left, right)
    real(wide), intent(in) :: left, right
    select case (fold)
    case (1); folded = left + right
    case (2); folded = left * right
    case (3); folded = max(left, right)
    case (4); folded = min(left, right)
    case (5); folded = iand(int(left), int(right))
    case default; folded = ior(int(left), int(right))
    end select
  end function folded

  ! Element `at` of what this rank gets.
  real(wide) function result_of(at)
    integer, intent(in) :: at
    integer :: block, inside, of, last, from
    block = (at - 1) / count
    inside = at - block * count
    select case (what)
    case (bcast); result_of = element(root, at)
    case (scatter); result_of = element(root, rank * count + at)
    case (gather, allgather); result_of = element(block, inside)
    case (alltoall); result_of = element(block, rank * count + inside)
    case default
      last = ranks - 1
      if (what == scan) last = rank
      if (what == exscan) last = rank - 1
      from = merge(rank * count + at, at, what == reduce_scatter)
      result_of = element(0, from)
      do of = 1, last
        result_of = folded(result_of, element(of, from))
      end do
    end select
  end function result_of

  subroutine check(at, right)
    integer, intent(in) :: at
    real(wide), intent(in) :: right
    real(wide) :: found, most
    call get(receive, kind, at, found)
    most = 0
    if (fractions .and. kind >= 3 .and. fold <= 2) &
      most = ranks * abs(right) * merge(real(epsilon(1.0_4), 8), epsilon(1.0_8), kind == 3)
    if (abs(found - right) <= most) return
    wrong = wrong + 1
    if (wrong <= 10) print '(a,i0,a,i0,3a,i0,a,i0,a,f0.10,a,f0.10)', 'case ', number, ': rank ', rank, ': ', trim(names(what)), &
      ', type ', kind, ', element ', at, ' is ', real(found, 8), ', expected ', real(right, 8)
  end subroutine check
end program collectives

! Stores element `at` of type `kind`.
subroutine put(memory, kind, at, value)
  implicit none
  integer, parameter :: wide = selected_real_kind(30)
  integer, intent(in) :: kind, at
  integer(1), intent(inout) :: memory(*)
  real(wide), intent(in) :: value
  integer, parameter :: bytes(4) = [4, 8, 4, 8]
  integer :: first, last
  first = (at - 1) * bytes(kind) + 1
  last = at * bytes(kind)
  select case (kind)
  case (1); memory(first:last) = transfer(int(value, 4), memory(1:4))
  case (2); memory(first:last) = transfer(int(value, 8), memory(1:8))
  case (3); memory(first:last) = transfer(real(value, 4), memory(1:4))
  case default; memory(first:last) = transfer(real(value, 8), memory(1:8))
  end select
end subroutine put

! Loads element `at` of type `kind`.
subroutine get(memory, kind, at, value)
  implicit none
  integer, parameter :: wide = selected_real_kind(30)
  integer, intent(in) :: kind, at
  integer(1), intent(in) :: memory(*)
  real(wide), intent(out) :: value
  integer, parameter :: bytes(4) = [4, 8, 4, 8]
  integer :: first, last
  first = (at - 1) * bytes(kind) + 1
  last = at * bytes(kind)
  select case (kind)
  case (1); value = transfer(memory(first:last), 1_4)
  case (2); value = transfer(memory(first:last), 1_8)
  case (3); value = transfer(memory(first:last), 1.0_4)
  case default; value = transfer(memory(first:last), 1.0_8)
  end select
end subroutine get

! Makes one call, by the number of the collective in the program above.
subroutine make_call(what, send, receive, count, type, op, root, in_place, is_root)
  use mpi
  implicit none
  integer, intent(in) :: what, count, type, op, root, in_place
  logical, intent(in) :: is_root
  real(8) :: send(*), receive(*)
  integer :: comm, ierr
  comm = MPI_COMM_WORLD
  select case (what)
  case (1); call MPI_Barrier(comm, ierr)
  case (2); call MPI_Bcast(receive, count, type, root, comm, ierr)
  case (3)
    if (in_place == 1 .and. is_root) then
      call MPI_Reduce(MPI_IN_PLACE, receive, count, type, op, root, comm, ierr)
    else
      call MPI_Reduce(send, receive, count, type, op, root, comm, ierr)
    end if
  case (4)
    if (in_place == 1) then
      call MPI_Allreduce(MPI_IN_PLACE, receive, count, type, op, comm, ierr)
    else
      call MPI_Allreduce(send, receive, count, type, op, comm, ierr)
    end if
  case (5)
    if (in_place == 1 .and. is_root) then
      call MPI_Scatter(send, count, type, MPI_IN_PLACE, count, type, root, comm, ierr)
    else
      call MPI_Scatter(send, count, type, receive, count, type, root, comm, ierr)
    end if
  case (6)
    if (in_place == 1 .and. is_root) then
      call MPI_Gather(MPI_IN_PLACE, count, type, receive, count, type, root, comm, ierr)
    else
      call MPI_Gather(send, count, type, receive, count, type, root, comm, ierr)
    end if
  case (7)
    if (in_place == 1) then
      call MPI_Allgather(MPI_IN_PLACE, count, type, receive, count, type, comm, ierr)
    else
      call MPI_Allgather(send, count, type, receive, count, type, comm, ierr)
    end if
  case (8)
    if (in_place == 1) then
      call MPI_Alltoall(MPI_IN_PLACE, count, type, receive, count, type, comm, ierr)
    else
      call MPI_Alltoall(send, count, type, receive, count, type, comm, ierr)
    end if
  case (9)
    if (in_place == 1) then
      call MPI_Reduce_scatter_block(MPI_IN_PLACE, receive, count, type, op, comm, ierr)
    else
      call MPI_Reduce_scatter_block(send, receive, count, type, op, comm, ierr)
    end if
  case (10)
    if (in_place == 1) then
      call MPI_Scan(MPI_IN_PLACE, receive, count, type, op, comm, ierr)
    else
      call MPI_Scan(send, receive, count, type, op, comm, ierr)
    end if
  case default
    if (in_place == 1) then
      call MPI_Exscan(MPI_IN_PLACE, receive, count, type, op, comm, ierr)
    else
      call MPI_Exscan(send, receive, count, type, op, comm, ierr)
    end if
  end select
end subroutine make_call
