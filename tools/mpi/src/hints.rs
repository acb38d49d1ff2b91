//! The info key `fpga_offload`: which calls of one communicator go to the cards.
//!
//! MPI libraries drop keys that they do not know. So the functions that give a communicator its keys come here first, and what the key
//! says is an attribute of the communicator, which no duplicate inherits: a duplicate has the keys that it was made with (MPI 4.0,
//! section 7.4.2).

use crate::abi::Abi;
use crate::entry::Inside;
use crate::foreign::{Code, SUCCESS, Word};
use crate::mpi::{Comm, Info, Key};
use crate::session::{self, session};
use crate::settings::Policy;

/// The key.
pub(crate) const KEY: &str = "fpga_offload";

/// What a rank wishes for a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// No key: the policy of the job.
    Unsaid,
    /// A value of the key.
    Policy(Policy),
    /// Another value.
    Invalid,
}

impl Wish {
    /// All, by their number.
    const ALL: [Wish; 5] = [
        Wish::Unsaid,
        Wish::Policy(Policy::Always),
        Wish::Policy(Policy::Auto),
        Wish::Policy(Policy::Never),
        Wish::Invalid,
    ];

    fn of(value: Option<&str>) -> Self {
        match value {
            None => Wish::Unsaid,
            Some(value) => Policy::parse(value).map_or(Wish::Invalid, Wish::Policy),
        }
    }

    /// The number of this wish, in an attribute or in a message.
    pub(crate) fn number(self) -> u8 {
        Wish::ALL.iter().position(|one| *one == self).unwrap_or_default() as u8
    }

    /// The wish with a number.
    pub(crate) fn numbered(number: Word) -> Self {
        Wish::ALL.get(number).copied().unwrap_or(Wish::Invalid)
    }

    fn text(self) -> &'static str {
        match self {
            Wish::Unsaid => "no fpga_offload",
            Wish::Policy(Policy::Always) => "fpga_offload=always",
            Wish::Policy(Policy::Auto) => "fpga_offload=auto",
            Wish::Policy(Policy::Never) => "fpga_offload=never",
            Wish::Invalid => "an invalid fpga_offload: expected always, auto or never",
        }
    }
}

/// The wish of all ranks, from what each has stated.
///
/// # Errors
/// Who differs, or whose value is invalid.
pub(crate) fn agreed(stated: &[Vec<u8>]) -> Result<Wish, String> {
    let wish = |rank: usize| Wish::numbered(stated[rank].first().copied().unwrap_or(u8::MAX).into());
    let (first, ranks) = (wish(0), 0..stated.len());
    if let Some(rank) = ranks.clone().find(|rank| wish(*rank) == Wish::Invalid) {
        return Err(format!("rank {rank}: {}", Wish::Invalid.text()));
    }
    match ranks.clone().find(|rank| wish(*rank) != first) {
        Some(rank) => Err(format!("rank {rank}: {}, but rank 0: {}", wish(rank).text(), first.text())),
        None => Ok(first),
    }
}

/// Gives `comm` the keys of `info` by `pass`. Collective over the communicator.
pub(crate) fn set(comm: Word, info: Word, pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let code = pass();
    if code == SUCCESS
        && let Some((wish, known)) = wished(info)
    {
        note(Comm(comm), wish, &known);
        // It is registered anew by its next call, on all ranks: on another the key may have been there.
        if matches!(Comm(comm).attribute(known.record), Ok(Some(_))) {
            let _ = Comm(comm).delete_attribute(known.record);
            session::forget_all();
        }
    }
    code
}

/// Makes a communicator with the keys of `info` by `pass`, which stores its handle at `made`. Collective.
///
/// # Safety
/// As MPI requires: `made` is the address of a handle.
pub(crate) unsafe fn made(info: Word, made: Word, pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let code = pass();
    if code == SUCCESS
        && let Some((wish, known)) = wished(info)
    {
        let comm = match known.abi {
            // SAFETY: by this function's contract; a handle of MPICH is an integer of 32 bits.
            Abi::Mpich => unsafe { (made as *const u32).read() as Word },
            // SAFETY: by this function's contract.
            _ => unsafe { (made as *const Word).read() },
        };
        note(Comm(comm), wish, &known);
    }
    code
}

/// What notes a wish, of the session.
struct Known {
    abi: Abi,
    hint: Key,
    record: Key,
}

/// The wish in `info`; `None` if no call goes to the cards anyway.
fn wished(info: Word) -> Option<(Wish, Known)> {
    let session = session();
    let session = session.as_ref().filter(|session| session.cards.is_ok())?;
    let constants = &session.constants;
    let known = Known { abi: constants.abi, hint: session.hint, record: session.key };
    if constants.abi.handle(info) == constants.info_null {
        return Some((Wish::Unsaid, known));
    }
    let value = Info(info).value(KEY);
    Some((Wish::of(value.as_deref()), known))
}

/// Notes a wish, if there is one.
fn note(comm: Comm, wish: Wish, known: &Known) {
    if wish != Wish::Unsaid {
        let _ = comm.set_attribute(known.hint, wish.number().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_differs_is_named() {
        let stated = |wishes: &[Wish]| wishes.iter().map(|wish| vec![wish.number()]).collect::<Vec<_>>();
        let [always, never] = [Policy::Always, Policy::Never].map(Wish::Policy);
        assert_eq!(agreed(&stated(&[never, never])), Ok(never));
        assert_eq!(agreed(&stated(&[Wish::Unsaid, Wish::Unsaid])), Ok(Wish::Unsaid));
        let refusal = agreed(&stated(&[always, always, never])).unwrap_err();
        assert_eq!(refusal, "rank 2: fpga_offload=never, but rank 0: fpga_offload=always");
        let refusal = agreed(&stated(&[Wish::Unsaid, Wish::of(Some("some"))])).unwrap_err();
        assert!(refusal.starts_with("rank 1: an invalid fpga_offload"), "{refusal}");
    }

    #[test]
    fn wishes_have_numbers() {
        for wish in Wish::ALL {
            assert_eq!(Wish::numbered(wish.number().into()), wish);
        }
        assert_eq!([Wish::of(Some("auto")), Wish::of(None)], [Wish::Policy(Policy::Auto), Wish::Unsaid]);
    }
}
