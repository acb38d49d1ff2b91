//! What will happen on a fabric.

use crate::engine::streams::StreamId;
use crate::fault::Fault;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::one_sided::ServedId;
use crate::proto::optweb::transfer::Carried;

/// A future event. Events of a card or of one of its instructions carry the card's or the lane's epoch, and are void in a
/// later epoch. `at` is the lane of the instruction; of data and signals on links, the lane that receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A stream has moved its last byte, unless its rate has changed since.
    StreamEnds(StreamId),
    /// The next instruction can be issued.
    Issue { card: usize, epoch: u64 },
    /// A running instruction reached a step that depends on nothing but time.
    Step { at: LaneId, epoch: u64, step: Step },
    /// What a link carried is there, unless the link was trained or cut since.
    Arrival { at: LaneId, port: u32, session: u32, what: Carried },
    /// The last beat of a burst from the receive buffer is counted.
    BufferedCounted { at: LaneId, epoch: u64, port: usize },
    /// The first beat that another card reads from this one is at the switch.
    ReplyBegins(ServedId),
    /// A planted fault strikes.
    Strike(Fault),
    /// The link between two cards comes up again.
    LinkUp { a: u32, b: u32 },
    /// A read of host memory has not been answered for the completion timeout.
    Unanswered { number: u64 },
    /// The posted writes of a card up to this one act, if they have not.
    Posted { card: usize, number: u64 },
    /// A message of the network of switches arrives.
    Switches,
    /// The user logic behind statically scheduled routers has nothing left to do in this run since the fabric was made.
    TransformEnds { number: u64 },
    /// A reset that takes time has come a step further.
    ResetGoesOn { card: usize, epoch: u64 },
}

/// Steps of a running instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The switch is set: receives may go.
    SwitchSet,
    /// What the network of switches takes is read from memory.
    DataAtNetwork,
    /// The result of the network of switches is in memory.
    InMemory,
    /// The first control beat is out.
    ControlsOut,
    /// The first beat read from memory is at the switch.
    DataAtSwitch,
    /// The beat that announces data is out.
    HeaderOut,
    /// The own block is through the switch.
    OwnCounted,
    /// The sequencer has read its signals.
    SignalsRead,
    /// The contributions to a fold that lay in the receive buffers are at the reduction units.
    FoldCounted,
    /// The result of a fold is out of the reduction units and counted.
    Folded,
    /// No transfer goes through the window any more, or the `close` has waited long enough.
    Closed,
    /// The next piece of a copy from or to host memory is due.
    HostPiece,
    /// The duration of the instruction is over.
    Finish,
}
