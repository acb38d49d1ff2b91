//! What manages a card answers anything: an Alveo card's management, or a D5005's board controller. Reading ends, with values or with
//! the parts that failed.
#![no_main]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use fpga_driver::readings::Readings;
use fpga_hal::endpoint::Interposer;
use fpga_hal::{BarIndex, Domain, Endpoint, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, Profile, Shell};
use libfuzzer_sys::fuzz_target;

/// A card, some of whose registers read as the fuzzer says. Once it has said all, they read as they are.
struct Misread {
    card: Arc<dyn Endpoint>,
    /// Offsets of the registers in BAR 0 that may be misread.
    registers: Range<u64>,
    /// For each read, in the order of reads: what it gives, if not what the register holds.
    answers: Mutex<Vec<Option<u32>>>,
}

impl Interposer for Misread {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.card.bar_read(bar, offset, data);
        if bar.index() == 0 && self.registers.contains(&offset) {
            if let Some(Some(answer)) = self.answers.lock().unwrap().pop() {
                let answer = u64::from(answer).to_le_bytes();
                let low = data.len().min(4);
                data[..low].copy_from_slice(&answer[..low]);
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    // Each five bytes are how many reads are passed on, and the answer to the next one.
    let mut answers: Vec<Option<u32>> = Vec::new();
    for read in rest.chunks_exact(5) {
        answers.resize(answers.len() + usize::from(read[0]), None);
        answers.push(Some(u32::from_le_bytes([read[1], read[2], read[3], read[4]])));
    }
    answers.reverse();
    let profile = |shell| Profile { shell, ..Profile::optweb(2) };
    let (card, registers): (Arc<dyn Endpoint>, _) = match kind & 1 {
        0 => (XdmaCards::new(1, Shape::default()).endpoint(0), 0x8_0000..0xc_0000),
        // The serial link to the board's controller, behind the header of its feature: lists of features have a target of their own.
        _ => (D5005::new(&Fabric::new(profile(Shell::S10Dfl)).unwrap(), 0).control(), 0x1_0008..0x1_0040),
    };
    let misread = Arc::new(Misread { card, registers, answers: Mutex::new(answers) });
    let Ok(function) = in_process::attach(misread, &Domain::in_process(), "misread") else { return };
    if let Ok(readings) = Readings::of(&function) {
        let _ = readings.alarms().count();
        for row in &readings.rows {
            let _ = row.meaning();
        }
    }
});
