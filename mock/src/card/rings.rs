//! The rings of one queue pair as the card sees them: addresses, and both sides' indices.

use fpga_regs::sequencer::queue;

/// Bytes of a submission ring entry.
const WORD_BYTES: u64 = cmdseq::instruction::BYTES as u64;
/// Bytes of a completion ring entry.
const COMPLETION_BYTES: u64 = cmdseq::completion::BYTES as u64;
/// Entries of the deepest ring.
pub(crate) const DEPTH_MAX: u32 = 4096;

/// Registers and indices of a queue. Indices count all entries ever, modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    submission_base: u64,
    completion_base: u64,
    depth: u32,
    pub(crate) is_enabled: bool,
    /// Number of times the queue was enabled or disabled.
    life: u32,
    pub(crate) vector: u32,
    /// Stored by the host.
    tail: u32,
    /// Fetched by the card.
    fetched: u32,
    /// Written by the card, as far as it knows.
    completed: u32,
    /// Written by the card, including the one being written: the host may take it before the card knows that it is there.
    begun: u32,
    /// Taken by the host.
    taken: u32,
    /// Raise the vector once `completed` is past this.
    armed: Option<u32>,
}

impl Rings {
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            queue::SUBMISSION_BASE_LO => self.submission_base as u32,
            queue::SUBMISSION_BASE_HI => (self.submission_base >> 32) as u32,
            queue::COMPLETION_BASE_LO => self.completion_base as u32,
            queue::COMPLETION_BASE_HI => (self.completion_base >> 32) as u32,
            queue::DEPTH => self.depth,
            queue::ENABLE => u32::from(self.is_enabled),
            queue::VECTOR => self.vector,
            queue::SUBMISSION_HEAD => self.fetched,
            queue::COMPLETION_TAIL => self.completed,
            _ => 0,
        }
    }

    /// Writes a register that is not a doorbell.
    pub(crate) fn configure(&mut self, offset: u32, value: u32) {
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            queue::VECTOR => self.vector = value,
            queue::ENABLE => self.set_enabled(value & 1 == 1),
            _ if self.is_enabled => {}
            queue::SUBMISSION_BASE_LO => self.submission_base = low(self.submission_base),
            queue::SUBMISSION_BASE_HI => self.submission_base = high(self.submission_base),
            queue::COMPLETION_BASE_LO => self.completion_base = low(self.completion_base),
            queue::COMPLETION_BASE_HI => self.completion_base = high(self.completion_base),
            queue::DEPTH => self.depth = value,
            _ => {}
        }
    }

    fn set_enabled(&mut self, enable: bool) {
        let aligned = (self.submission_base | self.completion_base) % WORD_BYTES == 0;
        let deep = self.depth.is_power_of_two() && (2..=DEPTH_MAX).contains(&self.depth);
        if enable && !self.is_enabled {
            (self.tail, self.fetched, self.completed, self.begun, self.taken, self.armed) = (0, 0, 0, 0, 0, None);
        }
        let is_enabled = enable && aligned && deep;
        self.life = self.life.wrapping_add(u32::from(is_enabled != self.is_enabled));
        self.is_enabled = is_enabled;
    }

    /// Returns the queue's life: enabling or disabling the queue begins another.
    pub(crate) fn life(&self) -> u32 {
        self.life
    }

    /// Accepts entries up to `tail`. Returns `false` if `tail` is invalid.
    pub(crate) fn submit(&mut self, tail: u32) -> bool {
        let fits = self.is_enabled && tail.wrapping_sub(self.fetched) <= self.depth;
        if fits && tail.wrapping_sub(self.fetched) >= self.tail.wrapping_sub(self.fetched) {
            self.tail = tail;
            return true;
        }
        false
    }

    /// Accepts that the host took completions up to `taken`. Returns `false` if `taken` is invalid.
    pub(crate) fn take(&mut self, taken: u32) -> bool {
        let fits = self.is_enabled && taken.wrapping_sub(self.taken) <= self.begun.wrapping_sub(self.taken);
        if fits {
            self.taken = taken;
        }
        fits
    }

    pub(crate) fn arm(&mut self, seen: u32) {
        self.armed = self.is_enabled.then_some(seen);
    }

    /// Returns whether the armed interrupt is due, and disarms it.
    pub(crate) fn take_due_interrupt(&mut self) -> bool {
        let is_due = self.armed.is_some_and(|seen| self.completed.wrapping_sub(seen).cast_signed() > 0);
        if is_due {
            self.armed = None;
        }
        is_due
    }

    /// Returns address and number of the entries that can be fetched at once, at most `most`.
    pub(crate) fn next_fetch(&self, most: u32) -> Option<(u64, u32)> {
        let waiting = self.tail.wrapping_sub(self.fetched);
        if !self.is_enabled || waiting == 0 {
            return None;
        }
        let place = self.fetched & (self.depth - 1);
        let count = waiting.min(most).min(self.depth - place);
        Some((self.submission_base.wrapping_add(u64::from(place) * WORD_BYTES), count))
    }

    pub(crate) fn fetched(&mut self, count: u32) {
        self.fetched = self.fetched.wrapping_add(count);
    }

    /// Returns whether the ring has room for one more completion behind those of `unfinished` instructions.
    pub(crate) fn has_room(&self, unfinished: usize) -> bool {
        // The host may have taken the completion that is being written.
        let used = self.completed.wrapping_add(unfinished as u32).wrapping_sub(self.taken);
        used.cast_signed() < self.depth.cast_signed()
    }

    /// Begins the next completion: returns its address and phase, or `None` if the queue's life has changed.
    pub(crate) fn begin_completion(&mut self, life: u32) -> Option<(u64, bool)> {
        if !self.is_enabled || self.life != life {
            return None;
        }
        self.begun = self.completed.wrapping_add(1);
        let place = self.completed & (self.depth - 1);
        let phase = self.completed / self.depth % 2 == 0;
        Some((self.completion_base.wrapping_add(u64::from(place) * COMPLETION_BYTES), phase))
    }

    pub(crate) fn completed(&mut self) {
        self.completed = self.completed.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(depth: u32) -> Rings {
        let mut rings = Rings::default();
        rings.configure(queue::SUBMISSION_BASE_LO, 0x1000);
        rings.configure(queue::COMPLETION_BASE_LO, 0x2000);
        rings.configure(queue::DEPTH, depth);
        rings.configure(queue::ENABLE, 1);
        rings
    }

    #[test]
    fn only_sound_rings_go_live() {
        assert!(live(4).is_enabled);
        assert!(!live(3).is_enabled);
        assert!(!live(DEPTH_MAX * 2).is_enabled);
        let mut rings = live(4);
        rings.configure(queue::DEPTH, 8);
        assert_eq!(rings.read(queue::DEPTH), 4, "fixed while enabled");
    }

    #[test]
    fn doorbells_that_cannot_be_are_refused() {
        let mut rings = live(4);
        assert!(!rings.submit(5));
        assert!(rings.submit(4));
        rings.fetched(4);
        assert!(!rings.submit(3), "backwards");
        assert!(rings.submit(8));
        assert!(!rings.take(1), "nothing was written");
    }

    #[test]
    fn a_completion_may_be_taken_before_its_write_is_known_to_be_over() {
        let mut rings = live(2);
        rings.begin_completion(rings.life()).unwrap();
        assert!(rings.take(1));
        assert!(rings.has_room(0));
        assert!(!rings.take(2), "the next was not begun");
        rings.completed();
        assert!(rings.has_room(0));
    }

    #[test]
    fn fetches_stop_at_the_end_of_the_ring_and_wrap() {
        let mut rings = live(4);
        rings.submit(3);
        rings.fetched(3);
        rings.submit(6);
        assert_eq!(rings.next_fetch(64), Some((0x1000 + 3 * 64, 1)));
        rings.fetched(1);
        assert_eq!(rings.next_fetch(64), Some((0x1000, 2)));
    }

    #[test]
    fn phase_turns_with_each_pass() {
        let mut rings = live(2);
        for expected in [true, true, false, false, true] {
            assert_eq!(rings.begin_completion(rings.life()).unwrap().1, expected);
            rings.completed();
            rings.take(rings.read(queue::COMPLETION_TAIL));
        }
    }

    #[test]
    fn a_queue_that_was_switched_off_takes_no_completion_begun_before() {
        let mut rings = live(4);
        let life = rings.life();
        rings.configure(queue::ENABLE, 0);
        rings.configure(queue::DEPTH, 0);
        assert_eq!(rings.begin_completion(life), None);
        rings.configure(queue::DEPTH, 4);
        rings.configure(queue::ENABLE, 1);
        assert_eq!(rings.begin_completion(life), None);
        assert!(rings.begin_completion(rings.life()).is_some());
    }

    #[test]
    fn rings_at_the_end_of_the_address_space_wrap() {
        let mut rings = Rings::default();
        for register in [queue::SUBMISSION_BASE_LO, queue::COMPLETION_BASE_LO] {
            rings.configure(register, 0xffff_ffc0);
            rings.configure(register + 4, 0xffff_ffff);
        }
        rings.configure(queue::DEPTH, 4);
        rings.configure(queue::ENABLE, 1);
        rings.submit(4);
        rings.fetched(2);
        assert_eq!(rings.next_fetch(64), Some((64, 2)));
        for _ in 0..3 {
            rings.begin_completion(rings.life()).unwrap();
            rings.completed();
        }
        assert_eq!(rings.begin_completion(rings.life()), Some((32, true)));
    }

    #[test]
    fn armed_interrupt_fires_once() {
        let mut rings = live(4);
        rings.arm(0);
        assert!(!rings.take_due_interrupt());
        rings.completed();
        assert!(rings.take_due_interrupt());
        assert!(!rings.take_due_interrupt());
        rings.arm(0);
        assert!(rings.take_due_interrupt(), "already past: at once");
    }
}
