//! Exchanges among all ranks of a communicator, by the MPI library.
//!
//! With a timeout they are non-blocking calls, which are given up once it is over. A rank that comes later still finishes what the others
//! have begun, and finds out in the next exchange that they are gone.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::Constants;
use crate::foreign::{Code, Word, pmpi};
use crate::mpi::{Comm, LATE, Packed, Result, check};

/// How long a rank polls before it sleeps between polls.
const POLLING: Duration = Duration::from_millis(1);
/// How long it sleeps.
const PAUSE: Duration = Duration::from_micros(100);

/// Exchanges on a communicator. Each is collective.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds<'a> {
    pub(crate) comm: Comm,
    pub(crate) constants: &'a Constants,
    /// Longest wait for the other ranks.
    pub(crate) timeout: Option<Duration>,
}

/// Makes a call of MPI that blocks, or with a timeout the one that does not, and waits for it. The arguments are those of both.
macro_rules! exchange {
    ($rounds:expr, $blocking:ident $beginning:ident $(, $argument:expr)* $(,)?) => {
        match $rounds.timeout {
            None => check(pmpi!($blocking $(, $argument)*)),
            Some(timeout) => {
                let mut request: Word = 0;
                let begun = check(pmpi!($beginning $(, $argument)*, &raw mut request));
                begun.and_then(|()| $rounds.wait(request, timeout))
            }
        }
    };
}

impl Rounds<'_> {
    pub(crate) fn barrier(self) -> Result<()> {
        // SAFETY: the communicator exists, and MPI writes a handle of at most a word.
        unsafe { exchange!(self, MPI_Barrier MPI_Ibarrier, self.comm.0) }
    }

    /// With a timeout, fails on a rank that came too late for the exchange before, so that a call without a timeout may follow.
    pub(crate) fn confirm(self) -> Result<()> {
        if self.timeout.is_some() { self.barrier() } else { Ok(()) }
    }

    /// Returns the `numbers` of all members, by rank: all have as many.
    pub(crate) fn allgather_numbers(self, numbers: Vec<i64>) -> Result<Vec<i64>> {
        let (count, int64) = (numbers.len(), self.constants.int64);
        let mut all = vec![0i64; count * self.comm.size()? as usize];
        let (from, to) = (numbers.as_ptr(), all.as_mut_ptr());
        // SAFETY: MPI reads `count` integers of 64 bits, and writes as many for each member.
        let done =
            unsafe { exchange!(self, MPI_Allgather MPI_Iallgather, from, count, int64, to, count, int64, self.comm.0) };
        kept((numbers, all), done).map(|(_, all)| all)
    }

    /// Adds up the `numbers` of all members: all have as many.
    pub(crate) fn sum_numbers(self, mut numbers: Vec<i64>) -> Result<Vec<i64>> {
        let &Constants { in_place, int64, sum, .. } = self.constants;
        let (both, count) = (numbers.as_mut_ptr(), numbers.len());
        // SAFETY: MPI reads and writes `count` integers of 64 bits.
        let done =
            unsafe { exchange!(self, MPI_Allreduce MPI_Iallreduce, in_place, both, count, int64, sum, self.comm.0) };
        kept(numbers, done)
    }

    /// Sends `data` to all members, and returns what each has sent, by rank. One call of MPI, or two if data is long.
    pub(crate) fn allgather(self, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        let own = packet(data).to_vec();
        let byte = self.constants.byte;
        let mut packets = vec![0u8; PACKET * self.comm.size()? as usize];
        let (from, to) = (own.as_ptr(), packets.as_mut_ptr());
        // SAFETY: MPI reads one packet and writes one for each member.
        let done =
            unsafe { exchange!(self, MPI_Allgather MPI_Iallgather, from, PACKET, byte, to, PACKET, byte, self.comm.0) };
        let (_, packets) = kept((own, packets), done)?;
        let (packets, _) = packets.as_chunks::<PACKET>();
        if let Some(all) = packets.iter().map(of_packet).collect() {
            return Ok(all);
        }
        let lengths: Vec<i64> = packets.iter().map(length_in).collect();
        // What exceeds an integer is no message of ours: nothing is exchanged, on any rank.
        let total: i64 = lengths.iter().sum();
        let (Ok(_), true) = (c_int::try_from(total), lengths.iter().all(|length| *length >= 0)) else {
            return Err(c_int::MAX);
        };
        let packed = Packed::of(lengths.iter().map(|length| *length as u64));
        let (own, mut all) = (data.to_vec(), vec![0u8; total as usize]);
        let (from, length, to) = (own.as_ptr(), own.len(), all.as_mut_ptr());
        let (counts, places) = (packed.counts(), packed.places());
        // SAFETY: MPI reads `length` bytes, and writes `counts` bytes at `places`, which lie one after the other in `all`.
        let done = unsafe {
            exchange!(self, MPI_Allgatherv MPI_Iallgatherv, from, length, byte, to, counts, places, byte, self.comm.0)
        };
        let (_, packed, all) = kept((own, packed, all), done)?;
        Ok(packed.blocks(&all))
    }

    /// Waits for a call that was begun.
    fn wait(self, mut request: Word, timeout: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let mut is_over: c_int = 0;
            let (flag, status) = (&raw mut is_over, self.constants.status_ignore);
            // SAFETY: the request was begun and is not over; MPI writes it and an integer, and no status.
            check(unsafe { pmpi!(MPI_Test, &raw mut request, flag, status) })?;
            let waited = began.elapsed();
            match () {
                () if is_over != 0 => return Ok(()),
                () if waited >= timeout => return Err(LATE),
                () if waited < POLLING => thread::yield_now(),
                () => thread::sleep(PAUSE),
            }
        }
    }
}

/// Returns the buffers of a call that succeeded. Those of another one stay where they are for ever: MPI may still use them.
fn kept<T>(buffers: T, done: Result<()>) -> std::result::Result<T, Code> {
    let buffers = ManuallyDrop::new(buffers);
    done.map(|()| ManuallyDrop::into_inner(buffers))
}

/// Bytes of the first message of [`Rounds::allgather`]: the length of the data, and the data if there is room. What ranks agree on is
/// short.
const PACKET: usize = 256;
const HEAD: usize = size_of::<i64>();

fn packet(data: &[u8]) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[..HEAD].copy_from_slice(&(data.len() as i64).to_le_bytes());
    if let Some(room) = packet[HEAD..].get_mut(..data.len()) {
        room.copy_from_slice(data);
    }
    packet
}

fn length_in(packet: &[u8; PACKET]) -> i64 {
    packet.first_chunk().map_or(0, |head| i64::from_le_bytes(*head))
}

/// The data of a packet; `None` if there was no room for it.
fn of_packet(packet: &[u8; PACKET]) -> Option<Vec<u8>> {
    let length = usize::try_from(length_in(packet)).ok()?;
    Some(packet[HEAD..].get(..length)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_data_is_in_the_first_message() {
        for length in [0, 1, PACKET - HEAD, PACKET - HEAD + 1, 10 * PACKET] {
            let data: Vec<u8> = (0..length).map(|at| at as u8 | 1).collect();
            let packet = packet(&data);
            assert_eq!(length_in(&packet), length as i64);
            assert_eq!(of_packet(&packet), (length <= PACKET - HEAD).then_some(data), "{length} B");
        }
    }
}
