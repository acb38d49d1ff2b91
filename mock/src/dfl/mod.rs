//! PAC D5005 cards: with an OFS shell the control function beside the accelerator's, without one all in one function.
//!
//! A model of the registers that OFS documents: the feature list, the management engine, the port with its reset, errors, and
//! partial reconfiguration as the shell's logic does it. Time is the card's own: a read takes 1 us, a posted write 10 ns. What the
//! region behind the port holds, the accelerator's function shows: the card with a command sequencer, another accelerator's
//! GUID, or nothing.

mod accelerator;
mod attached;
mod board;
mod control;
mod exerciser;
mod pac;
mod reconfiguration;
mod slot;
mod static_region;

use std::sync::Arc;

use fpga_hal::Endpoint;
use fpga_regs::dfl;

pub use crate::card::image::image;
pub use crate::dfl::board::BoardFault;
pub use crate::dfl::static_region::INTERFACE;

use crate::dfl::accelerator::Accelerator;
use crate::dfl::attached::FunctionEndpoint;
use crate::dfl::control::Control;
use crate::dfl::exerciser::Exerciser;
use crate::dfl::pac::Pac;
use crate::dfl::slot::Slot;
use crate::dfl::static_region::StaticRegion;
use crate::fabric::Fabric;
use crate::msgdma::{self, CardWithEngine};

/// A D5005: the functions of one card. Clones are handles to the same card.
///
/// ```
/// use fpga_hal::{BarIndex, Domain, in_process};
/// use fpga_mock::{Fabric, Profile, Shell, dfl::D5005};
///
/// let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) })?;
/// let card = D5005::new(&fabric, 0);
/// let control = in_process::attach(card.control(), &Domain::in_process(), "control of card 0")?;
/// let list = control.window(BarIndex::new(0).unwrap())?;
/// assert_eq!(list.read_u64(0)?, 0x4000_0000_1000_0000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct D5005(Functions);

#[derive(Clone)]
enum Functions {
    /// Several, of an OFS shell.
    Ofs {
        control: Arc<FunctionEndpoint<Control>>,
        accelerator: Arc<Accelerator>,
        exerciser: Arc<FunctionEndpoint<Exerciser>>,
    },
    /// One.
    Pac(Arc<Pac>),
}

impl D5005 {
    /// Makes the card `node` of a fabric a D5005: without OFS if the fabric's shell is [`S10Pac`](crate::Shell::S10Pac), and
    /// otherwise with it. After power-up the port holds the accelerator in reset.
    ///
    /// # Panics
    /// If the fabric has no such card.
    pub fn new(fabric: &Fabric, node: u32) -> Self {
        let slot = Arc::new(Slot::new());
        let is_pac = *fabric.profile().shell.function() == dfl::pac::FUNCTION;
        let accelerator = Arc::new(Accelerator::new(fabric, node, is_pac, Arc::clone(&slot)));
        let region =
            |features, exerciser| StaticRegion::new(features, Arc::clone(&slot), Arc::clone(&accelerator), exerciser);
        if is_pac {
            let region = region(&dfl::pac::FEATURES, None);
            return D5005(Functions::Pac(Arc::new(Pac::new(fabric, node, accelerator, region))));
        }
        let exerciser = Arc::new(FunctionEndpoint::new(Exerciser::new()));
        let control = Control::new(region(&dfl::FEATURES, Some(Arc::clone(&exerciser))));
        D5005(Functions::Ofs { control: Arc::new(FunctionEndpoint::new(control)), accelerator, exerciser })
    }

    /// Returns the control function.
    pub fn control(&self) -> Arc<dyn Endpoint> {
        match &self.0 {
            Functions::Ofs { control, .. } => Arc::<FunctionEndpoint<Control>>::clone(control),
            Functions::Pac(function) => Arc::<Pac>::clone(function),
        }
    }

    /// Returns the accelerator's function. Without OFS it is the control function.
    pub fn accelerator(&self) -> Arc<dyn Endpoint> {
        match &self.0 {
            Functions::Ofs { accelerator, .. } => Arc::<Accelerator>::clone(accelerator),
            Functions::Pac(_) => self.control(),
        }
    }

    /// Returns the function of the host exerciser (HE-LB), which is not behind the port, but is reset with it. Only OFS shells
    /// have one.
    pub fn exerciser(&self) -> Option<Arc<dyn Endpoint>> {
        match &self.0 {
            Functions::Ofs { exerciser, .. } => Some(Arc::<FunctionEndpoint<Exerciser>>::clone(exerciser)),
            Functions::Pac(_) => None,
        }
    }

    fn with_region<R>(&self, access: impl FnOnce(&mut StaticRegion) -> R) -> R {
        match &self.0 {
            Functions::Ofs { control, .. } => control.lock().with_region(access),
            Functions::Pac(function) => function.with_region(access),
        }
    }

    /// Releases the accelerator from reset, as a driver of the control function has done after power-up.
    pub fn release(&self) {
        self.with_region(StaticRegion::release_port);
    }

    /// Has the next reconfiguration fail with these bits of ERROR after `after_words` words.
    pub fn fail_reconfiguration(&self, errors: u64, after_words: u64) {
        self.with_region(|region| region.fail_reconfiguration(errors, after_words));
    }

    /// Sets whether resets of the reconfiguration engine are never acknowledged.
    pub fn withhold_engine_acknowledge(&self, withholds: bool) {
        self.with_region(|region| region.withhold_engine_acknowledge(withholds));
    }

    /// Sets whether soft resets of the port are never acknowledged.
    pub fn withhold_port_acknowledge(&self, withholds: bool) {
        self.with_region(|region| region.withholds_port_ack = withholds);
    }

    /// Sets whether the control function of an OFS shell loses its configuration space when a new accelerator is configured.
    pub fn lose_configuration(&self, loses: bool) {
        self.with_region(|region| region.loses_configuration = loses);
    }

    /// Sets bits of an error register, and sends the interrupt of the management engine. `place`: the BAR in 31:24, and the offset.
    pub fn set_errors(&self, place: u32, bits: u64) {
        self.with_region(|region| {
            region.set_errors(place, bits);
            region.interrupt();
        });
    }

    /// Sets a register of the board's controller, by its address.
    pub fn set_board_register(&self, address: u32, value: u32) {
        self.with_region(|region| region.board.set(address, value));
    }

    /// Sets what is wrong with answers of the board's controller.
    pub fn fail_board(&self, fault: BoardFault) {
        self.with_region(|region| region.board.fault = fault);
    }

    /// Plants a fault of the engine (mSGDMA) beside the sequencer, which only cards without OFS have.
    pub fn plant_engine_fault(&self, fault: msgdma::Fault) {
        if let Some(engine) = self.engine() {
            engine.plant(fault);
        }
    }

    /// Returns what the host did with the engine (mSGDMA) that its documents forbid.
    pub fn engine_violations(&self) -> Vec<msgdma::Violation> {
        self.engine().map(CardWithEngine::violations).unwrap_or_default()
    }

    fn engine(&self) -> Option<&CardWithEngine> {
        match &self.0 {
            Functions::Ofs { .. } => None,
            Functions::Pac(function) => function.engine(),
        }
    }

    /// Removes the control function of an OFS shell: reads return all-ones, writes are dropped. A card in one function is removed
    /// by its fabric.
    pub fn remove(&self) {
        if let Functions::Ofs { control, .. } = &self.0 {
            control.lock().attached.is_gone = true;
        }
    }
}
