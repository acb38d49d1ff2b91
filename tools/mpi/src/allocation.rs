//! `MPI_Alloc_mem` and `MPI_Free_mem`.

use fpga_hal::sysfs::Sysfs;

use crate::entry::Inside;
use crate::foreign::{Code, SUCCESS, Word};
use crate::memory::{self, Memory};
use crate::mpi::Info;
use crate::session::{Session, session};

/// The info key for a larger alignment than any type needs (MPI 4.0, section 9.2).
const ALIGNMENT: &str = "mpi_minimum_memory_alignment";
/// Memory begins on a page.
const PAGE: usize = 4096;
/// Blocks below this leave room for larger ones, whose copies take longer.
const SMALL: usize = 64 << 10;
/// Most blocks, if descriptors suffice for more: each takes two mappings of the process, which has 65530 on Linux.
const BLOCKS_MAX: usize = 8192;
/// Blocks from this size on are weighed against the memory that is free: all their pages are there at once.
const LARGE: usize = 64 << 20;

/// Allocates `bytes` bytes that the card reaches, and has `store` keep their address. Where there are none, or `info` asks for what
/// they have not, allocates by `pass`.
pub(crate) fn allocate(bytes: Word, info: Word, store: impl FnOnce(Word), pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let allocated = session().as_ref().and_then(|session| reached(session, bytes, info));
    match allocated {
        Some(address) => {
            store(address);
            SUCCESS
        }
        None => pass(),
    }
}

fn reached(session: &Session, bytes: Word, info: Word) -> Option<Word> {
    let bytes = isize::try_from(bytes).ok().filter(|bytes| *bytes > 0)? as usize;
    // Each block has a descriptor. The program needs some of its own, and so do the buffers of this library.
    if memory::blocks() >= most_blocks(bytes, descriptors()) {
        return None;
    }
    if bytes >= LARGE && !has_room(bytes, available_memory()) {
        return None;
    }
    let engine = session.cards.as_ref().ok()?.engine.as_ref()?;
    let constants = &session.constants;
    if constants.abi.handle(info) != constants.info_null && alignment(Info(info)).is_some_and(|bytes| bytes > PAGE) {
        return None;
    }
    let memory = Memory::of(engine.allocate(bytes)?)?;
    let address = memory.address();
    memory::add(memory);
    Some(address)
}

/// How many descriptors this process may have; 0 if that cannot be read.
pub(crate) fn descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the system writes one structure.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if read == 0 { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { 0 }
}

/// Most blocks that the program may have when it is given one of `bytes` bytes.
fn most_blocks(bytes: usize, descriptors: usize) -> usize {
    let share = if bytes < SMALL { 4 } else { 2 };
    descriptors.min(2 * BLOCKS_MAX) / share
}

/// Whether a block of `bytes` bytes is at most a quarter of the `available` memory; `true` if that is not known. Other ranks of the
/// host may ask at the same time.
fn has_room(bytes: usize, available: Option<u64>) -> bool {
    available.is_none_or(|available| bytes as u64 <= available / 4)
}

fn available_memory() -> Option<u64> {
    Sysfs::new("/").available_memory().ok()
}

/// The alignment that the program asks for.
fn alignment(info: Info) -> Option<usize> {
    info.value(ALIGNMENT)?.trim().parse().ok()
}

/// Frees memory of [`allocate`]; any other by `pass`. MPI may be calling the program now, which frees its memory in a delete function or an
/// error handler.
pub(crate) fn free(address: Word, pass: impl FnOnce() -> Code) -> Code {
    // A card that still uses it, after an error, keeps it.
    memory::remove(address).map_or_else(pass, |_| SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_descriptors_to_the_program() {
        assert_eq!([16, SMALL].map(|bytes| most_blocks(bytes, 1024)), [256, 512]);
        assert_eq!([16, SMALL].map(|bytes| most_blocks(bytes, usize::MAX)), [BLOCKS_MAX / 2, BLOCKS_MAX]);
        assert!(descriptors() > 0);
    }

    #[test]
    fn large_blocks_leave_memory_to_others() {
        assert!(has_room(1000, Some(4000)) && !has_room(1001, Some(4003)));
        assert!(has_room(usize::MAX, None), "where the system does not say, the card's memory is the bound");
        let own = available_memory();
        assert!(own.is_some() && has_room(4096, own) && !has_room(usize::MAX, own));
    }
}
