//! Where the values of each system's components are from.

use super::component::Basis;

/// Name of the component that is the link block and the fibre.
pub(super) const LINK: &str = "link";
/// Reason of a component that is not in the tables.
pub(super) const NONE: &str = "no source";
const BEAT: &str =
    "OPTWEB 3.1.1 and 4.1: a control signal is one active cycle, more are data; the paths of a card have 256 lanes";
const ONE_SIDED: &str = "extension: the published beats carry no address, so a second one does";
const REDUCTION_BEAT: &str =
    "extension: behind the receiving side of the switch, as MPI-FPGA 4.3: fully pipelined units of 256 bits";
const REDUCTION_UNIT: &str = "extension: no latency published; a pipelined f64 adder, in a chain as MPI-FPGA 4.3";
const LANES: &str = "extension: published times are of one instruction at a time; each lane has a loop-back and reduction units of its own";

const SEQUENCER: &str = "extension: OPTWEB's command sequencer, in the cycles of this card";

/// Returns the source of a component of OPTWEB.
pub(super) fn optweb(component: &str) -> Basis {
    use Basis::{Assumed, Fitted, Source};
    match component {
        "clock period" => Source("OPTWEB 4.1: 200 MHz"),
        "control signal" | "announcing beat" => Source(BEAT),
        "one-sided announcement" => Assumed(ONE_SIDED),
        "dispatch" => Fitted("barrier configuration 0.04 us"),
        "memory read" => Fitted("eager configuration 0.32 us"),
        "distributed switch" => Source("OPTWEB 4.1: about ten cycles"),
        "link management" => Fitted("barrier migration 0.36 us"),
        LINK => Source("OPTWEB 4.3.2: SerialLite III, 0.15 us"),
        "size check" => Fitted("eager migration 0.39 us"),
        "hand-over" => Fitted("multipath start-up 1.87 us"),
        "link rate" => Fitted("effective link bandwidth 45 Gb/s"),
        "pseudo channel rate" | "loop-back rate" => Source("OPTWEB 4.1: 256 lanes at 200 MHz"),
        "host link rate" => Assumed("about PCIe 3.0 x16; in no published row"),
        "beat" => Source("OPTWEB 4.1: 256 lanes"),
        "receive buffer" => Source("OPTWEB 4.1: 16 KiB"),
        "card memory" => Source("OPTWEB 4.1: 8 GiB"),
        "pseudo channels" => Source("OPTWEB 4.1: 16 memory I/Os of two"),
        "reduction beat" => Assumed(REDUCTION_BEAT),
        "reduction unit" => Assumed(REDUCTION_UNIT),
        "lanes" => Assumed(LANES),
        _ => Assumed(NONE),
    }
}

/// Returns the source of a component of CIRCUS.
pub(super) fn circus(component: &str) -> Basis {
    use Basis::{Fitted, Source};
    match component {
        "clock period" => Source("CIRCUS 6.1.2: 295.8 MHz"),
        LINK => Fitted("CIRCUS, latency at seven hops 1.87 us: a link between two routers of 9 cycles"),
        "hop" => Fitted("CIRCUS, latency at seven hops 1.87 us: a link and a router of 9 cycles"),
        "link rate" => Fitted("CIRCUS table 4: 103.125 Gb/s, less line code, meta frames, bursts and headers"),
        "pseudo channel rate" => Source("CIRCUS table 2: DDR4-2400, 64 bits"),
        "card memory" | "pseudo channels" => Source("CIRCUS table 2: 4 x 8 GB"),
        "beat" | "loop-back rate" => Source("CIRCUS 6.2: I/O channels of 512 bits"),
        _ => sequencer(component),
    }
}

/// Returns the source of a component of BlueLink.
pub(super) fn bluelink(component: &str) -> Basis {
    use Basis::{Assumed, Fitted, Source};
    match component {
        "clock period" => Assumed("250 MHz: no clock published; that of the words of the transceivers"),
        LINK | "hop" => Fitted("BlueLink, 10 to 20 cycles over an on-chip FIFO: line, flit, CRC and clock crossing"),
        "link rate" => Source("BlueLink VI: 10 Gb/s, 8b10b, 64 bits in flits of 128"),
        "pseudo channel rate" => Source("BlueLink VIII-A: DDR2-800, 64 bits"),
        "pseudo channels" => Source("BlueLink VIII-A: two memory channels"),
        "card memory" => Assumed("two modules of 4 GiB"),
        "beat" | "loop-back rate" => Source("BlueLink VI: 64 bits of payload"),
        _ => sequencer(component),
    }
}

/// Returns the source of a component of MPI-FPGA.
pub(super) fn mpi_fpga(component: &str) -> Basis {
    use Basis::{Assumed, Source};
    match component {
        "clock period" => Source("MPI-FPGA 6: 250 MHz"),
        LINK => Source("MPI-FPGA table 2: 440 ns, and the routers at its ends, 4.1"),
        "hop" => Source("MPI-FPGA table 2 and 4.1: a link, and a router of four stages"),
        "link rate" => Source("MPI-FPGA 2.5: a phit of 256 bits in each cycle; 240 B of a packet of 256 are data"),
        "pseudo channel rate" | "card memory" | "pseudo channels" => {
            Assumed("not published: four channels of DDR4-2400, as CIRCUS's card")
        }
        "beat" | "loop-back rate" => Source("MPI-FPGA 2.5: 256 bits"),
        _ => sequencer(component),
    }
}

/// Returns the source of a component of Novo-G#.
pub(super) fn novo_g(component: &str) -> Basis {
    use Basis::{Assumed, Source};
    match component {
        "clock period" => Source("Sheng 5.2: 156.25 MHz, the clock of the links"),
        LINK => Source("Sheng 3.3 and 5.1: the mean of the links, and routers of seven stages at both ends"),
        "hop" => Source("Sheng 3.3 and 5.1: the mean of the links, and a router of seven stages"),
        "link rate" => Source("Sheng 3.1: four lanes of 10 Gb/s"),
        "pseudo channel rate" => Assumed("not published: DDR3-1600, 64 bits"),
        "card memory" | "pseudo channels" => Source("Sheng 3.1: two modules of 8 GB"),
        "beat" | "loop-back rate" => Source("Sheng 5.1: paths of 256 bits"),
        _ => sequencer(component),
    }
}

/// The source of a component that is OPTWEB's.
fn sequencer(component: &str) -> Basis {
    use Basis::{Assumed, Fitted, Source};
    match optweb(component) {
        Source(_) | Fitted(_) => Assumed(SEQUENCER),
        assumed @ Assumed(_) => assumed,
    }
}
