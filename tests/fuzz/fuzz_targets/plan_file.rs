//! Any bytes as a program file: an error, or programs that encode to the same bytes and that the verifier accepts or refuses
//! with a message. The same for files of plans with some bytes changed and valid checksums.
#![no_main]

use std::sync::LazyLock;

use cmdseq::asm::{Assembly, decode, encode};
use cmdseq::plan::{Collective, ProgramSet, Request, plan};
use cmdseq::{Capabilities, verify};
use libfuzzer_sys::fuzz_target;

/// Of mock cards, four of them.
static CAPABILITIES: LazyLock<Capabilities> = LazyLock::new(|| {
    let selection = fpga_select::select("mock:optweb:4").expect("a selector");
    let cluster = fpga_driver::Cluster::open(selection.functions).expect("cards");
    cluster.capabilities().clone()
});

/// Files of plans, to change bytes of.
static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let request = |collective| Request::new(collective, vec![0, 1, 2, 3], 4096);
    let file = |collective| {
        let plan = plan(&request(collective), &CAPABILITIES).expect("a plan");
        encode(&Assembly::of(&plan.set, &[0, 1, 2, 3]).expect("an assembly"))
    };
    [Collective::Alltoall, Collective::Broadcast, Collective::Send].map(file).to_vec()
});

fn check(bytes: &[u8]) {
    let Ok(assembly) = decode(bytes) else { return };
    assert_eq!(encode(&assembly), bytes, "what was read is written as it was");
    let group: Vec<u32> = (0..assembly.programs.len() as u32).collect();
    let programs = assembly.programs.iter().map(|one| one.instructions.clone());
    let mut communicators: Vec<_> = assembly.programs.iter().flat_map(|one| one.communicators.clone()).collect();
    communicators.sort_unstable_by(|a, b| (a.id, &a.members).cmp(&(b.id, &b.members)));
    communicators.dedup();
    if let Err(refusal) = verify(&ProgramSet::new(group, programs).with(communicators), &CAPABILITIES) {
        assert!(!refusal.cause.is_empty());
    }
}

/// The file with a fitting length and checksum, so that what is behind them is looked at.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 32 {
        let length = bytes.len() as u64;
        bytes[20..28].copy_from_slice(&length.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), &bytes[32..]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    check(data);
    check(&sealed(data.to_vec()));
    // A plan's file with some bytes changed: place, value.
    let Some((which, changes)) = data.split_first() else { return };
    let mut file = FILES[usize::from(*which) % FILES.len()].clone();
    let (changes, _) = changes.as_chunks::<3>();
    for [low, high, value] in changes.iter().take(8) {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        file[at] = *value;
    }
    // An instruction has a checksum too, or nothing behind it would be looked at.
    let words = u32::from_le_bytes([file[36], file[37], file[38], file[39]]) as usize;
    if words <= 4 && file.len() > 56 + words * 64 {
        for word in file[56..56 + words * 64].as_chunks_mut::<64>().0 {
            cmdseq::instruction::seal(word);
        }
    }
    check(&sealed(file));
});
