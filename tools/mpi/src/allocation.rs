//! `MPI_Alloc_mem` and `MPI_Free_mem`.

use crate::foreign::{Code, Inside, SUCCESS, Word};
use crate::memory::Memory;
use crate::session::{Session, session};

/// Allocates `bytes` bytes that the card reaches, and has `store` keep their address. Where there are none, allocates by `pass`.
pub(crate) fn allocate(bytes: Word, store: impl FnOnce(Word), pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    match session().as_mut().and_then(|session| reached(session, bytes)) {
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
    session.memories.add(memory);
    Some(address)
}

/// Frees memory of [`allocate`]; any other by `pass`.
pub(crate) fn free(address: Word, pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let freed = session().as_mut().and_then(|session| session.memories.remove(address));
    // A card that still uses it, after an error, keeps it.
    freed.map_or_else(pass, |_| SUCCESS)
}
