//! Cards whose building block says something else: nothing that it says is believed.

use fpga_driver::Error as CardError;
use fpga_driver::msgdma::{Completion, Engine, Error};
use fpga_hal::BarIndex;
use fpga_tests::altered::altered;

use super::raw::BLOCK;
use super::{Pac, attach};

/// Opens the engine of a card on which some registers of BAR 2 read otherwise, and uses it.
fn opened(values: &[(u64, u32)], completion: Completion) -> Result<(), Error> {
    let pac = Pac::new();
    let mut engine = Engine::open(attach(altered(pac.endpoint(), 2, values)), completion)?;
    engine.write(5, &[7; 100])?;
    let mut back = [0; 100];
    engine.read(5, &mut back)?;
    assert_eq!(back, [7; 100]);
    Ok(())
}

#[test]
fn an_engine_that_is_not_there_is_not_found() {
    // No header, the GUID of another block, of a stream, a block of another type, one that leaves the BAR.
    let cases: [(&[(u64, u32)], &str); 5] = [
        (&[(0x4_1000, 0), (0x4_1004, 0x2000_0100)], "does not have its GUID"),
        (&[(BLOCK + 8, 1)], "does not have its GUID"),
        (
            &[
                (BLOCK + 8, 0xf9ee_6335),
                (BLOCK + 0xc, 0x9ff4_9b8c),
                (BLOCK + 0x10, 0x2f77_43ed),
                (BLOCK + 0x14, 0xfee6_9b44),
            ],
            "for a stream",
        ),
        (&[(BLOCK + 4, 0x3010_0100)], "does not have its GUID"),
        // The header is 4 KiB before the end of the BAR.
        (
            &[
                (0x4_1000, 0xe000_0001),
                (0x4_1004, 0x2000_0003),
                (0x7_f000, 0x765),
                (0x7_f004, 0x2000_0100),
                (0x7_f008, 0xbace_01ea),
                (0x7_f00c, 0xa914_9a35),
                (0x7_f010, 0xf6ec_40fc),
                (0x7_f014, 0xef82_def7),
            ],
            "does not fit into the BAR",
        ),
    ];
    for (values, why) in cases {
        let error = opened(values, Completion::Poll).unwrap_err();
        assert!(matches!(error, Error::NoEngine { .. }) && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn an_accelerator_in_reset_is_released() {
    let pac = Pac::new();
    let port = attach(pac.endpoint());
    port.window(BarIndex::new(2).unwrap()).unwrap().write_u64(0x38, 5).unwrap();
    Engine::open(port, Completion::Poll).unwrap().write(0x40, &[7; 64]).unwrap();
}

/// Without a vector there is poll mode; a header of version 0, as OPAE's examples have it, names none.
#[test]
fn interrupts_need_a_vector() {
    let cases: [&[(u64, u32)]; 4] = [
        &[(BLOCK + 4, 0x2000_0100)],
        &[(BLOCK + 0x20, 0)],
        // Another parameter, and parameters that never end.
        &[(BLOCK + 0x28, 2)],
        &[(BLOCK + 0x28, 2), (BLOCK + 0x2c, 0)],
    ];
    for values in cases {
        opened(values, Completion::Poll).unwrap();
        let error = opened(values, Completion::Interrupt).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains("no vector"), "{error}");
    }
    opened(&[], Completion::Interrupt).unwrap();
    // Behind another parameter of 3584 bytes, unless that is the last.
    let behind = |last: u32| {
        let words = 3584 / 8;
        let header = [(0x28, 2), (0x2c, words << 3 | last)];
        let parameter = [(0xe28, 1), (0xe2c, 1), (0xe30, 1), (0xe34, 1)];
        [&header[..], &parameter].concat().into_iter().map(|(at, value)| (BLOCK + at, value)).collect::<Vec<_>>()
    };
    opened(&behind(0), Completion::Interrupt).unwrap();
    assert!(matches!(opened(&behind(1), Completion::Interrupt), Err(Error::Refused { .. })));
    for (offset, value) in [(0x30, 0xffff_fff0), (0x30, 2048), (0x34, 0), (0x34, !1)] {
        let error = opened(&[(BLOCK + offset, value)], Completion::Poll).unwrap_err();
        assert!(matches!(error, Error::BadRegister { .. }), "{error:?}");
    }
    // One that the function does not have.
    assert!(matches!(opened(&[(BLOCK + 0x30, 9)], Completion::Interrupt), Err(Error::Card(CardError::Bus { .. }))));
}

#[test]
fn a_status_that_cannot_be_is_not_believed() {
    // Never out of reset, always busy.
    for value in [0x4a, 0x0b] {
        let error = opened(&[(BLOCK + 0x40, value)], Completion::Poll).unwrap_err();
        assert!(matches!(error, Error::Stuck { .. }), "{error:?}");
    }
    // Not empty, full, stopped on an error after a reset.
    for value in [0x08, 0x0e, 0x8a, 0x10a] {
        let error = opened(&[(BLOCK + 0x40, value)], Completion::Poll).unwrap_err();
        assert!(matches!(error, Error::BadRegister { .. }), "{error:?}");
    }
    let error = opened(&[(BLOCK + 0x40, !0)], Completion::Poll).unwrap_err();
    assert!(matches!(error, Error::Card(CardError::AllOnes { register, .. }) if register == BLOCK + 0x40), "{error:?}");
}
