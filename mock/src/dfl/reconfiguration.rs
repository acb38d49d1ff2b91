//! The engine for partial reconfiguration, as `pr_ctrl.sv` of OFS has it.

use fpga_regs::dfl::reconfiguration::{
    COMPLETE, CONTROLLER_SHIFT, CREDITS_IDLE, ERROR_BITS, FAILED, HOST_SHIFT, KEPT, OPERATION, OVERFLOW, QUEUE_WORDS,
    RESET, RESET_ACK, START,
};

use crate::card::image::Checker;

/// Time in which the controller takes a word from the queue.
const WORD_NS: u64 = 16;
/// Time after which a change of RESET is acknowledged.
const RESET_NS: u64 = 2_000;

/// State of the host interface in STATUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    Idle = 0,
    Busy = 2,
    Done = 7,
    Failed = 8,
}

/// State of the controller in STATUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    PowerUp = 0,
    Error = 1,
    InProgress = 4,
    Passed = 5,
}

/// How a reconfiguration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It began: the region is cut off and empty.
    Started,
    /// The accelerator with this GUID is configured.
    Configured(u128),
    /// The engine was reset.
    Reset,
}

/// Errors that a test plants in the next reconfiguration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planted {
    /// Bits of ERROR.
    pub(super) errors: u64,
    /// Words of the image that arrive before.
    pub(super) after_words: u64,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Reconfiguration {
    kept: u64,
    /// When RESET changed last.
    changed_ns: u64,
    errors: u64,
    /// The image, from START to the end.
    image: Option<Checker>,
    words: u64,
    queued: u32,
    /// Up to when the controller has taken words.
    taken_ns: u64,
    is_complete: bool,
    /// The controller broke off: it takes nothing until a reset.
    is_broken: bool,
    host: Host,
    controller: Controller,
    pub(super) planted: Option<Planted>,
    /// A reset of the engine is never acknowledged.
    pub(super) withholds_ack: bool,
}

impl Reconfiguration {
    pub(super) fn new() -> Self {
        Reconfiguration {
            kept: 0,
            changed_ns: 0,
            errors: 0,
            image: None,
            words: 0,
            queued: 0,
            taken_ns: 0,
            is_complete: false,
            is_broken: false,
            host: Host::Idle,
            controller: Controller::PowerUp,
            planted: None,
            withholds_ack: false,
        }
    }

    /// Lets the controller work until `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) -> Option<Event> {
        if !self.is_broken {
            let taken = (now_ns - self.taken_ns) / WORD_NS;
            self.taken_ns += taken * WORD_NS;
            self.queued = self.queued.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
        }
        if !self.is_complete || self.queued > 0 || self.is_broken {
            return None;
        }
        match self.image.as_ref().and_then(Checker::finish) {
            Some(guid) => {
                self.image = None;
                self.is_complete = false;
                (self.host, self.controller) = (Host::Done, Controller::Passed);
                Some(Event::Configured(guid))
            }
            None => {
                self.fail(OPERATION);
                None
            }
        }
    }

    fn fail(&mut self, errors: u64) {
        self.errors |= errors;
        self.is_broken = true;
        (self.host, self.controller) = (Host::Failed, Controller::Error);
    }

    pub(super) fn control(&self, now_ns: u64) -> u64 {
        let is_settled = now_ns - self.changed_ns >= RESET_NS && !self.withholds_ack;
        let ack = match (self.kept & RESET != 0, is_settled) {
            (true, true) | (false, false) => self.changed_ns > 0 && !self.withholds_ack,
            _ => false,
        };
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        self.kept
            | bit(ack, RESET_ACK)
            | bit(self.image.is_some(), START)
            | bit(self.is_complete && self.image.is_some(), COMPLETE)
    }

    pub(super) fn status(&self) -> u64 {
        u64::from(CREDITS_IDLE.saturating_sub(self.queued))
            | if self.errors != 0 { FAILED } else { 0 }
            | (self.controller as u64) << CONTROLLER_SHIFT
            | (self.host as u64) << HOST_SHIFT
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    pub(super) fn clear_errors(&mut self, ones: u64) {
        self.errors &= !(ones & ERROR_BITS);
    }

    pub(super) fn write_control(&mut self, value: u64, mask: u64, now_ns: u64) -> Option<Event> {
        let before = self.kept;
        self.kept = self.kept & !(KEPT & mask) | value & KEPT & mask;
        if (before ^ self.kept) & RESET != 0 {
            self.changed_ns = now_ns.max(1);
        }
        if self.kept & RESET != 0 {
            let is_new = before & RESET == 0;
            (self.image, self.queued, self.is_complete, self.is_broken) = (None, 0, false, false);
            self.host = Host::Idle;
            return is_new.then_some(Event::Reset);
        }
        let set = value & mask;
        let mut event = None;
        if set & START != 0 && self.image.is_none() {
            match self.errors {
                0 => {
                    (self.image, self.words, self.taken_ns) = (Some(Checker::default()), 0, now_ns);
                    (self.host, self.controller) = (Host::Busy, Controller::InProgress);
                    event = Some(Event::Started);
                }
                _ => self.errors |= OPERATION,
            }
        }
        self.is_complete |= set & COMPLETE != 0 && self.image.is_some();
        event
    }

    /// Takes a word of the image. Without START it is lost.
    pub(super) fn push(&mut self, word: u32) {
        let Some(image) = &mut self.image else { return };
        if self.queued == QUEUE_WORDS {
            return self.fail(OVERFLOW);
        }
        self.queued += 1;
        self.words += 1;
        image.push(word);
        if let Some(planted) = self.planted.take_if(|planted| planted.after_words <= self.words) {
            self.fail(planted.errors);
        }
    }
}
