//! Writes that need no reply, and the replies that some servers send to those they refuse.

use std::{fmt, io};

use nix::errno::Errno;

use crate::Error;
use crate::vfio_user::wire::region::RegionAccess;

/// Message ids from here on belong to posted writes, those below to commands that wait for their replies.
pub(super) const FIRST_ID: u16 = 0x8000;
/// So many of the last posted writes are known by their ids.
const KNOWN: usize = 64;

/// A posted write that the server refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusedWrite {
    /// `None`: many writes were posted after it.
    pub(super) access: Option<RegionAccess>,
    pub(super) errno: Errno,
}

impl fmt::Display for RefusedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an earlier write")?;
        if let Some(RegionAccess { offset, region, count }) = self.access {
            write!(f, " of {count} bytes at offset {offset:#x} of BAR{region}")?;
        }
        write!(f, ": {}", self.errno.desc())
    }
}

impl From<RefusedWrite> for Error {
    fn from(refused: RefusedWrite) -> Self {
        let kind = io::Error::from(refused.errno).kind();
        Error::Refused { what: "write to a register of", source: io::Error::new(kind, refused.to_string()) }
    }
}

/// The posted writes of a connection.
#[derive(Debug, Default)]
pub(super) struct Posted {
    writes: u64,
    /// The last writes: the one with number N is at N modulo [`KNOWN`].
    known: Vec<RegionAccess>,
    /// The first refused write since the function was reset.
    refused: Option<RefusedWrite>,
}

impl Posted {
    /// Notes a write, and returns its message id.
    pub(super) fn add(&mut self, access: RegionAccess) -> u16 {
        let number = self.writes;
        self.writes += 1;
        if self.known.len() < KNOWN {
            self.known.push(access);
        } else {
            self.known[number as usize % KNOWN] = access;
        }
        FIRST_ID + (number % u64::from(FIRST_ID)) as u16
    }

    /// Notes the reply to the write with the message id `id`: only an error is kept. Returns whether there was such a write.
    pub(super) fn replied(&mut self, id: u16, error: Option<Errno>) -> bool {
        let number = id.checked_sub(FIRST_ID).map(u64::from).filter(|number| *number < self.writes);
        let Some(number) = number else { return false };
        if let (Some(errno), None) = (error, self.refused) {
            // How many writes were posted since.
            let since = (self.writes - 1 - number) % u64::from(FIRST_ID);
            let at = ((self.writes - 1 - since) % KNOWN as u64) as usize;
            let access = (since < KNOWN as u64).then(|| self.known[at]);
            self.refused = Some(RefusedWrite { access, errno });
        }
        true
    }

    /// The first refused write since the function was reset.
    pub(super) fn refused(&self) -> Option<RefusedWrite> {
        self.refused
    }

    pub(super) fn forget_refused(&mut self) {
        self.refused = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    fn access(offset: u64) -> RegionAccess {
        RegionAccess { offset, region: 2, count: 4 }
    }

    #[test]
    fn the_last_writes_are_known_by_their_ids() {
        let mut posted = Posted::default();
        assert!(!posted.replied(FIRST_ID, Some(Errno::EIO)), "nothing was posted");
        for number in 0..u64::from(FIRST_ID) + 100 {
            let id = posted.add(access(number));
            assert_eq!(u64::from(id), u64::from(FIRST_ID) + number % u64::from(FIRST_ID));
            assert!(posted.replied(id, None) && posted.refused().is_none(), "success is ignored");
            for (back, is_known) in [(0, true), (1, true), (63, true), (64, false), (65, false)] {
                let Some(earlier) = number.checked_sub(back) else { continue };
                let id = FIRST_ID + (earlier % u64::from(FIRST_ID)) as u16;
                assert!(posted.replied(id, Some(Errno::EIO)) && posted.replied(id, Some(Errno::EBUSY)));
                let access = is_known.then(|| access(earlier));
                assert_eq!(posted.refused(), Some(RefusedWrite { access, errno: Errno::EIO }), "{number} {back}");
                posted.forget_refused();
            }
        }
        assert!(!posted.replied(FIRST_ID - 1, None));
    }

    #[test]
    fn a_refused_write_is_named_in_the_cause() {
        let text = |access| {
            let error = Error::from(RefusedWrite { access, errno: Errno::EIO });
            format!("{error}: {}", error.source().unwrap())
        };
        let begin = "The server refused to write to a register of the function: an earlier write";
        let known = format!("{begin} of 4 bytes at offset 0x10 of BAR2: I/O error");
        assert_eq!(text(Some(access(0x10))), known);
        assert_eq!(text(None), format!("{begin}: I/O error"));
    }
}
