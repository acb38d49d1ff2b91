//! Cards on the links and switches of MPI-FPGA, under OPTWEB's command sequencer.
//!
//! In the paper, a processor on PCIe talks to the switch. Here the card's sequencer does, with data of the card's memory: that, and
//! all that is not a collective of the switches, is an extension.

use cmdseq::Topology;
use cmdseq::capability::SwitchUnits;
use cmdseq::reduction::{Combine, Element, Reduction};
use cmdseq::switch::{Collective, Form, PACKET_BYTES, PAYLOAD_BYTES, PHIT_BYTES, Shape, is_supported};

use super::{Profile, ProfileError, System, mpi_fpga};

/// Cards of the largest network that the paper simulates (figures 10 and 11).
const PUBLISHED_NODES: u32 = 128;

impl Profile {
    /// Cards on the links and switches of MPI-FPGA: a torus of three dimensions with a switch in each card, or leaf and spine
    /// switches.
    pub fn mpi_fpga(shape: Shape) -> Self {
        let switch = mpi_fpga::Profile::on_cards();
        let parameters = switch.parameters(shape);
        // Leaf and spine switches stand apart from the cards: a card's link has a router at one end only.
        let routers = if shape.is_direct() { parameters.router_ps } else { 0 };
        let beat_mbps = PHIT_BYTES as u64 * 8_000_000 / switch.cycle_ps();
        Profile {
            system: System::MpiFpga,
            published_nodes: PUBLISHED_NODES,
            nodes: shape.processors(),
            topology: Topology::Switched(shape),
            cycle_ps: switch.cycle_ps(),
            link_ps: parameters.hop_ps - parameters.router_ps + 2 * routers,
            hop_ps: parameters.hop_ps,
            link_mbps: (beat_mbps * PAYLOAD_BYTES as u64 / PACKET_BYTES as u64) as u32,
            channel_mbps: 153_600,
            beat_bytes: PHIT_BYTES as u64,
            memory_bytes: 32 << 30,
            memory_channels: 4,
            switch: Some(switch),
            ..Profile::optweb(0)
        }
    }

    /// As [`Profile::mpi_fpga`], for a shape such as `4x4x2`, `fat:32` or `fat:32:16`.
    ///
    /// # Errors
    /// [`ProfileError::Shape`].
    pub fn mpi_fpga_of(shape: &str) -> Result<Self, ProfileError> {
        Ok(Profile::mpi_fpga(shape.parse()?))
    }

    /// What the switches compute; `None` if they only route, or if there are none.
    pub fn switch_units(&self) -> Option<SwitchUnits> {
        let (switch, Topology::Switched(shape)) = (self.switch?, self.topology) else { return None };
        let forms = |collective: Collective| if shape.is_direct() { collective.forms() } else { &[Form::Tree] };
        let bits = |collective: Collective| {
            forms(collective).iter().fold(0, |bits, form| bits | SwitchUnits::bit(collective, *form))
        };
        let has = |reduction: Reduction, element: Element| is_supported(Combine::new(reduction, element));
        let reductions = Reduction::ALL.iter().filter(|one| Element::ALL.iter().any(|element| has(**one, *element)));
        let elements = Element::ALL.iter().filter(|one| Reduction::ALL.iter().any(|reduction| has(*reduction, **one)));
        Some(SwitchUnits {
            collectives: Collective::ALL.iter().fold(0, |all, collective| all | bits(*collective)),
            reductions: reductions.fold(0, |bits, one| bits | one.bit()),
            element_types: elements.fold(0, |bits, one| bits | one.bit()),
            control_cycles: switch.control_cycles as u32,
            float_cycles: switch.float_cycles as u32,
            router_cycles: switch.router_cycles() as u32,
            entry_ps: switch.parameters(shape).entry_ps as u32,
            phit_ps: switch.parameters(shape).phit_ps as u32,
            input_phits: switch.input_phits as u32,
        })
    }
}
