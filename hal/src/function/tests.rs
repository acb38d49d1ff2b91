//! A function on a bus that refuses what it is told to.

use std::sync::Mutex;

use super::*;
use crate::bus::Piece;
use crate::removal::Removal;

/// A step of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Enable,
    Disable,
    Command(u16),
    Reset,
    Close,
}

/// What a bus did, and what it refuses to do.
#[derive(Debug)]
struct Told {
    can_reset: ResetOutcome,
    refused: Vec<Step>,
    command: u16,
    steps: Vec<Step>,
    /// Reads of configuration space until the function is gone. `None`: it stays.
    reads_left: Option<u32>,
    /// Whether an error was reported and not taken.
    has_error: bool,
}

/// A bus that does what it is told, unless it is to refuse it. The function has one INTx interrupt.
struct Refusing {
    told: Arc<Mutex<Told>>,
    removal: Arc<Removal>,
}

impl Refusing {
    fn step(&self, step: Step) -> Result<()> {
        let mut told = self.told.lock().unwrap();
        told.steps.push(step);
        if told.refused.contains(&step) {
            Err(Error::Refused { what: "do", source: std::io::ErrorKind::Other.into() })
        } else {
            Ok(())
        }
    }
}

impl Bus for Refusing {
    fn kind(&self) -> BusKind {
        BusKind::Vfio
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()> {
        let mut told = self.told.lock().unwrap();
        if told.reads_left == Some(0) {
            data.fill(0xff);
            return Ok(());
        }
        told.reads_left = told.reads_left.map(|reads| reads - 1);
        data.fill(0);
        if offset == config::COMMAND {
            data.copy_from_slice(&told.command.to_le_bytes()[..data.len()]);
        }
        Ok(())
    }

    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()> {
        assert_eq!(offset, config::COMMAND);
        let command = u16::from_le_bytes([data[0], data[1]]);
        self.step(Step::Command(command))?;
        self.told.lock().unwrap().command = command;
        Ok(())
    }

    fn bar(&self, _: BarIndex) -> Option<BarLayout> {
        None
    }

    fn bar_pieces(&self, _: BarIndex) -> Result<Vec<Piece>> {
        Ok(Vec::new())
    }

    fn bar_read(&self, _: BarIndex, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        Ok(u16::from(kind == InterruptKind::Intx))
    }

    fn enable_interrupts(&self, _: InterruptKind, interrupts: &[Interrupt]) -> Result<()> {
        crate::endpoint::intx::raise(&interrupts[0].counter());
        self.step(Step::Enable)
    }

    fn disable_interrupts(&self, _: InterruptKind) -> Result<()> {
        self.step(Step::Disable)
    }

    fn trigger(&self, _: InterruptKind, _: u16) -> Result<()> {
        Ok(())
    }

    fn unmask_intx(&self) -> Result<()> {
        Ok(())
    }

    fn can_reset(&self) -> ResetOutcome {
        self.told.lock().unwrap().can_reset
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.step(Step::Reset)?;
        Ok(self.can_reset())
    }

    fn close(&self) {
        let _ = self.step(Step::Close);
    }

    fn removal(&self) -> &Arc<Removal> {
        &self.removal
    }

    fn take_error(&self) -> bool {
        std::mem::take(&mut self.told.lock().unwrap().has_error)
    }
}

/// The bus's memory of what it was told, and the function or why it was not opened. Its last user left it mastering the bus, and an
/// error.
fn open(can_reset: ResetOutcome, without_reset: bool) -> (Arc<Mutex<Told>>, Result<Function>) {
    open_for(None, can_reset, without_reset)
}

/// As [`open`], of a function that is gone after so many reads of its configuration space.
fn open_for(
    reads_left: Option<u32>,
    can_reset: ResetOutcome,
    without_reset: bool,
) -> (Arc<Mutex<Told>>, Result<Function>) {
    let (command, refused, steps) = (config::COMMAND_MASTER, Vec::new(), Vec::new());
    let told = Told { can_reset, refused, command, steps, reads_left, has_error: true };
    let told = Arc::new(Mutex::new(told));
    let bus = Refusing { told: Arc::clone(&told), removal: Arc::default() };
    let attachment = Domain::in_process().attach("card", 64);
    let function = Function::open(Box::new(bus), attachment, "card", without_reset);
    (told, function)
}

fn steps(told: &Arc<Mutex<Told>>) -> Vec<Step> {
    std::mem::take(&mut told.lock().unwrap().steps)
}

const MEMORY: Step = Step::Command(config::COMMAND_MEMORY);
const ALL: u16 = config::COMMAND_MEMORY | config::COMMAND_MASTER;

#[test]
fn opening_and_resetting_tell_what_was_reset() {
    for outcome in [ResetOutcome::Function, ResetOutcome::Hot, ResetOutcome::Bus] {
        let (told, function) = open(outcome, false);
        let function = function.unwrap();
        assert_eq!(function.opening_reset(), outcome);
        assert_eq!(steps(&told), [Step::Reset, MEMORY], "bus mastering is off, however it was found");
        assert_eq!(function.reset().unwrap(), outcome);
    }
}

#[test]
fn a_reset_takes_the_error_that_was_reported_before_it() {
    let (told, function) = open(ResetOutcome::Function, false);
    let function = function.unwrap();
    assert!(!function.take_error(), "the error is of the last user");
    told.lock().unwrap().has_error = true;
    function.reset().unwrap();
    assert!(!function.take_error());
    told.lock().unwrap().has_error = true;
    assert_eq!([(); 2].map(|()| function.take_error()), [true, false]);
    // Nothing is lost with a function that is not reset.
    assert!(open(ResetOutcome::None, true).1.unwrap().take_error());
}

#[test]
fn a_function_that_vanishes_while_it_is_opened_is_gone() {
    let opened = |reads| open_for(Some(reads), ResetOutcome::None, true).1;
    let all = (0..100).find(|reads| opened(*reads).is_ok()).expect("opening ends");
    assert!(all > 5, "identity and command are read, not only {all} registers");
    for reads in 0..all {
        let error = opened(reads).unwrap_err();
        assert!(matches!(error, Error::Removed { .. }), "after {reads} of {all} reads: {error}");
    }
}

#[test]
fn what_cannot_be_reset_is_opened_only_if_told_to() {
    let (told, refused) = open(ResetOutcome::None, false);
    assert!(matches!(refused, Err(Error::NotReset)), "{refused:?}");
    assert!(!steps(&told).contains(&Step::Command(ALL)), "it never masters the bus");
    assert_eq!(
        told.lock().unwrap().command & config::COMMAND_MASTER,
        0,
        "what was left running reaches nothing any more"
    );
    let (told, function) = open(ResetOutcome::None, true);
    assert_eq!(function.as_ref().unwrap().opening_reset(), ResetOutcome::None);
    assert_eq!(steps(&told), [MEMORY], "it does not master the bus");
}

#[test]
fn a_reset_that_is_refused_leaves_interrupts_alive() {
    let (told, function) = open(ResetOutcome::None, true);
    let function = function.unwrap();
    let interrupts = function.enable_interrupts(1).unwrap();
    function.set_bus_master(true).unwrap();
    steps(&told);
    assert!(matches!(function.reset(), Err(Error::NoReset)));
    assert_eq!(steps(&told), [], "the bus was told nothing");
    // They are still the function's to disable when it is closed.
    drop((function, interrupts));
    assert_eq!(steps(&told), [Step::Disable, MEMORY, Step::Command(0), Step::Close]);
}

#[test]
fn each_step_of_closing_is_tried() {
    let closing = [Step::Disable, MEMORY, Step::Command(0), Step::Reset, Step::Close];
    let close = |refused: &[Step]| {
        let (told, function) = open(ResetOutcome::Function, false);
        let function = function.unwrap();
        let _interrupts = function.enable_interrupts(1).unwrap();
        function.set_bus_master(true).unwrap();
        steps(&told);
        told.lock().unwrap().refused = refused.to_vec();
        drop(function);
        steps(&told)
    };
    assert_eq!(close(&[]), closing);
    assert_eq!(close(&[Step::Disable]), closing);
    assert_eq!(close(&[Step::Disable, Step::Reset]), closing);
    // Bus mastering could not be turned off, so that memory decoding goes without it.
    let still_master = Step::Command(config::COMMAND_MASTER);
    assert_eq!(close(&[Step::Disable, MEMORY]), [Step::Disable, MEMORY, still_master, Step::Reset, Step::Close]);
}
