//! The functions of MPI that this library exports, and the arguments of each (MPI 4.0, chapters 6 and 8).
//!
//! Each has four names: that of C, that of the profiling interface, which the Fortran part of Open MPI calls, and both with large
//! counts. Each passes on to the next function of its own name, so that a profiling tool behind this library sees what passes
//! through. The tool then calls the name `PMPI_`, which finds its thread inside. All arguments are words: see `Word`.

use std::ffi::c_int;

use cmdseq::plan::Collective;

use crate::allocation;
use crate::arguments::{Arguments, Array, Side, Width};
use crate::entry;
use crate::foreign::{self, Function, Word, next, pmpi};
use crate::handlers;
use crate::hints;
use crate::mpi::{self, Comm};
use crate::offload::{collective, counted};
use crate::session;
use crate::shape::Reason;

/// Exports the function `name` of MPI, with these words as arguments and this body. An error handler of the program may leave it
/// by an exception of C++.
macro_rules! exported {
    ($name:ident ($($word:ident)*) $body:expr) => {
        #[doc = concat!("`", stringify!($name), "` of MPI.")]
        ///
        /// # Safety
        /// As MPI requires.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($word: Word),*) -> c_int {
            $body
        }
    };
}

/// Calls the next function `real` after this library with the words that the program has passed.
macro_rules! real {
    ($real:ident ($($word:ident)*)) => {
        // SAFETY: by the contract of the exported function, the words are those of a call of MPI.
        entry::passing(|| unsafe { next!($real $(, $word)*) })
    };
}

/// Exports functions whose calls may go to the cards, each with counts of type `int` and with large counts.
///
/// Open MPI 4.1 has no functions with large counts. A program that looks for them finds those of this library, which then call
/// the others.
macro_rules! collectives {
    ($(($small:ident $p_small:ident, $large:ident $p_large:ident) |$width:ident| $words:tt $arguments:block)+) => {$(
        collectives! { small $small $width $words $arguments }
        collectives! { small $p_small $width $words $arguments }
        collectives! { large $large $small $width $words $arguments }
        collectives! { large $p_large $p_small $width $words $arguments }
    )+};
    (small $name:ident $width:ident $words:tt $arguments:block) => {
        exported! { $name $words {
            let $width = Width::Int;
            let pass = || real!($name $words);
            // SAFETY: by the contract of the exported function, the arguments are those of a call of MPI.
            unsafe { collective(|| $arguments, pass) }
        } }
    };
    (large $name:ident $small:ident $width:ident $words:tt $arguments:block) => {
        exported! { $name $words {
            static FUNCTION: Function = Function::new(foreign::name!($name));
            let $width = Width::Large;
            let pass = || match FUNCTION.is_there() {
                true => real!($name $words),
                false => narrowed(&$arguments, || real!($small $words)),
            };
            // SAFETY: by the contract of the exported function, the arguments are those of a call of MPI.
            unsafe { collective(|| $arguments, pass) }
        } }
    };
}

/// Makes a call that has large counts by `small`, the function with counts of type `int`.
fn narrowed(arguments: &Arguments, small: impl FnOnce() -> c_int) -> c_int {
    let sides = [&arguments.send, &arguments.receive];
    let is_vector = sides.iter().any(|side| side.blocks.is_some());
    if !is_vector && sides.iter().all(|side| c_int::try_from(side.count).is_ok()) {
        return small();
    }
    match narrow(arguments) {
        Ok(Some([send, receive])) if is_vector => {
            // SAFETY: the words are those of a call of MPI, and there is a number for each rank where MPI reads one.
            entry::passing(|| unsafe { small_vector(arguments, &send, &receive) })
        }
        Ok(Some(_)) => small(),
        Ok(None) => Comm(arguments.communicator).raise(NO_LARGE_COUNTS),
        Err(code) => code,
    }
}

const NO_LARGE_COUNTS: &str = "the MPI library of this process has no functions with large counts";

/// The arrays of one side with numbers of type `int`; empty where MPI reads none.
#[derive(Default)]
struct Narrow {
    counts: Vec<c_int>,
    displacements: Vec<c_int>,
}

/// The arrays of both sides; `None` if a number that MPI reads on this rank is too large.
fn narrow(arguments: &Arguments) -> mpi::Result<Option<[Narrow; 2]>> {
    use Collective::{Gather, Gatherv, Scatter, Scatterv};
    let Arguments { collective, communicator, send, receive, root, .. } = arguments;
    let comm = Comm(*communicator);
    let is_inter = comm.is_inter()?;
    let reduces = *collective == Collective::ReduceScatter;
    let size = if is_inter && !reduces { comm.remote_size()? } else { comm.size()? } as usize;
    // Whether this rank has the side of the root, and whether it has the other: that of every rank or, between two groups, of the
    // group without the root. The rest of the root's group takes no part.
    let of_root = if is_inter { *root == ROOT } else { u32::try_from(*root) == Ok(comm.rank()?) };
    let of_all = !is_inter || *root >= 0;
    let [sends, receives] = match collective {
        Scatter | Scatterv => [of_root, of_all],
        Gather | Gatherv => [of_all, of_root],
        _ => [of_root || of_all; 2],
    };
    let side = |side: &Side, is_read: bool| {
        if !is_read || side.buffer == IN_PLACE {
            return Some(Narrow::default());
        }
        let Some(blocks) = side.blocks else {
            return c_int::try_from(side.count).is_ok().then(Narrow::default);
        };
        let numbers = |array: Array| {
            let count = if array.is_null() { 0 } else { size };
            (0..count).map(|index| c_int::try_from(array.get(index)).ok()).collect::<Option<Vec<c_int>>>()
        };
        let displacements = blocks.displacements.map_or(Some(Vec::new()), numbers)?;
        Some(Narrow { counts: numbers(blocks.counts)?, displacements })
    };
    Ok(side(send, sends).zip(side(receive, receives)).map(|(send, receive)| [send, receive]))
}

/// `MPI_IN_PLACE` and `MPI_ROOT` of Open MPI, the only library that lacks functions with large counts.
const IN_PLACE: Word = 1;
const ROOT: i32 = -4;

/// Makes a call with arrays of numbers of type `int`.
///
/// # Safety
/// As MPI requires of the arguments, with these arrays for theirs.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of them is made")]
unsafe fn small_vector(arguments: &Arguments, sends: &Narrow, receives: &Narrow) -> c_int {
    let &Arguments { collective, communicator: comm, send, receive, operation, root } = arguments;
    let address = |numbers: &Vec<c_int>| if numbers.is_empty() { std::ptr::null() } else { numbers.as_ptr() };
    let (counts, places) = (address(&sends.counts), address(&sends.displacements));
    let (taken, at) = (address(&receives.counts), address(&receives.displacements));
    let (from, to, kind, other) = (send.buffer, receive.buffer, send.datatype, receive.datatype);
    // SAFETY: by this function's contract.
    unsafe {
        match collective {
            Collective::Scatterv => {
                pmpi!(MPI_Scatterv, from, counts, places, kind, to, receive.count, other, root, comm)
            }
            Collective::Gatherv => pmpi!(MPI_Gatherv, from, send.count, kind, to, taken, at, other, root, comm),
            Collective::Allgatherv => pmpi!(MPI_Allgatherv, from, send.count, kind, to, taken, at, other, comm),
            Collective::Alltoallv => pmpi!(MPI_Alltoallv, from, counts, places, kind, to, taken, at, other, comm),
            _ => pmpi!(MPI_Reduce_scatter, from, to, taken, other, operation, comm),
        }
    }
}

/// Exports functions whose calls are counted and go to the MPI library.
macro_rules! passed {
    ($($reason:ident $operation:literal $name:ident $profiled:ident $words:tt;)+) => {$(
        exported! { $name $words { counted($operation, Reason::$reason, || real!($name $words)) } }
        exported! { $profiled $words { counted($operation, Reason::$reason, || real!($profiled $words)) } }
    )+};
}

/// Exports functions under both names. `pass` makes the call of the program.
macro_rules! with_pass {
    ($($name:ident $profiled:ident $words:tt |$pass:ident| $body:expr;)+) => {$(
        exported! { $name $words { let $pass = || real!($name $words); $body } }
        exported! { $profiled $words { let $pass = || real!($profiled $words); $body } }
    )+};
}

with_pass! {
    MPI_Init PMPI_Init (argc argv) |pass| session::begin(pass);
    MPI_Init_thread PMPI_Init_thread (argc argv required provided) |pass| session::begin(pass);
    MPI_Finalize PMPI_Finalize () |pass| session::end(pass);
    MPI_Comm_free PMPI_Comm_free (comm) |pass| session::free(pass);
    MPI_Comm_disconnect PMPI_Comm_disconnect (comm) |pass| session::free(pass);
    MPI_Comm_set_info PMPI_Comm_set_info (comm info) |pass| hints::set(comm, info, pass);
    // SAFETY: by the contract of the exported function, MPI stores a handle there.
    MPI_Comm_dup_with_info PMPI_Comm_dup_with_info (comm info made) |pass| unsafe { hints::made(info, made, pass) };
    MPI_Alloc_mem PMPI_Alloc_mem (bytes info base) |pass| {
        // SAFETY: by the contract of the exported function, MPI stores an address there.
        let store = |address| unsafe { (base as *mut Word).write(address) };
        allocation::allocate(bytes, info, store, pass)
    };
    MPI_Free_mem PMPI_Free_mem (base) |pass| allocation::free(base, pass);
    // SAFETY: by the contract of the exported function, the arguments are those of a call of MPI.
    MPI_Barrier PMPI_Barrier (comm) |pass| unsafe { collective(|| Arguments::new(Collective::Barrier, comm), pass) };
}

/// Exports functions that make an error handler of a communicator.
macro_rules! handling {
    ($($name:ident)+) => {$(
        exported! { $name (handler made) {
            let handler = handlers::instead_of(handler);
            real!($name (handler made))
        } }
    )+};
}

handling! { MPI_Comm_create_errhandler PMPI_Comm_create_errhandler MPI_Errhandler_create PMPI_Errhandler_create }

/// Exports the function that duplicates a communicator without waiting. Open MPI 4.1 lacks it, and keys are hints: it duplicates without.
macro_rules! duplicating {
    ($($name:ident $without:ident;)+) => {$(
        exported! { $name (comm info made request) {
            static FUNCTION: Function = Function::new(foreign::name!($name));
            let pass = || match FUNCTION.is_there() {
                true => real!($name (comm info made request)),
                false => real!($without (comm made request)),
            };
            // SAFETY: by the contract of the exported function, MPI stores a handle there. The new communicator takes attributes
            // although its request is not complete.
            unsafe { hints::made(info, made, pass) }
        } }
    )+};
}

duplicating! {
    MPI_Comm_idup_with_info MPI_Comm_idup;
    PMPI_Comm_idup_with_info PMPI_Comm_idup;
}

collectives! {
    (MPI_Bcast PMPI_Bcast, MPI_Bcast_c PMPI_Bcast_c)
    |width| (buffer number datatype root comm) {
        Arguments::new(Collective::Broadcast, comm)
            .send(buffer, width.read(number), datatype)
            .receive(buffer, width.read(number), datatype)
            .root(root)
    }
    (MPI_Reduce PMPI_Reduce, MPI_Reduce_c PMPI_Reduce_c)
    |width| (send receive number datatype operation root comm) {
        Arguments::new(Collective::Reduce, comm)
            .send(send, width.read(number), datatype)
            .receive(receive, width.read(number), datatype)
            .operation(operation)
            .root(root)
    }
    (MPI_Allreduce PMPI_Allreduce, MPI_Allreduce_c PMPI_Allreduce_c)
    |width| (send receive number datatype operation comm) {
        Arguments::new(Collective::Allreduce, comm)
            .send(send, width.read(number), datatype)
            .receive(receive, width.read(number), datatype)
            .operation(operation)
    }
    (MPI_Scan PMPI_Scan, MPI_Scan_c PMPI_Scan_c)
    |width| (send receive number datatype operation comm) {
        Arguments::new(Collective::Scan, comm)
            .send(send, width.read(number), datatype)
            .receive(receive, width.read(number), datatype)
            .operation(operation)
    }
    (MPI_Exscan PMPI_Exscan, MPI_Exscan_c PMPI_Exscan_c)
    |width| (send receive number datatype operation comm) {
        Arguments::new(Collective::Exscan, comm)
            .send(send, width.read(number), datatype)
            .receive(receive, width.read(number), datatype)
            .operation(operation)
    }
    (MPI_Reduce_scatter_block PMPI_Reduce_scatter_block, MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c)
    |width| (send receive number datatype operation comm) {
        Arguments::new(Collective::ReduceScatter, comm)
            .send(send, width.read(number), datatype)
            .receive(receive, width.read(number), datatype)
            .operation(operation)
    }
    (MPI_Reduce_scatter PMPI_Reduce_scatter, MPI_Reduce_scatter_c PMPI_Reduce_scatter_c)
    |width| (send receive counts datatype operation comm) {
        Arguments::new(Collective::ReduceScatter, comm)
            .send(send, 0, datatype)
            .receive_counts(receive, counts, width, datatype)
            .operation(operation)
    }
    (MPI_Scatter PMPI_Scatter, MPI_Scatter_c PMPI_Scatter_c)
    |width| (send send_count send_type receive receive_count receive_type root comm) {
        Arguments::new(Collective::Scatter, comm)
            .send(send, width.read(send_count), send_type)
            .receive(receive, width.read(receive_count), receive_type)
            .root(root)
    }
    (MPI_Gather PMPI_Gather, MPI_Gather_c PMPI_Gather_c)
    |width| (send send_count send_type receive receive_count receive_type root comm) {
        Arguments::new(Collective::Gather, comm)
            .send(send, width.read(send_count), send_type)
            .receive(receive, width.read(receive_count), receive_type)
            .root(root)
    }
    (MPI_Allgather PMPI_Allgather, MPI_Allgather_c PMPI_Allgather_c)
    |width| (send send_count send_type receive receive_count receive_type comm) {
        Arguments::new(Collective::Allgather, comm)
            .send(send, width.read(send_count), send_type)
            .receive(receive, width.read(receive_count), receive_type)
    }
    (MPI_Alltoall PMPI_Alltoall, MPI_Alltoall_c PMPI_Alltoall_c)
    |width| (send send_count send_type receive receive_count receive_type comm) {
        Arguments::new(Collective::Alltoall, comm)
            .send(send, width.read(send_count), send_type)
            .receive(receive, width.read(receive_count), receive_type)
    }
}

collectives! {
    (MPI_Scatterv PMPI_Scatterv, MPI_Scatterv_c PMPI_Scatterv_c)
    |width| (send counts displacements send_type receive receive_count receive_type root comm) {
        Arguments::new(Collective::Scatterv, comm)
            .send_blocks(send, (counts, displacements), width, send_type)
            .receive(receive, width.read(receive_count), receive_type)
            .root(root)
    }
    (MPI_Gatherv PMPI_Gatherv, MPI_Gatherv_c PMPI_Gatherv_c)
    |width| (send send_count send_type receive counts displacements receive_type root comm) {
        Arguments::new(Collective::Gatherv, comm)
            .send(send, width.read(send_count), send_type)
            .receive_blocks(receive, (counts, displacements), width, receive_type)
            .root(root)
    }
    (MPI_Allgatherv PMPI_Allgatherv, MPI_Allgatherv_c PMPI_Allgatherv_c)
    |width| (send send_count send_type receive counts displacements receive_type comm) {
        Arguments::new(Collective::Allgatherv, comm)
            .send(send, width.read(send_count), send_type)
            .receive_blocks(receive, (counts, displacements), width, receive_type)
    }
    (MPI_Alltoallv PMPI_Alltoallv, MPI_Alltoallv_c PMPI_Alltoallv_c)
    |width| (send counts displacements send_type receive taken places receive_type comm) {
        Arguments::new(Collective::Alltoallv, comm)
            .send_blocks(send, (counts, displacements), width, send_type)
            .receive_blocks(receive, (taken, places), width, receive_type)
    }
}

passed! {
    Vector "alltoallw" MPI_Alltoallw PMPI_Alltoallw (a b c d e f g h i);
    Neighbourhood "neighbor_allgather" MPI_Neighbor_allgather PMPI_Neighbor_allgather (a b c d e f g);
    Neighbourhood "neighbor_allgatherv" MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv (a b c d e f g h);
    Neighbourhood "neighbor_alltoall" MPI_Neighbor_alltoall PMPI_Neighbor_alltoall (a b c d e f g);
    Neighbourhood "neighbor_alltoallv" MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv (a b c d e f g h i);
    Neighbourhood "neighbor_alltoallw" MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw (a b c d e f g h i);
    NonBlocking "ineighbor_allgather" MPI_Ineighbor_allgather PMPI_Ineighbor_allgather (a b c d e f g h);
    NonBlocking "ineighbor_allgatherv" MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv (a b c d e f g h i);
    NonBlocking "ineighbor_alltoall" MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall (a b c d e f g h);
    NonBlocking "ineighbor_alltoallv" MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv (a b c d e f g h i j);
    NonBlocking "ineighbor_alltoallw" MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw (a b c d e f g h i j);
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
    NonBlocking "ialltoallw" MPI_Ialltoallw PMPI_Ialltoallw (a b c d e f g h i j);
    NonBlocking "ireduce_scatter" MPI_Ireduce_scatter PMPI_Ireduce_scatter (a b c d e f g);
    NonBlocking "ireduce_scatter_block" MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block (a b c d e f g);
    NonBlocking "iscan" MPI_Iscan PMPI_Iscan (a b c d e f g);
    NonBlocking "iexscan" MPI_Iexscan PMPI_Iexscan (a b c d e f g);
}
