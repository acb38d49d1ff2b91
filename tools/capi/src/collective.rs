//! Functions on collectives: plan, data, launch, test, wait, times, event, abort, release.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use ::fpga_collective::{Cards, Class, CollectiveId, Request};

use crate::error::{Error, Result, call};
use crate::handles::{fpga_cluster, fpga_collective};
use crate::{handles, memory};

/// What is to be planned, by the names of fpgactl. Start with {0}: later versions add fields at the end, for which 0 means
/// "as before".
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct fpga_request {
    /// The operation, such as "allreduce". Vector forms, such as "allgatherv", are refused.
    pub operation: *const c_char,
    /// The reduction, such as "sum"; NULL if the operation does not reduce.
    pub reduction: *const c_char,
    /// The type of the elements, such as "f32"; NULL if the operation does not reduce.
    pub element: *const c_char,
    /// The algorithm, such as "ring"; NULL for the one with the earliest predicted arrival.
    pub algorithm: *const c_char,
    /// Bytes, as fpgactl counts them: a block of each rank.
    pub bytes: u64,
    /// Root, or sender: a rank, which is the index of a card.
    pub root: u32,
    /// Receiver of a send.
    pub peer: u32,
}

/// Bytes of a request of the first version of the library, which ends with `peer`.
const FIRST_REQUEST: usize = std::mem::offset_of!(fpga_request, peer) + size_of::<u32>();

impl Default for fpga_request {
    fn default() -> Self {
        let none = std::ptr::null();
        fpga_request { operation: none, reduction: none, element: none, algorithm: none, bytes: 0, root: 0, peer: 0 }
    }
}

/// What was planned. Later versions add fields at the end only.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct fpga_plan {
    /// Predicted time until the last byte arrives at the last rank, microseconds.
    pub predicted_us: f64,
    /// Number of ranks.
    pub ranks: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Times of a launch, counted by the cards: the largest over the ranks, in microseconds from the issue on each. Later versions
/// add fields at the end only.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct fpga_times {
    /// T1: all beats of the last instruction counted out.
    pub t1_us: f64,
    /// T2: the last instruction complete.
    pub t2_us: f64,
    /// The last byte counted in; 0 if none was.
    pub arrival_us: f64,
}

/// Plans a collective on all cards of a cluster, verifies it and stores it on the cards. `bytes` is sizeof(fpga_request). After an
/// error *collective is unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_plan(
    cluster: *mut fpga_cluster,
    request: *const fpga_request,
    bytes: usize,
    collective: *mut *mut fpga_collective,
) -> c_int {
    call(|| {
        let collective = memory::out(collective, "collective")?;
        let given = memory::structure(request, bytes, FIRST_REQUEST, "request")?;
        let request = Request {
            operation: memory::text(given.operation, "operation")?,
            reduction: memory::option(given.reduction, "reduction")?,
            element: memory::option(given.element, "element")?,
            algorithm: memory::option(given.algorithm, "algorithm")?,
            root: given.root,
            peer: given.peer,
            bytes: given.bytes,
        };
        collective.set(handles::plan(cluster, |cards| Ok(cards.plan(&request)?))?);
        Ok(())
    })
}

/// Stores what was planned in the first `bytes` bytes of *plan: pass sizeof(fpga_plan). Zeros bytes that this version of the library
/// does not know.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_describe(
    collective: *mut fpga_collective,
    plan: *mut fpga_plan,
    bytes: usize,
) -> c_int {
    call(|| {
        let plan = memory::out(plan, "plan")?;
        let found = handles::with_collective(collective, |cards, id| Ok(cards.describe(id)?))?;
        plan.set_prefix(fpga_plan { predicted_us: found.predicted_us, ranks: found.ranks, reserved: 0 }, bytes)
    })
}

/// Copies the name of the algorithm to `bytes` bytes at `name`, a zero byte included. 16 are enough.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_algorithm(
    collective: *mut fpga_collective,
    name: *mut c_char,
    bytes: usize,
) -> c_int {
    call(|| {
        let found = handles::with_collective(collective, |cards, id| Ok(cards.describe(id)?))?;
        memory::copy_text(found.algorithm, name, bytes)
    })
}

/// Stores the bytes of a rank's input and output; 0 for a rank without one.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_bytes(
    collective: *mut fpga_collective,
    rank: u32,
    input: *mut u64,
    output: *mut u64,
) -> c_int {
    call(|| {
        let (input, output) = (memory::out(input, "input")?, memory::out(output, "output")?);
        let (in_bytes, out_bytes) = handles::with_collective(collective, |cards, id| Ok(cards.data_bytes(id, rank)?))?;
        input.set(in_bytes);
        output.set(out_bytes);
        Ok(())
    })
}

/// Writes `bytes` bytes at `data` to byte `offset` and on of a rank's input.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_write(
    collective: *mut fpga_collective,
    rank: u32,
    offset: u64,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let data = memory::bytes(data, bytes)?;
        handles::with_collective(collective, |cards, id| Ok(cards.write_input(id, rank, offset, data)?))
    })
}

/// Reads `bytes` bytes from byte `offset` and on of a rank's output to `data`. After an error the content of `data` is undefined.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_read(
    collective: *mut fpga_collective,
    rank: u32,
    offset: u64,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let data = memory::bytes_mut(data, bytes)?;
        handles::with_collective(collective, |cards, id| Ok(cards.read_output(id, rank, offset, data)?))
    })
}

/// Launches a collective: one doorbell a card. Returns at once. A launch may be repeated once it is done. FPGA_REFUSED if a collective
/// of the cluster is in flight; and if the last launch has replaced the inputs (an alltoall for which a card has no room for input
/// and output), until the input of every rank is written again. A write of any part of an input counts.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_launch(collective: *mut fpga_collective) -> c_int {
    call(|| handles::with_collective(collective, |cards, id| Ok(cards.launch(id)?)))
}

/// Runs `body`, which may end the launch. Then the descriptor is no longer readable for it.
fn with_launch<T>(
    collective: *mut fpga_collective,
    body: impl FnOnce(&mut Cards, CollectiveId) -> Result<T>,
) -> Result<T> {
    handles::with_collective(collective, |cards, id| {
        let outcome = body(cards, id);
        cards.clear_event();
        outcome
    })
}

/// Stores 1 in *is_done if all ranks are done with the last launch, else 0. Never waits. It finds out a card that is gone within
/// 200 ms: then it returns FPGA_GONE, and the launch is over. FPGA_REFUSED if there was no launch, or it failed or was aborted.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_test(collective: *mut fpga_collective, is_done: *mut c_int) -> c_int {
    call(|| {
        let is_done = memory::out(is_done, "is_done")?;
        let times = with_launch(collective, |cards, id| Ok(cards.test(id)?))?;
        is_done.set(times.is_some().into());
        Ok(())
    })
}

/// Waits until all ranks are done with the last launch, for at most `timeout_us` microseconds. Returns at once if they are. After
/// FPGA_TIMEOUT the launch goes on: wait again, or abort it. After another error it is over, and the output is undefined.
/// FPGA_REFUSED if there was no launch, or it failed or was aborted.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_wait(collective: *mut fpga_collective, timeout_us: u64) -> c_int {
    let timeout = Duration::from_micros(timeout_us);
    call(|| with_launch(collective, |cards, id| Ok(cards.wait(id, timeout).map(drop)?)))
}

/// Stores the times of the last launch in the first `bytes` bytes of *times: pass sizeof(fpga_times). Zeros bytes that this version
/// of the library does not know. FPGA_REFUSED if it is not done.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_times(
    collective: *mut fpga_collective,
    times: *mut fpga_times,
    bytes: usize,
) -> c_int {
    call(|| {
        let times = memory::out(times, "times")?;
        let found = handles::with_collective(collective, |cards, id| Ok(cards.times(id)?))?;
        let found = found.ok_or_else(not_done)?;
        let value = fpga_times { t1_us: found.t1_us, t2_us: found.t2_us, arrival_us: found.arrival_us };
        times.set_prefix(value, bytes)
    })
}

fn not_done() -> Error {
    ::fpga_collective::Error::new(Class::Refused, "no launch is done: launch and wait first").into()
}

/// Stores a descriptor that becomes readable when a launch may be done, for poll and epoll. Whenever it is, call
/// fpga_collective_test, which says whether the launch is done, and readies the descriptor for the next event. Once no launch is in
/// flight, fpga_collective_test, _wait and _abort make it unreadable until the next launch; an interrupt that comes late, or a call that
/// moves data, may wake a program once more. A card that is gone raises no event: wake up every second to test. The descriptor is the
/// cluster's: do not read or close it. It is closed with the cluster.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_event(collective: *mut fpga_collective, descriptor: *mut c_int) -> c_int {
    call(|| {
        let descriptor = memory::out(descriptor, "descriptor")?;
        let event = |cards: &mut Cards| -> Result<c_int> { Ok(cards.event()?.as_raw_fd()) };
        descriptor.set(handles::with_collective(collective, |cards, _| event(cards))?);
        Ok(())
    })
}

/// Ends the launch in flight, if there is one. Its output is undefined; the collective may be launched again.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_abort(collective: *mut fpga_collective) -> c_int {
    call(|| with_launch(collective, |cards, id| Ok(cards.abort(id)?)))
}

/// Removes a collective from the cards. The handle is closed, unless the call returns FPGA_BUSY or FPGA_INTERNAL.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_collective_release(collective: *mut fpga_collective) -> c_int {
    call(|| handles::release(collective))
}
