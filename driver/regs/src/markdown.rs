//! Renders the register tables as `docs/registers.md`.

use std::fmt::Write;

use crate::sensor::Sensor;
use crate::{
    Register, alveo, bits, card_ring, channel, cms, decoupler, descriptor_bypass, dfl, feature_list, fft, hwicap,
    msgdma, pci, router, sequencer, xdma,
};

/// The whole document. A test compares it with the file that is checked in.
pub fn render() -> String {
    let mut out = String::new();
    out.push_str(INTRODUCTION);
    let _ = writeln!(out, "\n## Layout\n");
    let _ = writeln!(out, "| | |\n|---|---|");
    let _ = writeln!(
        out,
        "| mock card | PCI id {:04x}:{:04x} with a sequencer, {:04x}:{:04x} with a channel block; class {:06x} |",
        pci::VENDOR,
        pci::DEVICE,
        pci::VENDOR,
        pci::CHANNELS_DEVICE,
        pci::CLASS
    );
    let _ = writeln!(
        out,
        "| registers | BAR{}, {} KiB, 64-bit: Device Feature List from offset {:#x}; the sequencer's block is the entry with GUID {}, the channel block the one with GUID {} |",
        pci::REGISTERS_BAR,
        pci::REGISTERS_BAR_BYTES / 1024,
        feature_list::START,
        guid(feature_list::SEQUENCER_GUID),
        guid(feature_list::CHANNEL_GUID)
    );
    let _ = writeln!(
        out,
        "| MSI-X | BAR{}, {} vectors: table at {:#x}, pending bits at {:#x} |",
        pci::MSIX_BAR,
        pci::MSIX_VECTORS,
        pci::MSIX_TABLE_OFFSET,
        pci::MSIX_PENDING_OFFSET
    );
    let _ = writeln!(out, "| DMA | {} address bits |", pci::DMA_BITS);
    let _ = writeln!(out, "\n## Sequencer block ({} KiB)\n", sequencer::BLOCK_BYTES / 1024);
    table(&mut out, sequencer::TABLE);
    let _ = writeln!(
        out,
        "\n## Queue n, at {:#x} + n * {:#x} of the sequencer block\n",
        sequencer::QUEUES_OFFSET,
        sequencer::queue::STRIDE
    );
    table(&mut out, sequencer::queue::TABLE);
    flags(&mut out, "FEATURES", bits::Features::TABLE);
    flags(&mut out, "STATUS", bits::Status::TABLE);
    flags(&mut out, "ERROR", bits::Errors::TABLE);
    card_ring_block(&mut out);
    channel_block(&mut out);
    novo_g_blocks(&mut out);
    xdma_blocks(&mut out);
    alveo_blocks(&mut out);
    control_function(&mut out);
    msgdma_blocks(&mut out);
    out
}

fn card_ring_block(out: &mut String) {
    let _ = writeln!(out, "\n## Memory for rings on the card ({} bytes)\n", card_ring::BLOCK_BYTES);
    let _ = writeln!(
        out,
        "The entry of the feature list with GUID {}, for a sequencer that masters no bus. In one BAR, memory and sequencer are \
         behind one master, which keeps the order of the host's writes; two BARs and the engine's side keep none with each \
         other.\n",
        guid(feature_list::CARD_RING_GUID)
    );
    table(out, card_ring::TABLE);
    let _ = writeln!(
        out,
        "\n## Channels of a sequencer with descriptor bypass ({} bytes)\n",
        descriptor_bypass::BLOCK_BYTES
    );
    let _ = writeln!(
        out,
        "The entry of the feature list with GUID {}, for a sequencer that masters the bus through two channels of AMD's engine. The \
         host gives these channels no list and sets RUN.\n",
        guid(feature_list::DESCRIPTOR_BYPASS_GUID)
    );
    table(out, descriptor_bypass::TABLE);
}

fn channel_block(out: &mut String) {
    let _ = writeln!(out, "\n## Channel block ({} KiB)\n", channel::BLOCK_BYTES / 1024);
    table(out, channel::TABLE);
    let _ = writeln!(
        out,
        "\nROUTES, at {:#x} + 4 * n of the channel block, RW: port of the router toward node n; {:#x} means no route. \
         Written entries take effect with ROUTES_LOAD. Up to {} nodes.",
        channel::ROUTES_OFFSET,
        channel::NO_ROUTE,
        channel::ROUTES_MAX
    );
    let _ = writeln!(
        out,
        "\n## End n, at {:#x} + n * {:#x} of the channel block\n",
        channel::ENDS_OFFSET,
        channel::end::STRIDE
    );
    table(out, channel::end::TABLE);
    out.push_str(SLOTS);
    flags(out, "FEATURES of a channel block", bits::ChannelFeatures::TABLE);
    flags(out, "STATUS of a channel block", bits::ChannelStatus::TABLE);
}

/// Blocks of cards of Novo-G#.
fn novo_g_blocks(out: &mut String) {
    let _ = writeln!(
        out,
        "\n## Router block ({} KiB)\n\nThe entry of the feature list with GUID {}, on cards of Novo-G#.\n",
        router::BLOCK_BYTES / 1024,
        guid(feature_list::ROUTER_GUID)
    );
    table(out, router::TABLE);
    let _ = writeln!(
        out,
        "\nThe window, at {:#x} + {} * n of the router block, RW: entry 256 * PAGE + n of the table that SELECT names, lowest word first. \
         Formats of the entries are in [novo-g.md](novo-g.md#tables). A source is 15:0 an index in the card's routing table, 18:16 an input of the \
         router. Words that an entry does not have, and entries beyond the count, read 0 and ignore writes.",
        router::WINDOW_OFFSET,
        router::ENTRY_BYTES
    );
    let _ = writeln!(
        out,
        "\n## FFT block ({} KiB)\n\nThe entry of the feature list with GUID {}, in the user logic of cards of Novo-G#.\n",
        fft::BLOCK_BYTES / 1024,
        guid(feature_list::FFT_GUID)
    );
    table(out, fft::TABLE);
}

fn xdma_blocks(out: &mut String) {
    for (heading, lines) in xdma::BLOCKS {
        let _ = writeln!(out, "\n## {heading}\n");
        table(out, lines);
    }
    flags(out, "CONTROL of an XDMA channel", xdma::Control::TABLE);
    flags(out, "STATUS of an XDMA channel", xdma::Status::TABLE);
}

/// Blocks in the user BAR of this project's shell for Alveo cards.
fn alveo_blocks(out: &mut String) {
    let _ = writeln!(
        out,
        "\n## Card management (CMS), at {:#x} of the user BAR of this project's shell\n\n\
         Its processor is held in reset until bit 0 of MB_RESETN, at {:#x}, is 1. The map begins at {:#x}.\n",
        alveo::CMS,
        cms::RESET,
        cms::MAP
    );
    table(out, cms::TABLE);
    let _ = writeln!(out, "\nBehind the sensors:\n");
    table(out, cms::state::TABLE);
    let _ = writeln!(out, "\nSensors: largest, average and present value, {} bytes apart.\n", cms::SENSOR_STEP);
    sensors(out, &cms::SENSORS);
    let place = |out: &mut String, what, at| {
        let _ = writeln!(out, "\n## {what}, at {at:#x} of the user BAR of this project's shell\n");
    };
    place(out, "Configuration port (AXI HWICAP)", alveo::HWICAP);
    table(out, hwicap::TABLE);
    place(out, "Decoupler", alveo::DECOUPLER);
    table(out, decoupler::TABLE);
}

fn sensors(out: &mut String, table: &[Sensor]) {
    let _ = writeln!(out, "| offset | sensor | unit | one step |\n|---|---|---|---|");
    for Sensor { name, offset, unit, scale } in table {
        let _ = writeln!(out, "| {offset:#05x} | {name} | {} | {scale} |", unit.name());
    }
}

fn control_function(out: &mut String) {
    let _ =
        writeln!(out, "\n## Control function of a D5005: {:04x}:{:04x}\n", dfl::CONTROL.vendor, dfl::CONTROL.device);
    out.push_str(CONTROL_FUNCTION);
    for feature in dfl::FEATURES {
        let _ = writeln!(out, "\n### {:#07x}: {}, header {:#018x}\n", feature.offset, feature.name, feature.header);
        if feature.registers.is_empty() {
            let _ = writeln!(out, "Its registers are not modelled: they read 0.");
            continue;
        }
        wide_table(out, feature.registers);
    }
    let legacy = dfl::pac::FUNCTION;
    let _ = writeln!(out, "\n## PAC D5005 without OFS: {:04x}:{:04x}\n", legacy.vendor, legacy.device);
    out.push_str(PAC);
    for feature in dfl::pac::FEATURES {
        let dfl::Feature { bar, offset, header, name, resets, .. } = feature;
        let differ = resets.iter().map(|(offset, value)| format!(", {offset:#04x} after power-up {value:#x}"));
        let _ = writeln!(out, "| BAR{bar} + {offset:#07x} | {name} | {header:#018x}{} |", differ.collect::<String>());
    }
    for (heading, registers) in
        [("port errors", dfl::pac::port_errors::TABLE), ("user interrupts", dfl::pac::interrupts::TABLE)]
    {
        let _ = writeln!(out, "\n### Without OFS: {heading}\n");
        wide_table(out, registers);
    }
    let _ = writeln!(
        out,
        "\n## Board controller of a D5005\n\nRegisters of 32 bits behind the serial link; sensors count from {:#x}.\n",
        dfl::board::SYSTEM
    );
    sensors(out, &dfl::board::SENSORS);
    let _ = writeln!(out, "\n## Host exerciser (HE-LB), header {:#018x}\n", dfl::exerciser::HEADER);
    wide_table(out, dfl::exerciser::TABLE);
}

/// Intel's DMA engine in an accelerator's list.
fn msgdma_blocks(out: &mut String) {
    let _ = writeln!(
        out,
        "\n## mSGDMA building block ({} KiB)\n\nThe entry of an accelerator's feature list with GUID {}, type 2, id {:#x}. Bits 49:48 of an \
         address say which memory: 0 the card's, 1 a line that reads {:#x}, 2 the host's, 3 the host's behind all writes before. The window \
         on card memory is at {:#x}, {} KiB. It takes accesses of 4 and of 8 bytes.",
        msgdma::BLOCK_BYTES / 1024,
        guid(msgdma::GUID),
        msgdma::FEATURE_ID,
        msgdma::MAGIC,
        msgdma::WINDOW,
        msgdma::WINDOW_BYTES / 1024
    );
    for (heading, lines) in msgdma::BLOCKS {
        let _ = writeln!(out, "\n### {heading}\n");
        table(out, lines);
    }
    flags(out, "STATUS of an mSGDMA", msgdma::Status::TABLE);
    flags(out, "CONTROL of an mSGDMA", msgdma::Control::TABLE);
    flags(out, "CONTROL of an mSGDMA descriptor", msgdma::DescriptorControl::TABLE);
}

/// Registers of 64 bits.
fn wide_table(out: &mut String, registers: &[dfl::Register]) {
    let _ = writeln!(out, "| offset | register | writes | power-up | meaning |\n|---|---|---|---|---|");
    for register in registers {
        let dfl::Register { name, offset, reset, writes, description } = register;
        let writes = match writes {
            dfl::Writes::Ignored => "none".to_owned(),
            dfl::Writes::Kept(u64::MAX) => "kept".to_owned(),
            dfl::Writes::Kept(bits) => format!("kept: {bits:#x}"),
            dfl::Writes::Clear(bits) => format!("ones clear: {bits:#x}"),
            dfl::Writes::Control(kept, 0) => format!("kept: {kept:#x}"),
            dfl::Writes::Control(kept, set) => format!("kept: {kept:#x}; ones set: {set:#x}"),
            dfl::Writes::Pushed => "each counts".to_owned(),
        };
        let reset = reset.map_or("the card's".to_owned(), |reset| format!("{reset:#x}"));
        let _ = writeln!(out, "| {offset:#04x} | {name} | {writes} | {reset} | {description} |");
    }
}

const CONTROL_FUNCTION: &str = "Registers of 64 bits in BAR0, in accesses of 4 or 8 bytes. Source: OFS, Linux `drivers/fpga`; what is known of a real card is in
[boards.md](boards.md). A feature's registers count from its header.
";

const PAC: &str = "Management engine, port and accelerator are in one function. The registers are those of the control function above, at other places;
port errors and user interrupts are below. The accelerator's feature list begins at BAR2 + 0x40000.

| place | feature | header |
|---|---|---|
";

const SLOTS: &str = "
The ring of an end is in host memory. A slot begins with 8 bytes, little-endian, then come whole words:

| bits | meaning |
|---|---|
| 31:0 | number of the slot since ENABLE, from 1, modulo 2^32 |
| 62:32 | bytes behind the header |
| 63 | the last word in the slot ends a message; only in slots that the host fills |

The host fills slots and rings DOORBELL if it writes to the network. If it reads from it, the card writes the bytes of a slot first
and its header last, in one aligned 8-byte write, so the number shows that the slot is complete.
";

const INTRODUCTION: &str = "# Registers

Generated from the tables in `driver/regs` (`cargo run -p fpga-regs --example registers > docs/registers.md`); a test
compares the two.

If its section does not say otherwise, a register is 32 bits wide and little-endian, and accesses must be aligned and 32 bits wide.
Reads of another width, unaligned reads and reads outside of a window return all-ones; such writes are dropped. The same holds for every access while memory
decoding is off in the PCI command register, and after the card is gone. Reserved ranges read as zero and ignore writes.
RO: writes are ignored. WO: reads return zero. RW1C: writing one clears the bit. RW1S: writing one sets the bit. RC: a read clears the
bits. If the reset value is `card`, it depends on the card.
";

fn table(out: &mut String, registers: &[Register]) {
    let _ = writeln!(out, "| offset | name | access | reset | meaning |\n|---|---|---|---|---|");
    for register in registers {
        if register.is_reserved() {
            let end = register.offset + register.bytes - 1;
            let _ = writeln!(out, "| {:#05x} to {end:#05x} | reserved | | 0 | |", register.offset);
            continue;
        }
        let reset = register.reset.map_or("card".into(), |value| format!("{value:#x}"));
        let _ = writeln!(
            out,
            "| {:#05x} | {} | {} | {reset} | {} |",
            register.offset,
            register.name,
            register.access.short(),
            register.description
        );
    }
}

fn flags(out: &mut String, register: &str, table: &[(u32, &str, &str)]) {
    let _ = writeln!(out, "\n## Bits of {register}\n\n| bit | name | meaning |\n|---|---|---|");
    for (bit, name, meaning) in table {
        let _ = writeln!(out, "| {bit} | {name} | {meaning} |");
    }
}

fn guid(value: u128) -> String {
    let hex = format!("{value:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/registers.md");
        let kept = std::fs::read_to_string(path).expect("docs/registers.md is there");
        assert!(
            kept == super::render(),
            "docs/registers.md is stale: cargo run -p fpga-regs --example registers > docs/registers.md"
        );
    }
}
