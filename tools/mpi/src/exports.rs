//! The functions of MPI that this library exports, and the arguments of each (MPI 4.0, chapters 6 and 8).
//!
//! Each has four names: that of C, that of the profiling interface, which the Fortran part of Open MPI calls, and both with large
//! counts. All arguments are words: see `Word`.

use std::ffi::c_int;

use cmdseq::plan::Collective;

use crate::arguments::{Arguments, Side};
use crate::foreign::{self, Function, Inside, SUCCESS, Word, pmpi};
use crate::mpi::Comm;
use crate::offload::{collective, counted};
use crate::session;
use crate::shape::Reason;

/// A count of a function with counts of type `int`.
fn int(word: Word) -> i64 {
    i64::from(word as c_int)
}

/// A count of a function with counts of type `MPI_Count`.
fn large(word: Word) -> i64 {
    word as i64
}

/// Bytes of each count in an array.
fn bytes_of(count: fn(Word) -> i64) -> usize {
    // An integer of C has no upper half.
    if count(1 << 32) == 0 { size_of::<c_int>() } else { size_of::<i64>() }
}

/// Exports the function `name` of MPI, with these words as arguments and this body.
macro_rules! exported {
    ($name:ident ($($word:ident)*) $body:expr) => {
        #[doc = concat!("`", stringify!($name), "` of MPI.")]
        ///
        /// # Safety
        /// As MPI requires.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($word: Word),*) -> c_int {
            $body
        }
    };
}

/// Calls the function `real` of the MPI library with the words that the program has passed.
macro_rules! real {
    ($real:ident ($($word:ident)*)) => {
        // SAFETY: by the contract of the exported function, the words are those of a call of MPI.
        unsafe { pmpi!($real $(, $word)*) }
    };
}

/// Exports functions whose calls may go to the cards, each with counts of type `int` and with large counts.
///
/// Open MPI 4.1 has no functions with large counts. A program that looks for them finds those of this library, which then call
/// the others.
macro_rules! collectives {
    ($(($small:ident $p_small:ident, $large:ident $p_large:ident) |$count:ident| $words:tt $arguments:block)+) => {$(
        collectives! { small $small $small $count $words $arguments }
        collectives! { small $p_small $small $count $words $arguments }
        collectives! { large $large $large $small $count $words $arguments }
        collectives! { large $p_large $large $small $count $words $arguments }
    )+};
    (small $name:ident $real:ident $count:ident $words:tt $arguments:block) => {
        exported! { $name $words {
            let $count: fn(Word) -> i64 = int;
            let pass = || real!($real $words);
            // SAFETY: by the contract of the exported function, the arguments are those of a call of MPI.
            unsafe { collective(|| $arguments, pass) }
        } }
    };
    (large $name:ident $real:ident $small:ident $count:ident $words:tt $arguments:block) => {
        exported! { $name $words {
            static FUNCTION: Function = Function::new(foreign::name!($real));
            let $count: fn(Word) -> i64 = large;
            let pass = || match FUNCTION.is_there() {
                true => real!($real $words),
                false => narrowed(&$arguments, || real!($small $words)),
            };
            // SAFETY: by the contract of the exported function, the arguments are those of a call of MPI.
            unsafe { collective(|| $arguments, pass) }
        } }
    };
}

/// Makes a call that has large counts by `small`, the function with counts of type `int`.
fn narrowed(arguments: &Arguments, small: impl FnOnce() -> c_int) -> c_int {
    let comm = Comm(arguments.communicator);
    let too_large = || comm.raise("the MPI library of this process has no functions with large counts");
    let fits = |side: &Side| c_int::try_from(side.count).is_ok();
    if !fits(&arguments.send) || !fits(&arguments.receive) {
        return too_large();
    }
    if arguments.counts.0 == 0 {
        return small();
    }
    let counts = match comm.size() {
        Ok(size) => {
            (0..size as usize).map(|index| c_int::try_from(arguments.count(index))).collect::<Result<Vec<_>, _>>()
        }
        Err(code) => return code,
    };
    let Ok(counts) = counts else { return too_large() };
    let Arguments { send, receive, operation, communicator, .. } = *arguments;
    let datatype = receive.datatype;
    // SAFETY: the words are those of a call of MPI, and there is a count for each rank.
    unsafe {
        pmpi!(MPI_Reduce_scatter, send.buffer, receive.buffer, counts.as_ptr(), datatype, operation, communicator)
    }
}

/// Exports the barrier, which has no count.
macro_rules! barrier {
    ($($name:ident)+) => {$(
        exported! { $name (comm) {
            let pass = || real!(MPI_Barrier (comm));
            // SAFETY: by the contract of the exported function, the arguments are those of a call of MPI.
            unsafe { collective(|| Arguments::new(Collective::Barrier, comm), pass) }
        } }
    )+};
}

/// Exports functions whose calls are counted and go to the MPI library.
macro_rules! passed {
    ($($reason:ident $operation:literal $real:ident $profiled:ident $words:tt;)+) => {$(
        exported! { $real $words { counted($operation, Reason::$reason, || real!($real $words)) } }
        exported! { $profiled $words { counted($operation, Reason::$reason, || real!($real $words)) } }
    )+};
}

/// Exports functions that begin the session when MPI has succeeded.
macro_rules! beginning {
    ($($name:ident $real:ident $words:tt;)+) => {$(
        exported! { $name $words {
            let inside = Inside::enter();
            let code = real!($real $words);
            if code == SUCCESS && inside.is_some() {
                session::begin();
            }
            code
        } }
    )+};
}

/// Exports functions that end the session before MPI ends.
macro_rules! ending {
    ($($name:ident $real:ident;)+) => {$(
        exported! { $name () {
            let inside = Inside::enter();
            if inside.is_some() {
                session::end();
            }
            real!($real ())
        } }
    )+};
}

beginning! {
    MPI_Init MPI_Init (argc argv);
    PMPI_Init MPI_Init (argc argv);
    MPI_Init_thread MPI_Init_thread (argc argv required provided);
    PMPI_Init_thread MPI_Init_thread (argc argv required provided);
}

ending! {
    MPI_Finalize MPI_Finalize;
    PMPI_Finalize MPI_Finalize;
}

barrier! { MPI_Barrier PMPI_Barrier }

collectives! {
    (MPI_Bcast PMPI_Bcast, MPI_Bcast_c PMPI_Bcast_c)
    |count| (buffer number datatype root comm) {
        Arguments::new(Collective::Broadcast, comm)
            .send(buffer, count(number), datatype)
            .receive(buffer, count(number), datatype)
            .root(root)
    }
    (MPI_Reduce PMPI_Reduce, MPI_Reduce_c PMPI_Reduce_c)
    |count| (send receive number datatype operation root comm) {
        Arguments::new(Collective::Reduce, comm)
            .send(send, count(number), datatype)
            .receive(receive, count(number), datatype)
            .operation(operation)
            .root(root)
    }
    (MPI_Allreduce PMPI_Allreduce, MPI_Allreduce_c PMPI_Allreduce_c)
    |count| (send receive number datatype operation comm) {
        Arguments::new(Collective::Allreduce, comm)
            .send(send, count(number), datatype)
            .receive(receive, count(number), datatype)
            .operation(operation)
    }
    (MPI_Scan PMPI_Scan, MPI_Scan_c PMPI_Scan_c)
    |count| (send receive number datatype operation comm) {
        Arguments::new(Collective::Scan, comm)
            .send(send, count(number), datatype)
            .receive(receive, count(number), datatype)
            .operation(operation)
    }
    (MPI_Exscan PMPI_Exscan, MPI_Exscan_c PMPI_Exscan_c)
    |count| (send receive number datatype operation comm) {
        Arguments::new(Collective::Exscan, comm)
            .send(send, count(number), datatype)
            .receive(receive, count(number), datatype)
            .operation(operation)
    }
    (MPI_Reduce_scatter_block PMPI_Reduce_scatter_block, MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c)
    |count| (send receive number datatype operation comm) {
        Arguments::new(Collective::ReduceScatter, comm)
            .send(send, count(number), datatype)
            .receive(receive, count(number), datatype)
            .operation(operation)
    }
    (MPI_Reduce_scatter PMPI_Reduce_scatter, MPI_Reduce_scatter_c PMPI_Reduce_scatter_c)
    |count| (send receive counts datatype operation comm) {
        Arguments::new(Collective::ReduceScatter, comm)
            .send(send, 0, datatype)
            .receive(receive, 0, datatype)
            .counts(counts, bytes_of(count))
            .operation(operation)
    }
    (MPI_Scatter PMPI_Scatter, MPI_Scatter_c PMPI_Scatter_c)
    |count| (send send_count send_type receive receive_count receive_type root comm) {
        Arguments::new(Collective::Scatter, comm)
            .send(send, count(send_count), send_type)
            .receive(receive, count(receive_count), receive_type)
            .root(root)
    }
    (MPI_Gather PMPI_Gather, MPI_Gather_c PMPI_Gather_c)
    |count| (send send_count send_type receive receive_count receive_type root comm) {
        Arguments::new(Collective::Gather, comm)
            .send(send, count(send_count), send_type)
            .receive(receive, count(receive_count), receive_type)
            .root(root)
    }
    (MPI_Allgather PMPI_Allgather, MPI_Allgather_c PMPI_Allgather_c)
    |count| (send send_count send_type receive receive_count receive_type comm) {
        Arguments::new(Collective::Allgather, comm)
            .send(send, count(send_count), send_type)
            .receive(receive, count(receive_count), receive_type)
    }
    (MPI_Alltoall PMPI_Alltoall, MPI_Alltoall_c PMPI_Alltoall_c)
    |count| (send send_count send_type receive receive_count receive_type comm) {
        Arguments::new(Collective::Alltoall, comm)
            .send(send, count(send_count), send_type)
            .receive(receive, count(receive_count), receive_type)
    }
}

passed! {
    Vector "scatterv" MPI_Scatterv PMPI_Scatterv (a b c d e f g h i);
    Vector "gatherv" MPI_Gatherv PMPI_Gatherv (a b c d e f g h i);
    Vector "allgatherv" MPI_Allgatherv PMPI_Allgatherv (a b c d e f g h);
    Vector "alltoallv" MPI_Alltoallv PMPI_Alltoallv (a b c d e f g h i);
    Vector "alltoallw" MPI_Alltoallw PMPI_Alltoallw (a b c d e f g h i);
    Neighbourhood "neighbor_allgather" MPI_Neighbor_allgather PMPI_Neighbor_allgather (a b c d e f g);
    Neighbourhood "neighbor_alltoall" MPI_Neighbor_alltoall PMPI_Neighbor_alltoall (a b c d e f g);
    NonBlocking "ibarrier" MPI_Ibarrier PMPI_Ibarrier (a b);
    NonBlocking "ibcast" MPI_Ibcast PMPI_Ibcast (a b c d e f);
    NonBlocking "ireduce" MPI_Ireduce PMPI_Ireduce (a b c d e f g h);
    NonBlocking "iallreduce" MPI_Iallreduce PMPI_Iallreduce (a b c d e f g);
    NonBlocking "iscatter" MPI_Iscatter PMPI_Iscatter (a b c d e f g h i);
    NonBlocking "igather" MPI_Igather PMPI_Igather (a b c d e f g h i);
    NonBlocking "iallgather" MPI_Iallgather PMPI_Iallgather (a b c d e f g h);
    NonBlocking "ialltoall" MPI_Ialltoall PMPI_Ialltoall (a b c d e f g h);
    NonBlocking "iscatterv" MPI_Iscatterv PMPI_Iscatterv (a b c d e f g h i j);
    NonBlocking "igatherv" MPI_Igatherv PMPI_Igatherv (a b c d e f g h i j);
    NonBlocking "iallgatherv" MPI_Iallgatherv PMPI_Iallgatherv (a b c d e f g h i);
    NonBlocking "ialltoallv" MPI_Ialltoallv PMPI_Ialltoallv (a b c d e f g h i j);
    NonBlocking "ireduce_scatter" MPI_Ireduce_scatter PMPI_Ireduce_scatter (a b c d e f g);
    NonBlocking "ireduce_scatter_block" MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block (a b c d e f g);
    NonBlocking "iscan" MPI_Iscan PMPI_Iscan (a b c d e f g);
    NonBlocking "iexscan" MPI_Iexscan PMPI_Iexscan (a b c d e f g);
}
