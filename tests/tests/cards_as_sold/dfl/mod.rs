//! PAC D5005 cards: registers, port, host exerciser, errors, partial reconfiguration and feature lists, by this driver and by none.

mod card;
mod exerciser;
mod lists;
mod pac;
mod port;
mod reconfiguration;
mod registers;

use fpga_driver::dfl::Control;
use fpga_hal::vfio_user::{Server, connect};
use fpga_hal::{BarIndex, Domain, Function, Window, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::{Fabric, Profile, Shell};
use fpga_tests::run::domain;

/// Two cards on a fabric; the first with a control function.
struct Cards {
    fabric: Fabric,
    first: D5005,
    domain: Domain,
}

impl Cards {
    fn new() -> Self {
        let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) }).unwrap();
        Cards { first: D5005::new(&fabric, 0), fabric, domain: domain() }
    }

    fn control_function(&self) -> Function {
        in_process::attach(self.first.control(), &self.domain, "control of card 0").unwrap()
    }

    fn control(&self) -> Control {
        Control::open(self.control_function()).unwrap()
    }

    fn accelerator(&self) -> Function {
        in_process::attach(self.first.accelerator(), &self.domain, "card 0").unwrap()
    }

    fn second(&self) -> Function {
        in_process::attach(self.fabric.endpoint(1), &self.domain, "card 1").unwrap()
    }
}

fn bar_0(function: &Function) -> Window {
    function.window(BarIndex::new(0).unwrap()).unwrap()
}

#[test]
fn over_vfio_user() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.control.sock");
    let cards = Cards::new();
    let _server = Server::bind(&socket, cards.first.control()).unwrap().spawn().unwrap();
    let mut control = Control::open(connect(&socket, &Domain::vfio_user()).unwrap()).unwrap();
    assert_eq!(control.identity().unwrap().interface, Some(fpga_mock::dfl::INTERFACE));
    control.reset_accelerator().unwrap();
    cards.first.set_errors(0xa_0010, 1 << 7);
    assert_eq!(control.errors().unwrap().len(), 2);
    control.clear_errors().unwrap();
    assert_eq!(control.errors().unwrap(), []);
    let image = fpga_mock::dfl::image(7, 1 << 16);
    control.load(&image, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(bar_0(&cards.accelerator()).read_u64(8).unwrap(), 7);
}
