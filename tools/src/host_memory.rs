//! Limits host memory for host buffers of programs and for mock cards.

use std::ops::Range;

use cmdseq::plan::{Piece, Plan, Program};
use fpga_hal::sysfs::Sysfs;
use fpga_select::CardMemory;

use crate::exit::{Failure, Result};
use crate::size;

/// Bytes in which mock cards allocate their memory.
const FRAME: u64 = CardMemory::FRAME_BYTES;

/// Refuses host buffers of `bytes` in total if they exceed half of the available memory. Their pages are allocated at
/// once; the other half is for mock cards, which copy them, and for other processes.
pub(crate) fn check(bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let need = format!("the host buffers of all ranks need {}", size::show(bytes));
    refuse_over_half(&Sysfs::new("/"), bytes, &need, "")
}

/// Refuses a plan on in-process mock cards if the memory for its data exceeds half of the available memory. Mock cards keep
/// their memory on the host; without this check they would fail in the middle of a run.
pub(crate) fn check_mock(plan: &Plan) -> Result<()> {
    let frames = plan.set.programs.iter().fold(0_u64, |sum, program| sum.saturating_add(frames(program)));
    let bytes = frames.saturating_mul(FRAME);
    let (of_all, of_one) = (size::show(bytes), size::show(FRAME));
    let need = format!("the inputs and outputs of all ranks need {of_all} on mock cards, in frames of {of_one}");
    refuse_over_half(&Sysfs::new("/"), bytes, &need, "; reduce --bytes or --counts, or select fewer cards")
}

/// Refuses a `need` of `bytes` if they exceed half of the available memory. `help` ends the message.
fn refuse_over_half(sysfs: &Sysfs, bytes: u64, need: &str, help: &str) -> Result<()> {
    let available = sysfs.available_memory()?;
    if bytes <= available / 2 {
        return Ok(());
    }
    let limit = size::show(available);
    Err(Failure::refused(format!("{need}: the limit is half of the {limit} of available memory{help}")))
}

/// Returns the number of frames with inputs and outputs of a program. Striped blocks lie in stripes of their own, and so in frames
/// of their own, however small they are.
fn frames(program: &Program) -> u64 {
    let touched = |piece: &Piece| {
        let end = piece.address.saturating_add(piece.bytes).div_ceil(FRAME);
        Some(piece.address / FRAME..end).filter(|_| piece.bytes > 0)
    };
    let mut ranges: Vec<Range<u64>> = program.input.iter().chain(&program.output).filter_map(touched).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut count, mut counted_to) = (0, 0);
    for range in ranges {
        count += range.end.saturating_sub(range.start.max(counted_to));
        counted_to = counted_to.max(range.end);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_counted_once_however_many_pieces_lie_in_it() {
        let pieces = |all: &[(u64, u64)]| {
            all.iter().map(|&(address, bytes)| Piece { offset: 0, address, bytes }).collect::<Vec<_>>()
        };
        let of = |input: &[(u64, u64)], output: &[(u64, u64)]| {
            frames(&Program { input: pieces(input), output: pieces(output), ..Program::from(Vec::new()) })
        };
        assert_eq!(of(&[], &[(5, 0)]), 0);
        assert_eq!(of(&[(0, 1), (1, 1), (4095, 1)], &[(64, 64)]), 1);
        assert_eq!(of(&[(4095, 2)], &[]), 2);
        assert_eq!(of(&[(0, 1 << 20)], &[(4096, 1), (1 << 20, 1)]), 257);
        assert_eq!(of(&[(0, 1), (1 << 29, 1)], &[(1 << 28, 1), (3 << 28, 1)]), 4, "one in each stripe");
        assert_eq!(of(&[(0, u64::MAX)], &[(u64::MAX - 1, u64::MAX)]), 1 << 52);
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok() && check(4096).is_ok());
        let message = check(1 << 60).unwrap_err().message().to_owned();
        assert!(message.starts_with("the host buffers of all ranks need 1048576 TiB"), "{message}");
    }

    #[test]
    fn memory_that_is_not_known_is_not_told_to_be_reduced() {
        let root = tempfile::tempdir().unwrap();
        let failure = refuse_over_half(&Sysfs::new(root.path()), 1, "need", "; reduce it").unwrap_err();
        assert!(!failure.message().contains("reduce it"), "{failure:?}");
    }
}
