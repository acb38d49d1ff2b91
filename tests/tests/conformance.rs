//! The conformance suite in process and on sockets. On kernel VFIO the suite runs in a virtual machine (`tests/run vm`).
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fpga_hal::vfio_user::{self, Server};
use fpga_hal::{Domain, Endpoint, Function, in_process};
use fpga_mock::{Fabric, LateDma, Profile};
use fpga_tests::conformance::{Bus, CARDS, CASES};
use libtest_mimic::{Arguments, Trial};

/// The cards of a new fabric.
fn endpoints() -> (Fabric, Vec<Arc<dyn Endpoint>>) {
    let fabric = Fabric::new(Profile::optweb(CARDS)).expect("a fabric");
    let endpoints = (0..CARDS).map(|node| fabric.endpoint(node)).collect();
    (fabric, endpoints)
}

fn late(endpoints: &[Arc<dyn Endpoint>]) -> Vec<Arc<dyn Endpoint>> {
    let late = |(seed, card): (u64, &Arc<dyn Endpoint>)| {
        LateDma::new(Arc::clone(card), seed, Duration::from_micros(200)) as Arc<dyn Endpoint>
    };
    (0..).zip(endpoints).map(late).collect()
}

fn attach(endpoints: &[Arc<dyn Endpoint>]) -> Vec<Function> {
    let domain = Domain::in_process();
    let attach = |card: &Arc<dyn Endpoint>| in_process::attach(Arc::clone(card), &domain, "conformance");
    endpoints.iter().map(attach).collect::<Result<_, _>>().expect("cards")
}

fn in_process(case: fn(&Bus<'_>)) {
    let (_fabric, cards) = endpoints();
    case(&Bus { open: &|| attach(&cards) });
}

fn in_process_with_a_clock(case: fn(&Bus<'_>)) {
    let (fabric, cards) = endpoints();
    let _clock = fabric.start_clock().expect("a thread");
    case(&Bus { open: &|| attach(&cards) });
}

fn in_process_late(case: fn(&Bus<'_>)) {
    let (fabric, cards) = endpoints();
    let _clock = fabric.start_clock().expect("a thread");
    let cards = late(&cards);
    case(&Bus { open: &|| attach(&cards) });
}

/// The cards behind sockets, their fabric on a clock of its own.
fn served(fabric: &Fabric, cards: Vec<Arc<dyn Endpoint>>, case: fn(&Bus<'_>)) {
    let _clock = fabric.start_clock().expect("a thread");
    let directory = tempfile::tempdir().expect("a directory");
    let socket = |node: usize| directory.path().join(format!("{node}.sock"));
    let serve = |(node, card)| Server::bind(socket(node), card).and_then(Server::spawn).expect("a server");
    let servers: Vec<_> = cards.into_iter().enumerate().map(serve).collect();
    let open = || {
        let domain = Domain::vfio_user();
        let connect = |node| vfio_user::connect(&socket(node), &domain).expect("a card");
        (0..servers.len()).map(connect).collect()
    };
    case(&Bus { open: &open });
}

fn vfio_user(case: fn(&Bus<'_>)) {
    let (fabric, cards) = endpoints();
    served(&fabric, cards, case);
}

fn vfio_user_late(case: fn(&Bus<'_>)) {
    let (fabric, cards) = endpoints();
    let cards = late(&cards);
    served(&fabric, cards, case);
}

type OnABus = (&'static str, fn(fn(&Bus<'_>)));

const BUSES: &[OnABus] = &[
    ("in process", in_process),
    ("in process, the fabric on a clock of its own", in_process_with_a_clock),
    ("in process, late DMA", in_process_late),
    ("vfio-user", vfio_user),
    ("vfio-user, late DMA", vfio_user_late),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = BUSES.iter().flat_map(|&(bus, on)| {
        CASES.iter().map(move |&(name, case)| {
            Trial::test(format!("{bus}: {name}"), move || {
                on(case);
                Ok(())
            })
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
