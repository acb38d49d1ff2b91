//! Reads and writes of the DMA BAR.

use fpga_regs::xdma::{Block, STRIDE, common, config, descriptors, interrupts};

use crate::xdma::card::Card;
use crate::xdma::channel::Direction;
use crate::xdma::notes::Violation;

/// SYSTEM_ID of the mock.
const SYSTEM_ID: u32 = 0xff01;
/// DATA_WIDTH: 512 bits.
const DATA_WIDTH: u32 = 3;
const FLUSH_TIMEOUT_MASK: u32 = 0x1f;
const CREDITS_MASK: u32 = 0x3ff;
const ADJACENT_MASK: u32 = 0x3f;

/// Where a register is.
struct Place {
    block: Block,
    channel: u32,
    register: u32,
}

fn place(offset: u32) -> Option<Place> {
    let block = *Block::ALL.get((offset >> 12) as usize)?;
    let channel = offset / STRIDE % 16;
    let is_shared = matches!(block, Block::Interrupts | Block::Config | Block::Common);
    (!is_shared || channel == 0).then_some(Place { block, channel, register: offset % STRIDE })
}

impl Card {
    fn find(&self, direction: Direction, number: u32) -> Option<usize> {
        self.channels.iter().position(|channel| channel.direction == direction && channel.number == number)
    }

    pub(super) fn read_register(&mut self, offset: u32) -> u32 {
        let Some(Place { block, channel, register }) = place(offset) else { return 0 };
        let direction = match block {
            Block::Interrupts => return self.read_interrupts(register),
            Block::Config => return self.read_config(register),
            Block::Common => return self.read_common(register),
            Block::H2c | Block::H2cDescriptors => Direction::H2c,
            Block::C2h | Block::C2hDescriptors => Direction::C2h,
        };
        // A host that polls lets the channels go on.
        self.run();
        let Some(place) = self.find(direction, channel) else { return 0 };
        let channel = &mut self.channels[place];
        if block == direction.block() {
            let value = channel.read(register);
            self.update_interrupts();
            return value;
        }
        match register {
            descriptors::IDENTIFIER => direction.descriptors().identifier(channel.number),
            descriptors::FIRST_LO => channel.first as u32,
            descriptors::FIRST_HI => (channel.first >> 32) as u32,
            descriptors::FIRST_ADJACENT => channel.first_adjacent,
            descriptors::CREDITS => channel.credits,
            _ => 0,
        }
    }

    fn read_interrupts(&self, register: u32) -> u32 {
        match register {
            interrupts::IDENTIFIER => Block::Interrupts.identifier(0),
            interrupts::USER_ENABLE | interrupts::USER_ENABLE_SET | interrupts::USER_ENABLE_CLEAR => {
                self.user_lines.enable
            }
            interrupts::CHANNEL_ENABLE | interrupts::CHANNEL_ENABLE_SET | interrupts::CHANNEL_ENABLE_CLEAR => {
                self.channel_lines.enable
            }
            interrupts::USER_REQUEST => self.user_lines.request(),
            interrupts::CHANNEL_REQUEST => self.channel_lines.request(),
            interrupts::USER_PENDING => self.user_lines.asserted,
            interrupts::CHANNEL_PENDING => self.channel_lines.asserted,
            interrupts::USER_VECTORS_0..=interrupts::USER_VECTORS_3 => {
                self.user_lines.read_vectors((register - interrupts::USER_VECTORS_0) / 4)
            }
            interrupts::CHANNEL_VECTORS_0 | interrupts::CHANNEL_VECTORS_1 => {
                self.channel_lines.read_vectors((register - interrupts::CHANNEL_VECTORS_0) / 4)
            }
            _ => 0,
        }
    }

    fn read_config(&self, register: u32) -> u32 {
        match register {
            config::IDENTIFIER => Block::Config.identifier(0),
            config::MAX_PAYLOAD => self.config.payload_bytes().ilog2() - 7,
            config::MAX_READ_REQUEST => self.config.read_request_bytes().ilog2() - 7,
            config::SYSTEM_ID => SYSTEM_ID,
            config::MSI_ENABLE => u32::from(self.config.has_msix()) << 1,
            config::DATA_WIDTH => DATA_WIDTH,
            config::PCIE_CONTROL => self.pcie_control,
            config::USER_MAX_PAYLOAD => self.in_force(0, self.config.payload_bytes()),
            config::USER_MAX_READ_REQUEST => self.in_force(1, self.config.read_request_bytes()),
            config::WRITE_FLUSH_TIMEOUT => self.flush_timeout,
            _ => 0,
        }
    }

    /// What was written, and behind it the smaller of it and of what the host allows.
    fn in_force(&self, place: usize, allowed: u64) -> u32 {
        let asked = self.user_max[place];
        asked | asked.min(allowed.ilog2() - 7) << 4
    }

    fn read_common(&self, register: u32) -> u32 {
        match register {
            common::IDENTIFIER => Block::Common.identifier(0),
            common::HALT | common::HALT_SET | common::HALT_CLEAR => self.halted,
            common::CREDIT_MODE | common::CREDIT_MODE_SET | common::CREDIT_MODE_CLEAR => self.credit_mode,
            _ => 0,
        }
    }

    pub(super) fn write_register(&mut self, offset: u32, value: u32) {
        let Some(Place { block, channel, register }) = place(offset) else { return };
        match block {
            Block::Interrupts => self.write_interrupts(register, value),
            Block::Config => self.write_config(register, value),
            Block::Common => self.write_common(register, value),
            Block::H2c | Block::H2cDescriptors => self.write_channel(Direction::H2c, block, channel, register, value),
            Block::C2h | Block::C2hDescriptors => self.write_channel(Direction::C2h, block, channel, register, value),
        }
        // A level that falls here may rise again in what the channels do next: that is an edge.
        self.update_interrupts();
        self.run();
    }

    fn write_channel(&mut self, direction: Direction, block: Block, number: u32, register: u32, value: u32) {
        let Some(place) = self.find(direction, number) else { return };
        let channel = &mut self.channels[place];
        if block == direction.block() {
            if channel.write(register, value) {
                match channel.run {
                    None => {
                        channel.start();
                        if channel.is_bypassed
                            && let Some(bypass) = &self.bypass
                        {
                            bypass.start(direction);
                        }
                    }
                    Some(_) => self.violations.note(Violation::StartedWhileBusy),
                }
            }
            return;
        }
        match register {
            descriptors::FIRST_LO => channel.first = channel.first >> 32 << 32 | u64::from(value),
            descriptors::FIRST_HI => channel.first = u64::from(value) << 32 | channel.first & 0xffff_ffff,
            descriptors::FIRST_ADJACENT => channel.first_adjacent = value & ADJACENT_MASK,
            descriptors::CREDITS => channel.credits = (channel.credits + (value & CREDITS_MASK)).min(CREDITS_MASK),
            _ => {}
        }
    }

    fn write_interrupts(&mut self, register: u32, value: u32) {
        let (user, channels) = (&mut self.user_lines, &mut self.channel_lines);
        match register {
            interrupts::USER_ENABLE => user.set_enable(value),
            interrupts::USER_ENABLE_SET => user.set_enable(user.enable | value),
            interrupts::USER_ENABLE_CLEAR => user.set_enable(user.enable & !value),
            interrupts::CHANNEL_ENABLE => channels.set_enable(value),
            interrupts::CHANNEL_ENABLE_SET => channels.set_enable(channels.enable | value),
            interrupts::CHANNEL_ENABLE_CLEAR => channels.set_enable(channels.enable & !value),
            interrupts::USER_VECTORS_0..=interrupts::USER_VECTORS_3 => {
                user.write_vectors((register - interrupts::USER_VECTORS_0) / 4, value);
            }
            interrupts::CHANNEL_VECTORS_0 | interrupts::CHANNEL_VECTORS_1 => {
                channels.write_vectors((register - interrupts::CHANNEL_VECTORS_0) / 4, value);
            }
            _ => {}
        }
    }

    fn write_config(&mut self, register: u32, value: u32) {
        match register {
            config::PCIE_CONTROL => self.pcie_control = value & 1,
            config::USER_MAX_PAYLOAD => self.user_max[0] = (value & 7).min(5),
            config::USER_MAX_READ_REQUEST => self.user_max[1] = (value & 7).min(5),
            config::WRITE_FLUSH_TIMEOUT => self.flush_timeout = value & FLUSH_TIMEOUT_MASK,
            _ => {}
        }
    }

    fn write_common(&mut self, register: u32, value: u32) {
        let mask = self.common_mask();
        match register {
            common::HALT => self.halted = value & mask,
            common::HALT_SET => self.halted |= value & mask,
            common::HALT_CLEAR => self.halted &= !value,
            common::CREDIT_MODE => self.set_credit_mode(value & mask),
            common::CREDIT_MODE_SET => self.set_credit_mode(self.credit_mode | value & mask),
            common::CREDIT_MODE_CLEAR => self.set_credit_mode(self.credit_mode & !value),
            _ => {}
        }
    }

    /// A channel whose mode is cleared loses its credits.
    fn set_credit_mode(&mut self, mode: u32) {
        let cleared = self.credit_mode & !mode;
        for channel in self.channels.iter_mut().filter(|channel| channel.common_bit() & cleared != 0) {
            channel.credits = 0;
        }
        self.credit_mode = mode;
    }
}
