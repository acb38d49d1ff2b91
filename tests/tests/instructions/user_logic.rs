//! The changeover switch: user logic has the card memory for the cycles it returns.

use std::time::Duration;

use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Card, Error};
use fpga_hal::in_process;
use fpga_mock::{CardMemory, Fabric, Profile, UserCall, UserLogic};
use fpga_tests::run::domain;

/// Inverts bytes, a beat of 32 a cycle; refuses what leaves card memory.
struct Invert;

impl UserLogic for Invert {
    fn run(&mut self, memory: &mut CardMemory, call: UserCall) -> Result<u64, Status> {
        let inverted: Vec<u8> = memory.read(call.source, call.bytes)?.iter().map(|byte| !byte).collect();
        memory.write(call.destination, &inverted)?;
        Ok(call.bytes.div_ceil(32))
    }
}

#[test]
fn user_logic_works_on_card_memory_and_takes_its_time() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    fabric.set_user_logic(0, Box::new(Invert));
    let mut card = Card::open(in_process::attach(fabric.endpoint(0), &domain(), "0").unwrap()).unwrap();
    card.write_memory(100, &[0x0f; 640]).unwrap();
    let user = |bytes| Instruction::user(Operand::card(100), Operand::card(5000), bytes, 0);
    let done = card.run([user(640)], Duration::from_secs(5)).unwrap();
    // Seven cycles of dispatch and twenty of its own.
    assert_eq!(done[0].t2, 27);
    let mut back = [0; 641];
    card.read_memory(5000, &mut back).unwrap();
    assert_eq!(back[..640], [0xf0; 640]);
    assert_eq!(back[640], 0);
    let refused = card.run([user(8 << 30)], Duration::from_secs(5)).unwrap_err();
    assert!(matches!(refused, Error::Failed { status: Status::OutOfRange, .. }), "{refused}");
}
