//! A card without MSI-X: the driver falls back to the INTx line, and still sleeps and wakes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::Instruction;
use fpga_driver::Card;
use fpga_hal::{InterruptKind, in_process};
use fpga_mock::{Fabric, LateDma, Profile};
use fpga_tests::run::domain;
use fpga_tests::without_msix::WithoutMsix;

#[test]
fn the_driver_falls_back_to_the_line() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let _clock = fabric.start_clock().unwrap();
    // DMA that takes milliseconds: every wait sleeps, so that only the interrupt wakes it in time.
    let late = LateDma::new(fabric.endpoint(0), 1, Duration::from_millis(4));
    let domain = domain();
    let function = in_process::attach(Arc::new(WithoutMsix(late)), &domain, "no MSI-X").unwrap();
    assert_eq!(function.vectors(InterruptKind::Msix).unwrap(), 0);
    assert_eq!(function.vectors(InterruptKind::Intx).unwrap(), 1);
    let mut card = Card::open(function.clone()).unwrap();
    for _ in 0..20 {
        let token = card.queue_mut().submit(Instruction::nop()).unwrap();
        let begin = Instant::now();
        let mut taken = 0;
        while taken == 0 {
            taken = card.queue_mut().wait_progress(Duration::from_secs(60)).unwrap();
        }
        // A wake that was lost would show as the whole minute.
        assert!(begin.elapsed() < Duration::from_secs(50));
        assert!(card.queue_mut().take(token).unwrap().is_ok());
    }
    let status = function.config_read_u16(6).unwrap();
    assert_eq!(status & 1 << 3, 0, "nothing is asserted any more");
}
