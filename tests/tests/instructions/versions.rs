//! Cards and hosts of different versions (`docs/isa.md`, Versions): what one of them does not know is refused or left alone.

use std::time::Duration;

use cmdseq::instruction::{offset, seal};
use cmdseq::plan::{Collective, ProgramSet, Request, plan};
use cmdseq::{Combine, Element, Flags, Instruction, Operand, Operation, Reason, Reduction, Status, verify};
use fpga_driver::{Bound, Error};
use fpga_mock::{Fabric, Profile, ProfileError};
use fpga_regs::sequencer;
use fpga_tests::raw_host::{RINGS_BYTES, RawHost};
use fpga_tests::run::{open, run};

const SECONDS: Duration = Duration::from_secs(10);
const SUM: Combine = Combine::new(Reduction::Sum, Element::F32);
/// The minor versions of cards that are older than this host.
const OLDER: [u32; 2] = [3, 4];
const CURRENT: u32 = 6;

fn card_of(version: u32) -> Profile {
    Profile { version, ..Profile::optweb(4) }
}

fn fold() -> Instruction {
    Instruction::fold(SUM, Operand::card(0), Operand::card(64), Operand::card(128), 64)
}

fn raw(profile: Profile) -> (Fabric, RawHost) {
    let fabric = Fabric::new(profile).unwrap();
    let host = RawHost::attach(fabric.endpoint(0), 1 << 16);
    (fabric, host)
}

/// Operations of the card, by the bits of its registers.
fn announced(host: &RawHost) -> u64 {
    u64::from(host.read(sequencer::OPERATIONS_LO)) | u64::from(host.read(sequencer::OPERATIONS_HI)) << 32
}

#[test]
fn cards_say_their_version_and_what_came_with_it() {
    for version in [3, 4, 5, CURRENT] {
        let (_fabric, cluster) = open(card_of(version));
        let card = &cluster.cards()[0];
        assert_eq!(card.version(), (1, version as u16));
        let missing: Vec<&Operation> = Operation::ALL.iter().filter(|one| !card.capabilities().runs(**one)).collect();
        let later = if version < 5 { vec![&Operation::Fold, &Operation::Open, &Operation::Close] } else { vec![] };
        assert_eq!(missing, later, "1.{version}");
        assert_eq!(card.capabilities().windows > 0, version > 4, "1.{version}");
        let (_fabric, host) = raw(card_of(version));
        assert_eq!(host.read(sequencer::LANES), u32::from(version > 3), "1.{version}");
    }
    let impossible = Profile { lanes: 2, ..card_of(3) };
    assert!(matches!(Fabric::new(impossible), Err(ProfileError::Version { minor: 3, .. })));
}

/// On the card whatever the fields are, in a resident program too, and in the verifier.
#[test]
fn an_older_card_refuses_a_later_operation_by_its_code() {
    let code = Operation::Fold as u16;
    for version in OLDER {
        let (_fabric, mut host) = raw(card_of(version));
        let mut strange = fold();
        (strange.root, strange.bytes, strange.lane) = (9, 7, 200);
        for wrong in [fold(), strange] {
            let completion = host.run(&wrong);
            assert_eq!((completion.status, completion.detail), (Status::BadOperation, code), "1.{version}: {wrong:?}");
        }
        // Checksum and version come first.
        let mut word = fold().encode();
        word[offset::VERSION] = 2;
        seal(&mut word);
        assert_eq!(host.run_word(&word).status, Status::BadVersion);
        let program = [fold().with_flags(Flags::LAST)].map(|one| one.encode()).concat();
        host.memory.write(RINGS_BYTES, &program).unwrap();
        let stored = host.run(&Instruction::store(0, host.address(), 1));
        assert_eq!((stored.status, stored.detail), (Status::BadProgram, 0));
        assert_eq!(host.run(&Instruction::nop()).status, Status::Done);

        let (_fabric, mut cluster) = open(card_of(version));
        let refusal = verify(&ProgramSet::new([0], [vec![fold()]]), cluster.capabilities()).unwrap_err();
        assert_eq!((refusal.reason, refusal.instruction), (Reason::Unsupported, Some(0)), "{refusal}");
        let error = cluster.card_mut(0).run([Bound::from(fold())], SECONDS).unwrap_err();
        assert!(matches!(error, Error::Failed { status: Status::BadOperation, detail, .. } if detail == code));
    }
}

/// A card of before lanes has neither lanes nor fences.
#[test]
fn an_older_card_refuses_bits_that_it_does_not_know() {
    let (_fabric, mut host) = raw(card_of(3));
    let nop = Instruction::nop();
    for (wrong, at) in [
        (Instruction::barrier().in_lane(1), offset::LANE),
        (nop.with_flags(Flags::FENCE), offset::FLAGS),
        (Instruction::copy(reserved(), Operand::card(64), 64), offset::OPERANDS),
        (Instruction::copy(Operand::card(64), reserved(), 64), offset::OPERANDS),
    ] {
        let completion = host.run(&wrong);
        assert_eq!((completion.status, completion.detail), (Status::BadField, at as u16), "{wrong:?}");
    }
}

fn reserved() -> Operand {
    Operand { space: cmdseq::AddressSpace::Stream0, ..Operand::card(0) }
}

#[test]
fn plans_for_older_cards_use_what_these_have() {
    for version in OLDER {
        for profile in [card_of(version), Profile { version, ..Profile::optweb_dragonfly(3, 3) }] {
            let (_fabric, mut cluster) = open(profile);
            for (name, collective) in [("allreduce", Collective::Allreduce), ("scan", Collective::Scan)] {
                let group = (0..cluster.capabilities().nodes).collect();
                let request = Request { combine: Some(SUM), ..Request::new(collective, group, 4096) };
                let plan = plan(&request, cluster.capabilities()).unwrap();
                let mut used = plan.set.instructions();
                assert!(used.all(|one| cluster.capabilities().runs(one.operation)), "1.{version}: {name}");
                cluster.execute(&plan.set, &fpga_driver::Execution::default()).unwrap();
            }
            run(&mut cluster, "alltoall", 4096, None, None);
        }
    }
}

/// An older host on this card: it knows no later operation, field or space, and writes none. Words that it does write mean
/// what they meant, and codes that this host does not know either are refused.
#[test]
fn a_newer_card_does_what_an_older_one_does_and_refuses_the_unknown() {
    let (_old_fabric, mut old) = raw(card_of(3));
    let (_fabric, mut new) = raw(card_of(CURRENT));
    assert_eq!(announced(&old) & !announced(&new), 0, "operations are added and not taken away");
    let copy = Instruction::copy(Operand::card(0), Operand::card(4096), 1000);
    for one in [Instruction::nop(), Instruction::fill(Operand::card(0), 1000, 7), copy, Instruction::delay(99)] {
        let [old, new] = [old.run(&one), new.run(&one)];
        assert_eq!((old.status, old.t1, old.t2), (new.status, new.t1, new.t2), "{one:?}");
    }
    for code in (0..=u8::MAX).filter(|code| Operation::from_code(*code).is_none()) {
        let mut word = Instruction::nop().encode();
        word[offset::OPERATION] = code;
        seal(&mut word);
        let completion = new.run_word(&word);
        assert_eq!((completion.status, completion.detail), (Status::BadOperation, code.into()));
        assert!(code > 63 || announced(&new) >> code & 1 == 0, "{code} is announced");
    }
    for bit in 5..16 {
        let mut word = Instruction::nop().encode();
        word[offset::FLAGS..offset::FLAGS + 2].copy_from_slice(&(1_u16 << bit).to_le_bytes());
        seal(&mut word);
        let completion = new.run_word(&word);
        assert_eq!((completion.status, completion.detail), (Status::BadField, offset::FLAGS as u16), "flag {bit}");
    }
}

/// Both spaces that are reserved, on both sides of each operation, on the card and in the verifier.
#[test]
fn reserved_spaces_are_refused() {
    let (_fabric, mut host) = raw(card_of(CURRENT));
    let (_other, cluster) = open(card_of(CURRENT));
    let card = Operand::card(4096);
    for space in [cmdseq::AddressSpace::Stream0, cmdseq::AddressSpace::Stream1] {
        let port = Operand { space, ..Operand::card(0) };
        for wrong in [
            Instruction::copy(port, card, 64),
            Instruction::copy(card, port, 64),
            Instruction::copy(port, port, 64),
            Instruction::fill(port, 64, 1),
            Instruction::send(1, port, 64),
            Instruction::recv(1, port, 64),
            Instruction::allreduce(SUM, port, card, 64),
            Instruction::fold(SUM, port, card, Operand::card(8192), 64),
            Instruction::user(port, card, 64, 0),
        ] {
            let completion = host.run(&wrong);
            assert_eq!(
                (completion.status, completion.detail),
                (Status::BadField, offset::OPERANDS as u16),
                "{wrong:?}"
            );
            let refusal = verify(&ProgramSet::new([0], [vec![wrong]]), cluster.capabilities()).unwrap_err();
            let said = (refusal.rank, refusal.instruction, refusal.reason);
            assert_eq!(said, (Some(0), Some(0), Reason::Field), "{wrong:?}");
            assert!(refusal.cause.contains("operands"), "{refusal}");
        }
    }
}
