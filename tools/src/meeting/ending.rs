//! The errors of a meeting that has ended.

use std::time::Duration;

use fpga_driver::PeersError;

use crate::meeting::frame::{DATA_MAX, End, EndKind};
use crate::meeting::part::MeetError;

/// Longest sleep between two looks for a signal.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// The end of a job in which a rank has too much to tell.
pub(super) fn too_long(rank: u32, bytes: usize) -> End {
    End {
        rank,
        kind: EndKind::Malformed,
        why: format!("{bytes} bytes to tell the others, expected at most {DATA_MAX}"),
    }
}

/// The error of an exchange in a job that ended like this.
pub(super) fn error_of(end: &End) -> PeersError {
    let (rank, why) = (end.rank, end.why.clone());
    match end.kind {
        EndKind::Gone | EndKind::Refused => PeersError::Gone { rank, why },
        EndKind::Late(waited) => PeersError::Late { rank, waited: Duration::from_millis(waited) },
        EndKind::Malformed => PeersError::Malformed { rank, what: why },
    }
}

/// The error of a meeting that ended like this.
pub(super) fn meet_error(end: End) -> MeetError {
    match end.kind {
        EndKind::Refused => MeetError::Refused { rank: end.rank, why: end.why },
        EndKind::Late(_) => MeetError::Missing { rank: end.rank, why: end.why },
        _ => MeetError::Peers(error_of(&end)),
    }
}
