//! `MPI_Alloc_mem` and `MPI_Free_mem`.

use crate::foreign::{Code, Inside, SUCCESS, Word};
use crate::memory::{self, Memory};
use crate::session::{Session, session};

/// Allocates `bytes` bytes that the card reaches, and has `store` keep their address. Where there are none, allocates by `pass`.
pub(crate) fn allocate(bytes: Word, store: impl FnOnce(Word), pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let allocated = session().as_mut().and_then(|session| reached(session, bytes));
    match allocated {
        Some(address) => {
            store(address);
            SUCCESS
        }
        None => pass(),
    }
}

fn reached(session: &mut Session, bytes: Word) -> Option<Word> {
    let bytes = isize::try_from(bytes).ok().filter(|bytes| *bytes > 0)? as usize;
    let memory = Memory::of(session.engine()?.allocate(bytes)?)?;
    let address = memory.address();
    memory::add(memory);
    Some(address)
}

/// Frees memory of [`allocate`]; any other by `pass`. MPI may be calling the program now, which frees its memory in a delete function or an
/// error handler.
pub(crate) fn free(address: Word, pass: impl FnOnce() -> Code) -> Code {
    // A card that still uses it, after an error, keeps it.
    memory::remove(address).map_or_else(pass, |_| SUCCESS)
}
