//! What channels do: fetch descriptors, move data, report.

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaProgress, DmaTag};
use fpga_regs::xdma::{Control, DESCRIPTOR_BYTES, Descriptor, Status};

use crate::card::bus_ports::BusPorts;
use crate::xdma::card::Card;
use crate::xdma::channel::{BEAT_BYTES, Direction, Request};
use crate::xdma::notes::{Fetch, Violation};
use crate::xdma::planted::Misanswer;

/// Most bytes of one request.
const PIECE_BYTES: u32 = 256 << 10;
/// Most bytes that are moved in one access of the host; what a step costs besides is counted as [`STEP_WORK`] bytes.
const WORK_MAX: u64 = 256 << 20;
const STEP_WORK: u64 = 1024;
/// Descriptors that are fetched together cross no boundary of this many bytes.
const FETCH_PAGE: u64 = 4096;

impl Card {
    /// Has all channels do what they can, in turn, but not much in one access: a list may have no end.
    pub(super) fn run(&mut self) {
        self.worked = 0;
        let mut is_moved = true;
        while is_moved && self.worked < WORK_MAX {
            is_moved = false;
            for place in 0..self.channels.len() {
                self.worked += STEP_WORK;
                is_moved |= self.advance(place);
            }
        }
        self.update_interrupts();
    }

    /// Makes the next step of a channel. Returns whether there may be another one.
    fn advance(&mut self, place: usize) -> bool {
        let channel = &mut self.channels[place];
        let Some(run) = &mut channel.run else { return false };
        if run.outstanding.is_some() || run.is_hung {
            return false;
        }
        if let Some(word) = run.writeback.take() {
            let iova = Iova(channel.writeback);
            self.buffer.clear();
            self.buffer.extend(word.to_le_bytes());
            return self.request(place, Request::Writeback, iova);
        }
        if run.is_over {
            channel.stop();
            return true;
        }
        match run.present {
            Some((descriptor, done)) => self.move_data(place, &descriptor, done),
            None => match run.fetched.pop_front() {
                Some(bytes) => self.begin(place, &bytes),
                None => self.fetch(place),
            },
        }
    }

    fn fetch(&mut self, place: usize) -> bool {
        let channel = &mut self.channels[place];
        let bit = channel.common_bit();
        let (is_halted, has_credits) = (self.halted & bit != 0, self.credit_mode & bit != 0);
        if !channel.is_running() {
            self.fail(place, Status::IDLE_STOPPED);
            return true;
        }
        let Some(run) = &mut channel.run else { return false };
        let allowed = if has_credits { channel.credits } else { u32::MAX };
        let count = run.block_left.min(allowed).min(self.fetch_max);
        if is_halted || count == 0 {
            return false;
        }
        let bytes = count as usize * DESCRIPTOR_BYTES;
        let iova = run.next;
        let is_aligned = iova.is_multiple_of(DESCRIPTOR_BYTES as u64);
        if !is_aligned || iova % FETCH_PAGE + bytes as u64 > FETCH_PAGE {
            self.violations.note(if is_aligned { Violation::ListCrossesPage } else { Violation::MisalignedList });
            self.fail(place, Status::DESCRIPTOR_ERROR_0);
            return true;
        }
        if has_credits {
            channel.credits -= count;
        }
        if let Some(fetches) = &mut self.fetches {
            fetches.push(Fetch { direction: channel.direction, channel: channel.number, iova, count });
        }
        self.buffer.clear();
        self.buffer.resize(bytes, 0);
        self.request(place, Request::Fetch { count }, Iova(iova))
    }

    fn begin(&mut self, place: usize, bytes: &[u8; DESCRIPTOR_BYTES]) -> bool {
        let Some(descriptor) = Descriptor::decode(bytes) else {
            self.fail(place, Status::MAGIC_STOPPED);
            return true;
        };
        let channel = &mut self.channels[place];
        if channel.control & Control::FIXED_ADDRESS.bits() != 0 {
            let all = descriptor.source | descriptor.destination | u64::from(descriptor.bytes);
            if !all.is_multiple_of(BEAT_BYTES) {
                self.fail(place, Status::ALIGN_MISMATCH);
                return true;
            }
        }
        if descriptor.bytes == 0 {
            self.violations.note(Violation::NoBytes);
            self.complete(place, &descriptor);
            return true;
        }
        if let Some(run) = &mut channel.run {
            run.present = Some((descriptor, 0));
        }
        true
    }

    fn move_data(&mut self, place: usize, descriptor: &Descriptor, done: u32) -> bool {
        if std::mem::take(&mut self.hangs) {
            if let Some(run) = &mut self.channels[place].run {
                run.is_hung = true;
            }
            return false;
        }
        let bytes = (descriptor.bytes - done).min(PIECE_BYTES);
        let (source, destination) =
            (descriptor.source.wrapping_add(done.into()), descriptor.destination.wrapping_add(done.into()));
        self.buffer.clear();
        if self.channels[place].direction == Direction::H2c {
            self.buffer.resize(bytes as usize, 0);
            return self.request(place, Request::Read { bytes }, Iova(source));
        }
        let is_fixed = self.channels[place].control & Control::FIXED_ADDRESS.bits() != 0;
        let (from, length) = if is_fixed { (descriptor.source, BEAT_BYTES) } else { (source, u64::from(bytes)) };
        let read = self
            .axi(from, length)
            .and_then(|()| self.memory.append_to(from, length, &mut self.buffer).map_err(|_| Status::WRITE_ERROR_1));
        if let Err(error) = read {
            // Without its bit in CONTROL the error is not noticed: zeros are moved.
            let event = if error == Status::WRITE_ERROR_1 { Status::READ_ERROR_1 } else { Status::READ_ERROR_0 };
            if self.channels[place].control & event.bits() != 0 {
                self.fail(place, event);
                return true;
            }
            self.buffer.clear();
            self.buffer.resize(bytes as usize, 0);
        }
        while self.buffer.len() < bytes as usize {
            self.buffer.extend_from_within(..BEAT_BYTES as usize);
        }
        self.request(place, Request::Write { bytes }, Iova(destination))
    }

    /// Returns the error with which AXI slaves answer accesses of the range.
    fn axi(&self, address: u64, bytes: u64) -> Result<(), Status> {
        if !self.memory.contains(address, bytes) {
            return Err(Status::WRITE_ERROR_0);
        }
        let is_bad = |bad: &std::ops::Range<u64>| bad.start < address + bytes && address < bad.end;
        if self.bad_slaves.iter().any(is_bad) { Err(Status::WRITE_ERROR_1) } else { Ok(()) }
    }

    /// Makes a request with the buffer; returns whether it completed at once.
    fn request(&mut self, place: usize, request: Request, iova: Iova) -> bool {
        self.tag = self.tag.wrapping_add(1);
        let tag = DmaTag(self.tag);
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some(run) = &mut self.channels[place].run {
            run.outstanding = Some((tag, request));
        }
        let progress = match (BusPorts::dma(self.bus.as_ref(), &self.config), request) {
            (Err(fault), _) => DmaProgress::Done(Err(fault)),
            (Ok(port), Request::Fetch { .. } | Request::Read { .. }) => port.read(tag, iova, &mut buffer),
            (Ok(port), _) => port.write(tag, iova, &buffer),
        };
        let is_done = match progress {
            DmaProgress::Pending => false,
            DmaProgress::Done(result) => {
                self.ended(place, request, result.map(|()| &buffer[..]));
                true
            }
        };
        self.buffer = buffer;
        is_done
    }

    /// Ends a request that was pending.
    pub(super) fn dma_completed(&mut self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        let outstanding = self.channels.iter().enumerate().find_map(|(place, channel)| {
            let (of, request) = channel.run.as_ref()?.outstanding?;
            (of == tag).then_some((place, request))
        });
        // A reset may have ended it.
        if let Some((place, request)) = outstanding {
            self.ended(place, request, result);
            self.run();
        }
    }

    fn ended(&mut self, place: usize, request: Request, result: Result<&[u8], DmaFault>) {
        let Some(run) = &mut self.channels[place].run else { return };
        run.outstanding = None;
        let is_read = matches!(request, Request::Fetch { .. } | Request::Read { .. });
        let planted = if is_read { self.misanswers.next() } else { None };
        let result = match (planted, result) {
            (Some(misanswer), _) => Err(misanswer),
            (None, Ok(data)) => Ok(data),
            (None, Err(_)) => Err(Misanswer::Unsupported),
        };
        match (request, result) {
            (Request::Fetch { count }, Ok(data)) => {
                run.fetched.extend(data.as_chunks().0);
                run.next = run.next.wrapping_add(u64::from(count) * DESCRIPTOR_BYTES as u64);
                run.block_left -= count;
            }
            (Request::Fetch { .. }, Err(misanswer)) => self.fail(place, misanswer.of_descriptors()),
            (Request::Read { bytes }, Ok(data)) => self.store(place, bytes, data),
            (Request::Read { bytes }, Err(misanswer)) => {
                let event = misanswer.of_data();
                if self.channels[place].control & event.bits() != 0 {
                    self.fail(place, event);
                } else {
                    self.moved(place, bytes);
                }
            }
            // Writes are posted: nobody hears of one that was lost.
            (Request::Write { bytes }, _) => self.moved(place, bytes),
            (Request::Writeback, _) => {}
        }
    }

    /// Stores data of the present descriptor in card memory.
    fn store(&mut self, place: usize, bytes: u32, data: &[u8]) {
        let Some((descriptor, done)) = self.channels[place].run.as_ref().and_then(|run| run.present) else { return };
        let address = descriptor.destination.wrapping_add(done.into());
        let stored = self.axi(address, bytes.into());
        let stored = stored.and_then(|()| self.memory.write(address, data).map_err(|_| Status::WRITE_ERROR_1));
        match stored {
            Err(event) if self.channels[place].control & event.bits() != 0 => self.fail(place, event),
            _ => self.moved(place, bytes),
        }
    }

    /// Counts bytes of the present descriptor that were moved.
    fn moved(&mut self, place: usize, bytes: u32) {
        let channel = &mut self.channels[place];
        channel.count_data(bytes.into());
        self.worked += u64::from(bytes);
        let Some((descriptor, done)) = channel.run.as_mut().and_then(|run| run.present.as_mut()) else { return };
        *done += bytes;
        if *done == descriptor.bytes {
            let descriptor = *descriptor;
            self.complete(place, &descriptor);
        }
    }

    /// Completes a descriptor.
    fn complete(&mut self, place: usize, descriptor: &Descriptor) {
        let channel = &mut self.channels[place];
        channel.completed = channel.completed.wrapping_add(1);
        if descriptor.completed {
            channel.note(Status::DESCRIPTOR_COMPLETED);
        }
        let is_stopped = !channel.is_running();
        if descriptor.stop {
            channel.note(Status::DESCRIPTOR_STOPPED);
        } else if is_stopped {
            channel.note(Status::IDLE_STOPPED);
        }
        let has_writeback = descriptor.completed && channel.control & Control::WRITEBACK.bits() != 0;
        let word = has_writeback.then(|| channel.writeback_word());
        let Some(run) = &mut channel.run else { return };
        run.present = None;
        run.writeback = word;
        run.is_over = descriptor.stop || is_stopped;
        if run.fetched.is_empty() && run.block_left == 0 {
            (run.next, run.block_left) = (descriptor.next, descriptor.adjacent + 1);
        }
    }

    /// Stops a channel because of `event`, which is noted if CONTROL lets it.
    fn fail(&mut self, place: usize, event: Status) {
        let channel = &mut self.channels[place];
        let is_noted = channel.note(event);
        let has_writeback =
            is_noted && Status::FAILURES.contains(event) && channel.control & Control::WRITEBACK.bits() != 0;
        let word = has_writeback.then(|| channel.writeback_word());
        if let Some(run) = &mut channel.run {
            run.present = None;
            run.fetched.clear();
            run.writeback = word;
            run.is_over = true;
        }
    }
}
