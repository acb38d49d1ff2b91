//! What the fake's sequencer does.

use std::sync::atomic::Ordering;

use cmdseq::{AddressSpace, Completion, Instruction, Operation, Status};
use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaProgress, DmaTag};

use crate::{ALIGN, BLOCK, Ports, RING_ADDRESS, Reply, STEPS, State, Times};

impl State {
    pub(crate) fn register(&self, offset: u32) -> u32 {
        self.registers.get(&(BLOCK + offset)).copied().unwrap_or(0)
    }

    fn base(&self, low: u32) -> u64 {
        u64::from(self.register(low)) | u64::from(self.register(low + 4)) << 32
    }

    pub(crate) fn halt(&mut self, bits: u32) {
        self.registers.insert(BLOCK + 0x108, bits);
        self.is_error_seen = false;
    }

    pub(crate) fn read(&mut self, offset: u32) -> u32 {
        if let Some(value) = self.forced.get(&offset) {
            return *value;
        }
        match offset.wrapping_sub(BLOCK) {
            0x108 => {
                self.is_error_seen = true;
                self.register(0x108)
            }
            0x104 => {
                if self.aborted_at.is_some() && self.asked_at.is_none() {
                    self.asked_at = Some(STEPS.fetch_add(1, Ordering::Relaxed));
                }
                let halted = u32::from(self.register(0x108) != 0) << 2;
                1 | u32::from(self.hanging.is_some()) << 1 | halted
            }
            0x120 => self.hanging.map_or(0, |(instruction, _)| {
                1 << 24 | u32::from(instruction.operation as u8) << 16 | u32::from(instruction.tag)
            }),
            0x428 => self.fetched,
            0x42c => self.completed,
            // What is written only reads as zero.
            0x110 | 0x418 | 0x41c | 0x420 => 0,
            _ => self.registers.get(&offset).copied().unwrap_or(0),
        }
    }

    pub(crate) fn write(&mut self, ports: &Ports, offset: u32, value: u32) {
        match offset.wrapping_sub(BLOCK) {
            0x108 => {
                assert!(self.is_error_seen, "ERROR is cleared unread");
                *self.registers.entry(offset).or_default() &= !value;
            }
            0x110 if value == 0x504f_5453 => {
                self.aborted_at = self.aborted_at.or_else(|| Some(STEPS.fetch_add(1, Ordering::Relaxed)));
                self.abort(ports);
            }
            0x414 => {
                self.registers.insert(offset, value & 1);
                if value & 1 == 1 {
                    (self.tail, self.fetched, self.completed, self.taken, self.armed) = (0, 0, 0, 0, None);
                }
            }
            0x418 => {
                assert!(value.wrapping_sub(self.fetched) <= self.register(0x410), "more than the ring has");
                self.tail = value;
                self.run(ports);
            }
            0x41c => {
                assert!(value.wrapping_sub(self.taken) <= self.completed.wrapping_sub(self.taken));
                self.taken = value;
            }
            0x420 => {
                self.armed = Some(value);
                self.arms += 1;
                if let Some((instruction, Reply::OnceAwaited(code))) = self.hanging {
                    self.hanging = None;
                    self.complete(ports, &instruction, code, 0);
                    self.run(ports);
                }
                self.interrupt(ports);
            }
            0x100 => {
                self.registers.insert(offset, value);
                self.run(ports);
            }
            _ => {
                self.registers.insert(offset, value);
            }
        }
    }

    fn abort(&mut self, ports: &Ports) {
        if self.hanging.is_some_and(|(_, reply)| reply == Reply::Deaf) {
            return;
        }
        self.registers.insert(BLOCK + 0x100, 0);
        // What was left by a user before has no ring to complete to.
        if let Some((instruction, _)) = self.hanging.take().filter(|_| self.registers.contains_key(&(BLOCK + 0x410))) {
            self.complete(ports, &instruction, 14, 0);
        }
    }

    pub(crate) fn run(&mut self, ports: &Ports) {
        let depth = self.register(0x410);
        while self.fetched != self.tail
            && self.hanging.is_none()
            && self.register(0x100) == 1
            && self.register(0x108) == 0
        {
            let mut word = [0; 64];
            self.fetch(ports, self.base(0x400) + 64 * u64::from(self.fetched & (depth - 1)), &mut word);
            let count = self.fetched;
            self.fetched = self.fetched.wrapping_add(1);
            let instruction = Instruction::decode(&word).expect("a word that is whole");
            assert_eq!(instruction.tag, count as u16);
            self.ran.push(instruction.operation);
            match self.script.get(&count).copied() {
                None => {
                    self.move_data(ports, &instruction);
                    self.complete(ports, &instruction, 0, 0);
                }
                Some(Reply::Code(code, detail)) => self.complete(ports, &instruction, code, detail),
                Some(Reply::WrongTag) => {
                    self.complete(ports, &instruction.with_tag(instruction.tag ^ 0x40), 0, 0);
                }
                Some(Reply::WrongPhase) => self.put(ports, &instruction, 0, 0, true),
                Some(Reply::Twice) => {
                    self.complete(ports, &instruction, 0, 0);
                    self.complete(ports, &instruction, 0, 0);
                }
                Some(Reply::Silence) => {}
                Some(reply @ (Reply::Hang | Reply::Deaf | Reply::OnceAwaited(_))) => {
                    self.hanging = Some((instruction, reply));
                }
                Some(Reply::Halt(bits)) => self.halt(bits),
                Some(Reply::Late) => self.late(ports, &instruction),
            }
        }
    }

    fn move_data(&mut self, ports: &Ports, instruction: &Instruction) {
        let bytes = instruction.bytes as usize;
        let (source, destination) = (instruction.source, instruction.destination);
        let is_aligned = |address: u64| address % ALIGN as u64 == 0;
        match instruction.operation {
            Operation::Copy => {
                assert!(is_aligned(source.address) && is_aligned(destination.address), "{instruction:?}");
                let mut data = vec![0; bytes];
                if source.space == AddressSpace::Host {
                    assert_eq!(ports.0.read(DmaTag(0), Iova(source.address), &mut data), DmaProgress::Done(Ok(())));
                } else {
                    data.copy_from_slice(&self.memory[source.address as usize..][..bytes]);
                }
                if destination.space == AddressSpace::Host {
                    let done = ports.0.write(DmaTag(0), Iova(destination.address), &data);
                    assert_eq!(done, DmaProgress::Done(Ok(())));
                } else {
                    self.memory[destination.address as usize..][..bytes].copy_from_slice(&data);
                }
            }
            Operation::Fill => {
                let pattern = instruction.extent.to_le_bytes();
                let range = &mut self.memory[destination.address as usize..][..bytes];
                range.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, value)| *byte = *value);
            }
            _ => {}
        }
    }

    pub(crate) fn complete(&mut self, ports: &Ports, instruction: &Instruction, code: u8, detail: u16) {
        self.put(ports, instruction, code, detail, false);
        self.interrupt(ports);
    }

    /// Completes with T2 before T1.
    fn late(&mut self, ports: &Ports, instruction: &Instruction) {
        self.put(ports, instruction, 0, 0, false);
        let at = self.base(0x408) + 32 * u64::from((self.completed - 1) & (self.register(0x410) - 1));
        // The low 40 bits of the third word are T2.
        self.put_bytes(ports, at + 16, &[9, 0, 0, 0, 0]);
        self.interrupt(ports);
    }

    fn put(&mut self, ports: &Ports, instruction: &Instruction, code: u8, detail: u16, wrong_phase: bool) {
        let depth = self.register(0x410);
        let count = self.completed;
        assert!(count.wrapping_sub(self.taken) < depth, "a completion that was not taken is written over");
        let Times { t1, t2, arrival, next } = (self.times)(instruction);
        let completion = Completion {
            tag: instruction.tag,
            status: Status::from_code(code),
            detail,
            issued: self.clock & ((1 << 48) - 1),
            t1,
            t2,
            arrival,
            bytes: instruction.bytes,
            phase: (count / depth).is_multiple_of(2) != wrong_phase,
        };
        self.clock += next;
        self.completed = count.wrapping_add(1);
        let at = self.base(0x408) + 32 * u64::from(count & (depth - 1));
        self.put_bytes(ports, at, &completion.encode());
    }

    /// Reads from a ring, in host memory or its own.
    fn fetch(&self, ports: &Ports, at: u64, data: &mut [u8]) {
        match at.checked_sub(RING_ADDRESS) {
            Some(at) => data.copy_from_slice(&self.ring_memory[at as usize..][..data.len()]),
            None => assert_eq!(ports.0.read(DmaTag(0), Iova(at), data), DmaProgress::Done(Ok(()))),
        }
    }

    /// Writes to a ring, in host memory or its own.
    fn put_bytes(&mut self, ports: &Ports, at: u64, data: &[u8]) {
        match at.checked_sub(RING_ADDRESS) {
            Some(at) => self.ring_memory[at as usize..][..data.len()].copy_from_slice(data),
            None => assert_eq!(ports.0.write(DmaTag(0), Iova(at), data), DmaProgress::Done(Ok(()))),
        }
    }

    /// A write by the host, which is on its way until a read of the same word.
    pub(crate) fn post_to_ring_memory(&mut self, offset: usize, word: [u8; 4]) {
        self.ring_writes += 1;
        self.posted.push((offset, word));
    }

    /// A read by the host, which passes no write of the same word, nor what was written before that.
    pub(crate) fn read_ring_memory(&mut self, offset: usize) -> [u8; 4] {
        self.ring_reads += 1;
        let arrived = self.posted.iter().rposition(|(at, _)| *at == offset).map_or(0, |last| last + 1);
        for (at, word) in self.posted.drain(..arrived) {
            self.ring_memory[at..][..4].copy_from_slice(&word);
        }
        let word = &self.ring_memory[offset..][..4];
        [word[0], word[1], word[2], word[3]]
    }

    fn interrupt(&mut self, ports: &Ports) {
        if self.armed.is_some_and(|seen| self.completed.wrapping_sub(seen).cast_signed() > 0) {
            self.armed = None;
            ports.1.raise(0);
        }
    }
}
