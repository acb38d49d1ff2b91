//! Where an entry of a ring lies, and when a completion is complete.

use cmdseq::{completion, instruction};

/// Memory that a card writes completions to. Completions are named by their count, modulo 2^32.
pub(crate) trait CompletionMemory {
    /// Why an access fails.
    type Error;

    /// Loads the word of completion `count` that the card writes last. Later reads see what the card wrote before it.
    fn load_phase_word(&self, count: u32) -> Result<u64, Self::Error>;

    /// Copies completion `count`.
    fn read(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<(), Self::Error>;
}

/// Offset of instruction `count` in a ring of `depth` entries.
#[inline]
pub(crate) fn instruction_offset(count: u32, depth: u32) -> usize {
    (count & (depth - 1)) as usize * instruction::BYTES
}

/// Offset of completion `count` in a ring of `depth` entries.
#[inline]
pub(crate) fn completion_offset(count: u32, depth: u32) -> usize {
    (count & (depth - 1)) as usize * completion::BYTES
}

/// Copies completion `count` of the ring of `depth` entries in `memory` to `word` and returns true if the card has written it:
/// the phase bit turns with every pass, and is set in the first.
#[inline(always)]
pub(crate) fn poll<M: CompletionMemory>(
    memory: &M,
    depth: u32,
    count: u32,
    word: &mut [u8; completion::BYTES],
) -> Result<bool, M::Error> {
    let phase = completion::phase_of(memory.load_phase_word(count)?);
    if phase != (count & depth == 0) {
        return Ok(false);
    }
    memory.read(count, word)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::Ordering;

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::thread;

    use super::*;

    const DEPTH: u32 = 2;
    const WORDS: usize = completion::BYTES / 8;

    /// A completion ring in memory, whose device writes the phase word in this order.
    struct Modelled {
        words: Vec<AtomicU64>,
        /// Completions that the host has announced as taken.
        taken: AtomicU32,
        order: Ordering,
    }

    impl CompletionMemory for Modelled {
        type Error = Infallible;

        fn load_phase_word(&self, count: u32) -> Result<u64, Infallible> {
            let offset = completion_offset(count, DEPTH) + completion::PHASE_WORD;
            Ok(self.words[offset / 8].load(Ordering::Acquire))
        }

        fn read(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<(), Infallible> {
            let (parts, _) = word.as_chunks_mut::<8>();
            for (from, part) in self.words[completion_offset(count, DEPTH) / 8..].iter().zip(parts) {
                *part = from.load(Ordering::Relaxed).to_le_bytes();
            }
            Ok(())
        }
    }

    /// What the device writes as completion `count`.
    fn words(count: u32) -> [u64; WORDS] {
        let phase = u64::from(count / DEPTH % 2 == 0) << 63;
        [1, 2, 3, 4 | phase].map(|word| word + 10 * u64::from(count))
    }

    impl Modelled {
        /// The device's part: the phase word last, and nothing over what the host has not taken.
        fn write(&self, count: u32) {
            while count - self.taken.load(Ordering::Acquire) >= DEPTH {
                thread::yield_now();
            }
            let at = completion_offset(count, DEPTH) / 8;
            let [body @ .., last] = words(count);
            body.iter().zip(&self.words[at..]).for_each(|(word, to)| to.store(*word, Ordering::Relaxed));
            self.words[at + WORDS - 1].store(last, self.order);
        }

        /// The host's part: takes completion `count`, and then announces it.
        fn take(&self, count: u32) {
            let mut word = [0; completion::BYTES];
            loop {
                let Ok(is_written) = poll(self, DEPTH, count, &mut word);
                if is_written {
                    break;
                }
                thread::yield_now();
            }
            let (found, _) = word.as_chunks::<8>();
            assert_eq!(found.iter().map(|one| u64::from_le_bytes(*one)).collect::<Vec<_>>(), words(count));
            self.taken.store(count + 1, Ordering::Release);
        }
    }

    /// Takes three completions from a ring of two while the device writes them, in every order that memory allows.
    fn check(order: Ordering) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let words = (0..DEPTH as usize * WORDS).map(|_| AtomicU64::new(0)).collect();
            let ring = Arc::new(Modelled { words, taken: AtomicU32::new(0), order });
            let device = Arc::clone(&ring);
            let writing = thread::spawn(move || (0..3).for_each(|count| device.write(count)));
            (0..3).for_each(|count| ring.take(count));
            writing.join().unwrap();
        });
    }

    #[test]
    fn a_completion_is_seen_whole_or_not_at_all() {
        check(Ordering::Release);
    }

    #[test]
    #[should_panic(expected = "assertion `left == right` failed")]
    fn the_model_finds_a_device_that_writes_the_phase_word_out_of_order() {
        check(Ordering::Relaxed);
    }
}
