//! Reads and writes of the card's registers, by the tables of `fpga-regs`.

use cmdseq::communicator::GENERATIONS;
use cmdseq::switch::Shape;
use cmdseq::{Element, Operation, Reduction, Topology};
use fpga_regs::bits::{Errors, Features, Status};
use fpga_regs::feature_list::{self, Header};
use fpga_regs::sequencer::{self, queue};
use fpga_regs::{Access, lookup};

use crate::card::communicators::COMMUNICATORS;
use crate::card::decode::runs;
use crate::card::feature_list::{FEATURE_BYTES, feature_bytes};
use crate::card::readiness::Readiness;
use crate::card::rings::DEPTH_MAX;
use crate::card::{QUEUES, RESIDENT_PROGRAMS, RESIDENT_WORDS, TABLES};
use crate::model::routed::{FFT_OFFSET, ROUTER_OFFSET};
use crate::profile::{Shell, version};
use crate::proto::optweb::signal::SIGNALS;
use crate::world::Core;

/// Offset of the sequencer's block in the register BAR: the second entry of the feature list.
pub(crate) const SEQUENCER_OFFSET: u64 = 0x1000;
/// Offset of the engine of a PAC beside the sequencer, behind all else in the list.
pub(crate) const ENGINE_OFFSET: u64 = 0x2_0000;

/// Returns the offset in the sequencer's block, if the access is inside.
pub(crate) fn sequencer_offset(offset: u64) -> Option<u32> {
    let offset = offset.checked_sub(SEQUENCER_OFFSET)?;
    (offset < u64::from(sequencer::BLOCK_BYTES)).then_some(offset as u32)
}

impl Core {
    /// Returns the byte of a feature header at `offset` of the register BAR, if inside one.
    pub(crate) fn feature_byte(&self, offset: u64) -> Option<u8> {
        use feature_list::{CARD_GUID, FFT_GUID, ROUTER_GUID, SEQUENCER_GUID, TYPE_AFU, TYPE_BBB};
        let all = [
            (feature_list::START.into(), CARD_GUID, TYPE_AFU),
            (SEQUENCER_OFFSET, SEQUENCER_GUID, TYPE_BBB),
            (ROUTER_OFFSET, ROUTER_GUID, TYPE_BBB),
            (FFT_OFFSET, FFT_GUID, TYPE_BBB),
        ];
        let list = if self.routed.is_some() { &all[..] } else { &all[..2] };
        let id = list.iter().position(|(begin, ..)| (*begin..begin + FEATURE_BYTES as u64).contains(&offset))?;
        let (begin, guid, kind) = list[id];
        // The engine's own header is its block's.
        let engine = (self.env.profile.shell == Shell::S10Pac).then_some(ENGINE_OFFSET);
        let next = list.get(id + 1).map(|(next, ..)| *next).or(engine).map_or(0, |next| (next - begin) as u32);
        let header = Header { id: id as u16, revision: 0, next, end_of_list: next == 0, version: 0, kind };
        Some(feature_bytes(header, guid)[(offset - begin) as usize])
    }

    /// Reads the aligned 32-bit register at `offset` of the sequencer's block.
    pub(crate) fn read_register(&mut self, index: usize, offset: u32) -> u32 {
        if offset >= sequencer::QUEUES_OFFSET {
            return queue_place(offset).map_or(0, |offset| self.cards[index].rings.read(offset));
        }
        if let Some(value) = self.capability(index, offset) {
            return value;
        }
        let counter = self.cards[index].clock.count(self.env.now);
        let (node, ports) = (self.cards[index].node, self.env.ports);
        let uses_host = self.uses_host(index);
        let card = &mut self.cards[index];
        match offset {
            sequencer::CONTROL => u32::from(card.sequencer.may_run),
            sequencer::STATUS => {
                let mut status = Status::empty();
                status.set(Status::READY, card.readiness == Readiness::Ready);
                status.set(Status::BUSY, card.is_busy() || uses_host);
                status.set(Status::HALTED, card.sequencer.is_halted);
                self.poll_reset(index);
                status.bits()
            }
            sequencer::ERROR => card.errors.bits(),
            sequencer::EAGER_LIMIT => card.eager_limit as u32,
            sequencer::SCRATCH => card.scratch,
            sequencer::CYCLES_LO => {
                card.latched_cycles = (counter >> 32) as u32;
                counter as u32
            }
            sequencer::CYCLES_HI => card.latched_cycles,
            sequencer::CURRENT => card.oldest().map_or(0, |running| {
                let code = u32::from(running.instruction.operation as u8);
                u32::from(running.instruction.tag) | code << 16 | 1 << 24
            }),
            sequencer::WAITING_PEER => {
                let peer = card.waiting_for(|port| ports.peer(node, port));
                peer.or_else(|| self.on(index).switched_waits_for()).unwrap_or(sequencer::NO_PEER)
            }
            sequencer::RETIRED_LO => {
                card.latched_retired = (card.sequencer.retired >> 32) as u32;
                card.sequencer.retired as u32
            }
            sequencer::RETIRED_HI => card.latched_retired,
            sequencer::PENDING => card.msix.pending(),
            sequencer::LINK_ERRORS => card.link_errors,
            sequencer::MEMORY_CORRECTED => card.memory.corrected(),
            _ => 0,
        }
    }

    /// Returns a capability register; `None` for other registers.
    fn capability(&self, index: usize, offset: u32) -> Option<u32> {
        let profile = &self.env.profile;
        if !version::has_register(profile.version, offset) {
            return Some(0);
        }
        let run = Operation::ALL.iter().filter(|operation| runs(profile, **operation));
        let operations = run.fold(0u64, |set, operation| set | 1 << *operation as u8);
        let masters_bus = profile.shell.masters_bus();
        let rings = if masters_bus { Features::HOST_RING } else { Features::CARD_RING };
        let mut features = rings | Features::RESIDENT | Features::MODEL;
        features.set(Features::USER_LOGIC, self.cards[index].user_logic.is_some());
        features.set(Features::EXTRAPOLATED, profile.is_extrapolated());
        features.set(Features::REDUCTIONS_EXTEND, profile.reductions_extend);
        let mib = |bytes: u64| (bytes >> 20) as u32;
        Some(match offset {
            sequencer::MAGIC => sequencer::MAGIC_VALUE,
            sequencer::VERSION => (sequencer::VERSION_VALUE & !0xffff) | profile.version,
            sequencer::ISA => cmdseq::instruction::VERSION.into(),
            sequencer::FEATURES => features.bits(),
            sequencer::CLOCK_KHZ => (1_000_000_000 / profile.cycle_ps) as u32,
            sequencer::NODE => self.cards[index].node,
            sequencer::NODES => profile.nodes,
            sequencer::PORTS => profile.ports(),
            sequencer::TOPOLOGY => match profile.topology {
                Topology::FullyConnected => 1,
                Topology::Dragonfly { groups } => 2 | groups << 16,
                Topology::Torus { rows } => 3 | rows << 16,
                Topology::Switched(Shape::Torus { sides: [x, y, z] }) => 4 | x << 8 | y << 16 | z << 24,
                Topology::Switched(Shape::Fat { radix, .. }) => 5 | radix << 16,
            },
            sequencer::MEMORY_MIB => mib(profile.memory_bytes),
            sequencer::MEMORY_CHANNELS => profile.memory_channels,
            sequencer::STRIPE_MIB => mib(profile.stripe_half_bytes()),
            sequencer::QUEUES => QUEUES,
            sequencer::QUEUE_DEPTH_MAX => DEPTH_MAX,
            sequencer::COMMUNICATORS => COMMUNICATORS,
            sequencer::COMMUNICATOR_RANKS => profile.nodes,
            sequencer::COMMUNICATOR_GENERATIONS => GENERATIONS,
            sequencer::RESIDENT_PROGRAMS => RESIDENT_PROGRAMS as u32,
            sequencer::RESIDENT_WORDS => RESIDENT_WORDS,
            sequencer::SIGNALS => SIGNALS as u32,
            sequencer::TABLES => TABLES.into(),
            sequencer::WINDOWS => profile.windows(),
            sequencer::ADDRESS_ALIGN => 1,
            sequencer::EAGER_BYTES => profile.receive_buffer_bytes as u32,
            sequencer::OPERATIONS_LO => operations as u32,
            sequencer::OPERATIONS_HI => (operations >> 32) as u32,
            sequencer::ELEMENT_TYPES => Element::ALL.iter().fold(0, |set, element| set | element.bit()),
            sequencer::REDUCTIONS => Reduction::ALL.iter().fold(0, |set, reduction| set | reduction.bit()),
            sequencer::DISPATCH_CYCLES => profile.dispatch_cycles as u32,
            sequencer::MEMORY_READ_CYCLES => profile.memory_read_cycles as u32,
            sequencer::HANDOVER_CYCLES => profile.handover_cycles as u32,
            sequencer::LANES => profile.lanes,
            sequencer::SWITCH_CYCLES => profile.switch_cycles as u32,
            sequencer::CONTROL_PS => profile.control_ps() as u32,
            sequencer::DATA_PS => profile.data_ps() as u32,
            sequencer::ACKNOWLEDGE_PS => profile.acknowledge_ps() as u32,
            sequencer::HOP_PS => profile.hop_ps as u32,
            sequencer::LINK_MBPS => profile.link_mbps,
            sequencer::CHANNEL_MBPS => profile.channel_mbps,
            sequencer::HOST_MBPS => profile.host_mbps,
            sequencer::DMA_BITS if masters_bus => fpga_regs::pci::DMA_BITS.into(),
            sequencer::DMA_BITS => 0,
            sequencer::BEAT_BYTES => profile.beat_bytes as u32,
            sequencer::REDUCE_BEAT_CYCLES => profile.reduce_beat_cycles as u32,
            sequencer::REDUCE_UNIT_CYCLES => profile.reduce_unit_cycles as u32,
            sequencer::NETWORK_COLLECTIVES => profile.switch_units().map_or(0, |units| units.collectives),
            sequencer::NETWORK_REDUCTIONS => profile.switch_units().map_or(0, |units| units.reductions),
            sequencer::NETWORK_ELEMENT_TYPES => profile.switch_units().map_or(0, |units| units.element_types),
            sequencer::NETWORK_CYCLES => profile
                .switch_units()
                .map_or(0, |units| units.control_cycles | units.float_cycles << 8 | units.router_cycles << 16),
            sequencer::NETWORK_ENTRY_PS => profile.switch_units().map_or(0, |units| units.entry_ps),
            sequencer::NETWORK_PHIT_PS => profile.switch_units().map_or(0, |units| units.phit_ps),
            sequencer::NETWORK_FIFO_PHITS => profile.switch_units().map_or(0, |units| units.input_phits),
            _ => return None,
        })
    }

    /// Writes the aligned 32-bit register at `offset` of the sequencer's block, once the sequencer is ready.
    pub(crate) fn write_register(&mut self, index: usize, offset: u32, value: u32) {
        if self.cards[index].readiness != Readiness::Ready {
            return;
        }
        if offset >= sequencer::QUEUES_OFFSET {
            if let Some(offset) = queue_place(offset) {
                self.write_queue(index, offset, value);
            }
            return;
        }
        if lookup(sequencer::TABLE, offset).is_none_or(|register| register.access == Access::ReadOnly) {
            return;
        }
        let buffer = self.env.profile.receive_buffer_bytes;
        let card = &mut self.cards[index];
        match offset {
            sequencer::CONTROL => {
                if value & 1 == 0 {
                    card.issue_no_more();
                } else {
                    card.sequencer.may_run = true;
                    // The host must clear the error first.
                    card.sequencer.is_halted &= !card.errors.is_empty();
                }
                self.on(index).kick();
                self.run();
            }
            sequencer::ERROR => card.errors -= Errors::from_bits_retain(value),
            sequencer::EAGER_LIMIT => card.eager_limit = u64::from(value).min(buffer),
            sequencer::ABORT if value == sequencer::ABORT_VALUE => {
                self.on(index).abort();
                self.run();
            }
            sequencer::SCRATCH => card.scratch = value,
            sequencer::PENDING => {
                card.msix.clear(value);
                card.deliver_interrupts();
            }
            _ => {}
        }
    }

    fn write_queue(&mut self, index: usize, offset: u32, value: u32) {
        let card = &mut self.cards[index];
        let rings = &mut card.rings;
        match offset {
            queue::SUBMISSION_TAIL | queue::COMPLETION_HEAD => {
                let is_sound = if offset == queue::SUBMISSION_TAIL { rings.submit(value) } else { rings.take(value) };
                if !is_sound {
                    return self.on(index).halt(Errors::BAD_DOORBELL);
                }
                card.has_rung = true;
                self.on(index).kick();
                self.run();
            }
            queue::INTERRUPT_ARM => {
                rings.arm(value);
                if rings.take_due_interrupt() {
                    card.interrupt();
                }
            }
            queue::ENABLE => {
                let life = rings.life();
                rings.configure(offset, value);
                if rings.life() != life {
                    card.sequencer.forget_fetched();
                }
            }
            _ => rings.configure(offset, value),
        }
    }
}

/// Returns the offset in the block of the queue, if the access is inside.
fn queue_place(offset: u32) -> Option<u32> {
    offset.checked_sub(sequencer::QUEUES_OFFSET).filter(|offset| *offset < queue::STRIDE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::{Completion, Instruction};

    use super::*;
    use crate::environment::Pace;
    use crate::profile::Profile;
    use crate::testing::Host;

    const ENABLE: u32 = sequencer::QUEUES_OFFSET + queue::ENABLE;

    /// A card that has fetched an instruction, and whose sequencer may run.
    fn card() -> (Core, Arc<Host>) {
        let (mut core, host) = (Core::new(Profile::optweb(2)), Arc::new(Host::default()));
        core.env.pace = Pace::Due;
        host.attach(&mut core, 0);
        core.cards[0].sequencer.may_run = true;
        core.cards[0].sequencer.prefetched.push_back(Instruction::nop().encode());
        (core, host)
    }

    /// Runs to the end. Returns the number of completed instructions.
    fn retired(core: &mut Core) -> u64 {
        while core.run_some(1) {}
        assert!(!core.cards[0].is_busy());
        core.cards[0].sequencer.retired
    }

    #[test]
    fn a_sequencer_that_is_stopped_or_halted_issues_nothing() {
        let stop = |core: &mut Core| core.write_register(0, sequencer::CONTROL, 0);
        let halt = |core: &mut Core| core.on(0).halt(Errors::BAD_DOORBELL);
        for (stop, is_halted) in [(&stop as &dyn Fn(&mut Core), false), (&halt, true)] {
            let (mut core, _host) = card();
            core.on(0).kick();
            assert!(core.cards[0].sequencer.issue_at.is_some());
            stop(&mut core);
            assert_eq!(retired(&mut core), 0, "halted: {is_halted}");
            core.write_register(0, sequencer::ERROR, u32::MAX);
            core.write_register(0, sequencer::CONTROL, 1);
            assert_eq!(retired(&mut core), 1, "halted: {is_halted}");
        }
    }

    #[test]
    fn enabling_an_enabled_queue_changes_nothing() {
        let (mut core, _host) = card();
        core.write_register(0, ENABLE, 1);
        assert_eq!(core.cards[0].sequencer.prefetched.len(), 1);
        core.write_register(0, ENABLE, 0);
        assert!(core.cards[0].sequencer.prefetched.is_empty());
    }

    #[test]
    fn what_was_issued_before_the_queue_was_disabled_is_not_completed() {
        for (instruction, is_launch) in [(Instruction::delay(1000), false), (Instruction::launch(0, [0; 3]), true)] {
            let (mut core, host) = card();
            core.cards[0].resident[0] = vec![Instruction::delay(1000); 2];
            core.cards[0].sequencer.prefetched = [instruction.encode()].into();
            core.on(0).kick();
            while core.cards[0].oldest().is_none() {
                assert!(core.run_some(1));
            }
            core.write_register(0, ENABLE, 0);
            core.write_register(0, ENABLE, 1);
            core.cards[0].sequencer.prefetched.push_back(Instruction::nop().with_tag(7).encode());
            assert_eq!(retired(&mut core), 1, "launch: {is_launch}");
            let writes = host.writes.lock().unwrap();
            let tags: Vec<u16> =
                writes.iter().map(|(_, word)| Completion::decode(word[..].try_into().unwrap()).tag).collect();
            drop(writes);
            assert_eq!(tags, [7], "launch: {is_launch}");
            assert_eq!(core.read_register(0, sequencer::QUEUES_OFFSET + queue::COMPLETION_TAIL), 1);
        }
    }
}
