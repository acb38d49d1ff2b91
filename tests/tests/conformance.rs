//! The conformance suite in process and on sockets. On kernel VFIO the suite runs in a virtual machine (`tests/run vm`).
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fpga_hal::vfio_user::{self, Server};
use fpga_hal::{Domain, Endpoint, Function, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, Hardware, LateDma, Profile, Shell};
use fpga_tests::conformance::{Bus, CARDS, CASES, Named, OF_HOST_MEMORY, Seen, WITHOUT_ENGINE};
use fpga_tests::run::domain;
use fpga_tests::sweep::is_full;
use libtest_mimic::{Arguments, Trial};

/// All that hardware does. A bit error hits once in longer than the suite runs.
const ALL: Hardware = Hardware {
    posted_writes: Some(3),
    split_dma: Some(7),
    drift_ppm: 300,
    bits_per_error: Some(1 << 60),
    reset_ms: 100,
};
const OFF: Hardware =
    Hardware { posted_writes: None, split_dma: None, drift_ppm: 0, bits_per_error: None, reset_ms: 0 };

/// The switches of [`Hardware`], alone and together.
const SWITCHES: &[(&str, Hardware)] = &[
    ("posted writes", Hardware { posted_writes: ALL.posted_writes, ..OFF }),
    ("split DMA", Hardware { split_dma: ALL.split_dma, ..OFF }),
    ("clocks that drift", Hardware { drift_ppm: ALL.drift_ppm, ..OFF }),
    ("bit errors", Hardware { bits_per_error: ALL.bits_per_error, ..OFF }),
    ("slow resets", Hardware { reset_ms: ALL.reset_ms, ..OFF }),
    ("all of hardware", ALL),
];

/// How the cards of a trial are reached.
#[derive(Clone, Copy)]
struct Way {
    /// On sockets, or in process.
    is_served: bool,
    /// The fabric advances on a clock of its own, as it always does on sockets.
    has_clock: bool,
    /// Requests to host memory are late.
    is_late: bool,
    hardware: Hardware,
    shell: Shell,
}

impl Way {
    const IN_PROCESS: Way =
        Way { is_served: false, has_clock: false, is_late: false, hardware: OFF, shell: Shell::Mock };
    const ON_SOCKETS: Way = Way { is_served: true, has_clock: true, ..Way::IN_PROCESS };

    /// Runs a case on the cards of a new fabric.
    fn run(self, case: fn(&Bus<'_>)) {
        let profile = Profile { hardware: self.hardware, shell: self.shell, ..Profile::optweb(CARDS) };
        let fabric = Fabric::new(profile).expect("a fabric");
        let engines = self.shell.has_engine().then(|| XdmaCards::before(&fabric, Shape::default()));
        let endpoint = |node| match (&engines, self.shell) {
            (Some(cards), _) => cards.endpoint(node),
            (None, Shell::S10Pac) => pac(&fabric, node),
            (None, _) => fabric.endpoint(node),
        };
        let mut cards: Vec<_> = (0..CARDS).map(endpoint).collect();
        let _clock = self.has_clock.then(|| fabric.start_clock().expect("a thread"));
        if self.is_late {
            cards = late(&cards);
        }
        let drift_ppm = self.hardware.drift_ppm;
        let seen = match self.shell {
            Shell::Mock => Seen::MOCK,
            Shell::S10Dfl => Seen::S10_DFL,
            Shell::S10Pac => Seen::S10_PAC,
            Shell::AlveoXdma | Shell::AlveoBar4 | Shell::AlveoBypass => Seen::ALVEO_XDMA,
        };
        if !self.is_served {
            return case(&Bus { open: &|| attach(&cards), drift_ppm, seen });
        }
        let directory = tempfile::tempdir().expect("a directory");
        let socket = |node: usize| directory.path().join(format!("{node}.sock"));
        let serve = |(node, card)| Server::bind(socket(node), card).and_then(Server::spawn).expect("a server");
        let servers: Vec<_> = cards.into_iter().enumerate().map(serve).collect();
        let open = || {
            let domain = Domain::vfio_user();
            let connect = |node| vfio_user::connect(&socket(node), &domain).expect("a card");
            (0..servers.len()).map(connect).collect()
        };
        case(&Bus { open: &open, drift_ppm, seen });
    }
}

/// A D5005 without OFS, whose accelerator is released from reset.
fn pac(fabric: &Fabric, node: u32) -> Arc<dyn Endpoint> {
    let card = D5005::new(fabric, node);
    card.release();
    card.accelerator()
}

fn late(endpoints: &[Arc<dyn Endpoint>]) -> Vec<Arc<dyn Endpoint>> {
    let late = |(seed, card): (u64, &Arc<dyn Endpoint>)| {
        LateDma::new(Arc::clone(card), seed, Duration::from_micros(200)) as Arc<dyn Endpoint>
    };
    (0..).zip(endpoints).map(late).collect()
}

fn attach(endpoints: &[Arc<dyn Endpoint>]) -> Vec<Function> {
    let domain = domain();
    let attach = |card: &Arc<dyn Endpoint>| in_process::attach(Arc::clone(card), &domain, "conformance");
    endpoints.iter().map(attach).collect::<Result<_, _>>().expect("cards")
}

/// All ways, by name: those of a plain mock, those behind the shell of a real card, and those with all of hardware. With
/// `FPGA_TESTS_FULL=1`, also with each switch alone, and with all and late DMA.
fn ways() -> Vec<(String, Way)> {
    let clocked = Way { has_clock: true, ..Way::IN_PROCESS };
    let buses = [("in process, the fabric on a clock of its own", clocked), ("vfio-user", Way::ON_SOCKETS)];
    let mut ways = vec![("in process".to_owned(), Way::IN_PROCESS)];
    for shell in Shell::ALL {
        let Some(name) = shell.name() else { continue };
        let name = format!("{name}{}", shell.option());
        ways.push((format!("in process, {name}"), Way { shell, ..Way::IN_PROCESS }));
        ways.push((format!("vfio-user, {name}"), Way { shell, ..Way::ON_SOCKETS }));
        if shell.has_engine() {
            let late = Way { shell, is_late: true, has_clock: true, ..Way::IN_PROCESS };
            ways.push((format!("in process, {name}, the fabric on a clock of its own, late DMA"), late));
        }
    }
    for (bus, way) in buses {
        ways.push((bus.to_owned(), way));
        ways.push((format!("{bus}, late DMA"), Way { is_late: true, ..way }));
        for (switch, hardware) in SWITCHES.iter().filter(|(_, hardware)| is_full() || *hardware == ALL) {
            ways.push((format!("{bus}, {switch}"), Way { hardware: *hardware, ..way }));
            if is_full() && *hardware == ALL {
                let late = Way { hardware: *hardware, is_late: true, ..way };
                ways.push((format!("{bus}, {switch}, late DMA"), late));
            }
        }
    }
    ways
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = ways().into_iter().flat_map(|(name, way)| {
        let runs = move |case: &&Named| {
            let is_possible = way.shell.masters_bus() || !OF_HOST_MEMORY.contains(&case.0);
            is_possible && !(way.shell.has_engine() && WITHOUT_ENGINE.contains(&case.0))
        };
        CASES.iter().filter(runs).map(move |&(case_name, case)| {
            Trial::test(format!("{name}: {case_name}"), move || {
                way.run(case);
                Ok(())
            })
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
