! A datatype that is not committed: the MPI library calls the handler of the program once, on each rank.
module counting
    implicit none
    integer :: calls = 0
contains
    subroutine count_call(comm, code)
        integer :: comm, code
        calls = calls + 1
    end subroutine
end module

program handler
    use mpi
    use counting
    implicit none
    integer :: ierror, made, spread, data(6)
    call MPI_Init(ierror)
    call MPI_Comm_create_errhandler(count_call, made, ierror)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, made, ierror)
    call MPI_Type_vector(3, 1, 2, MPI_INTEGER, spread, ierror)
    data = 0
    call MPI_Bcast(data, 1, spread, 0, MPI_COMM_WORLD, ierror)
    print '(A, I0)', 'calls of the handler: ', calls
    call MPI_Finalize(ierror)
end program
