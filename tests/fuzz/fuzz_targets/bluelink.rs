//! Any neighbour of a BlueLink end: any bytes on the wire, and any fields with a good CRC. The end never panics, sends no flit
//! that it would not take itself, names the violation that stops it, and accounts for every flit that it was given.
#![no_main]

use fpga_mock::bluelink::{Address, Aligner, Datum, End, EndConfig, Event, Flit, FlitError, HEADER, Session, Word, serialize};
use libfuzzer_sys::fuzz_target;

/// Puts header and CRC into 16 bytes.
fn seal(bytes: &mut [u8; 16]) {
    bytes[0] = HEADER;
    let crc = crc32c::crc32c(&bytes[1..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    let Some((setting, mut data)) = data.split_first_chunk::<3>() else { return };
    let [timeout, input, receive_buffer] = *setting;
    let config = EndConfig {
        timeout: timeout.into(),
        input: 1 + usize::from(input % 16),
        receive_buffer: usize::from(receive_buffer % 40),
    };
    let mut end: End = End::new(config, Session::MIN);
    let mut aligner = Aligner::<u64>::default();
    let mut now = 0;
    // Flits given and not accounted for: neither acknowledged nor reported.
    let mut open = 0;
    while let Some((step, rest)) = data.split_first_chunk::<17>() {
        data = rest;
        let mut wire: [u8; 16] = step[1..].try_into().expect("16 bytes");
        now += u64::from(step[0] >> 3);
        if step[0] & 1 == 1 {
            open += usize::from(end.send(Datum { address: Address::default(), payload: now }).is_ok());
        }
        if step[0] & 2 == 2
            && let Some(flit) = end.transmit(now)
        {
            assert_eq!(Flit::decode(&flit.encode()), Ok(flit));
        }
        if step[0] & 4 == 4 {
            seal(&mut wire);
        }
        // Over the words of a transceiver, one of which may be damaged.
        let words = serialize::<u64>(&wire).enumerate().map(|(place, word)| Word {
            control: word.control ^ u8::from(step[0] == 0xff && place == 2),
            ..word
        });
        let Some(wire) = words.filter_map(|word| aligner.push(word)).last() else { continue };
        let was_failed = end.violation();
        match Flit::decode(&wire) {
            Ok(flit) => {
                assert_eq!(flit.encode(), wire);
                match end.receive(now, flit) {
                    Ok(Event::NeighbourRestarted { unacknowledged, unsent }) => {
                        assert_eq!(unacknowledged + unsent, open);
                        open = 0;
                    }
                    Ok(_) => {
                        assert!(end.pending() <= open && open - end.pending() <= 8);
                        open = end.pending();
                    }
                    Err(violation) => {
                        assert_eq!(end.violation(), Some(violation));
                        assert!(was_failed.is_none_or(|was| was == violation));
                    }
                }
            }
            Err(FlitError::Violation(violation)) => end.fail(was_failed.unwrap_or(violation)),
            Err(FlitError::Damaged(_)) => {}
        }
        assert_eq!(end.pending(), open);
        if step[0] & 8 == 8 {
            end.take();
        }
    }
});
