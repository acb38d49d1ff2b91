//! A fabric of boards and cables, and what a host does with it.

use std::num::NonZeroU64;

use super::address::{BOARDS_MAX, CHANNELS, Target};
use super::application::Application;
use super::board::{Board, BoardStatistics};
use super::cable::Cable;
use super::error::{FabricError, PORTS_MAX};
use super::memory_unit::{MemoryStatistics, MemoryUnit};
use super::message::Message;
use super::pipe_unit::PipeUnit;
use super::routes::up_down;
use crate::engine::{Clock, Component, ComponentId, Context, Cycle, Time, World};
use crate::profile::bluelink::Parameters;
use crate::proto::bluelink::{Datum, Payload};

/// A board or a cable.
#[derive(Debug)]
enum Part<P: Payload> {
    Board(Box<Board<P>>),
    Cable(Box<Cable>),
}

impl<P: Payload> Component for Part<P> {
    type Message = Message<P>;

    fn receive(&mut self, message: Message<P>, context: &mut Context<'_, Message<P>>) {
        match self {
            Part::Board(board) => board.receive(message, context),
            Part::Cable(cable) => cable.receive(message, context),
        }
    }
}

/// Boards with cables between them, on one clock of virtual time.
///
/// Time goes on only in calls that say so: [`Fabric::run_until`], [`Fabric::send`] and [`Fabric::receive`].
///
/// ```
/// use fpga_mock::bluelink::{Fabric, Parameters, Target};
///
/// // Three boards in a line: flits from board 0 to board 2 pass the switch of board 1.
/// let mut fabric: Fabric = Fabric::new(Parameters::published(), 3, &[(0, 1), (1, 2)])?;
/// let channel = Target { board: 2, channel: 5 };
/// fabric.send(0, channel, 0xb10e, 1_000_000)?;
/// assert_eq!(fabric.receive(channel, 1_000_000)?, Some(0xb10e));
/// assert!(fabric.now() < 1_000_000);
/// # Ok::<(), fpga_mock::bluelink::FabricError>(())
/// ```
#[derive(Debug)]
pub struct Fabric<P: Payload = u64> {
    world: World<Part<P>>,
    boards: Vec<ComponentId>,
    cables: Vec<ComponentId>,
}

impl<P: Payload> Fabric<P> {
    /// Builds a fabric of `boards` boards; each cable joins two of them, and takes the next free port of both.
    ///
    /// # Errors
    /// [`FabricError`] for too many boards or cables, or if a board cannot be reached.
    pub fn new(parameters: Parameters, boards: usize, cables: &[(usize, usize)]) -> Result<Self, FabricError> {
        if !(1..=BOARDS_MAX).contains(&boards) {
            return Err(FabricError::Boards { boards });
        }
        let mut neighbours = vec![Vec::new(); boards];
        for (from, to) in cables.iter().copied() {
            if from == to || from.max(to) >= boards {
                return Err(FabricError::Cable { from, to, boards });
            }
            neighbours[from].push(to);
            neighbours[to].push(from);
        }
        if let Some(board) = neighbours.iter().position(|ports| ports.len() > PORTS_MAX) {
            return Err(FabricError::Ports { board, cables: neighbours[board].len() });
        }
        let routes = up_down(&neighbours).map_err(|board| FabricError::CutOff { board })?;
        let mut world = World::default();
        let clock = Clock::new(NonZeroU64::new(parameters.clock_hz).unwrap_or(NonZeroU64::MIN), 0);
        let boards: Vec<ComponentId> = routes
            .into_iter()
            .zip(0..=u8::MAX)
            .map(|(routes, node)| {
                let mut board = Board::new(&parameters, node, clock);
                board.set_routes(routes);
                world.add(Part::Board(Box::new(board)))
            })
            .collect();
        let mut ports = vec![0; boards.len()];
        let mut ids = Vec::with_capacity(cables.len());
        for ((from, to), number) in cables.iter().copied().zip(1..) {
            let ends = [from, to].map(|board| {
                ports[board] += 1;
                (boards[board], ports[board] - 1)
            });
            let seed = parameters.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
            let id = world.add(Part::Cable(Box::new(Cable::new(&parameters, ends, seed))));
            for (side, (board, _)) in ends.into_iter().enumerate() {
                if let Part::Board(board) = world.get_mut(board) {
                    board.add_port(id, side);
                }
            }
            ids.push(id);
        }
        boards.iter().for_each(|board| world.post(*board, 0, Message::HostAccess));
        Ok(Fabric { world, boards, cables: ids })
    }

    /// Returns the present time in picoseconds.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Returns the present cycle of a board: the number of the last edge of its clock.
    ///
    /// # Errors
    /// [`FabricError::Unknown`].
    pub fn cycle(&self, board: usize) -> Result<Cycle, FabricError> {
        let clock = self.board(board)?.clock();
        let next = clock.cycle_at_or_after(self.now());
        Ok(if clock.edge(next) == self.now() { next } else { next - 1 })
    }

    /// Lets time go on until `end`.
    ///
    /// # Errors
    /// [`FabricError::Violation`]; time has gone on all the same.
    pub fn run_until(&mut self, end: Time) -> Result<(), FabricError> {
        self.world.run_until(end);
        self.check()
    }

    /// Lets time go on by `cycles` cycles of a board.
    ///
    /// # Errors
    /// As [`Fabric::run_until`], and [`FabricError::Unknown`].
    pub fn run_cycles(&mut self, board: usize, cycles: Cycle) -> Result<(), FabricError> {
        let end = self.board(board)?.clock().edge(self.cycle(board)? + cycles);
        self.run_until(end)
    }

    /// Returns whether all links carry data.
    pub fn is_up(&self) -> bool {
        self.world.components().all(|(_, part)| !matches!(part, Part::Board(board) if !board.is_up()))
    }

    /// Gives a flit to `board` at once; returns whether there was room for it.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a board or channel that is not there.
    pub fn try_send(&mut self, board: usize, target: Target, payload: P) -> Result<bool, FabricError> {
        self.board(target.board.into())?;
        check_channel(target)?;
        let giver = self.board_mut(board)?;
        let has_room = giver.has_room();
        if has_room {
            giver.offer(Datum { address: target.into(), payload });
            self.tell(board)?;
        }
        Ok(has_room)
    }

    /// Takes a flit from a channel at once, if there is one.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a board or channel that is not there.
    pub fn try_receive(&mut self, target: Target) -> Result<Option<P>, FabricError> {
        check_channel(target)?;
        let board = usize::from(target.board);
        let cycle = self.cycle(board)?;
        let datum = self.board_mut(board)?.take(target.channel.into(), cycle);
        if datum.is_some() {
            self.tell(board)?;
        }
        Ok(datum.map(|datum| datum.payload))
    }

    /// Gives a flit to `board`, and blocks until there is room or `most` picoseconds have gone; returns whether there was.
    ///
    /// # Errors
    /// As [`Fabric::try_send`] and [`Fabric::run_until`].
    pub fn send(&mut self, board: usize, target: Target, payload: P, most: Time) -> Result<bool, FabricError> {
        let end = self.now().saturating_add(most);
        loop {
            if self.try_send(board, target, payload)? {
                return Ok(true);
            }
            if !self.advance(end)? {
                return Ok(false);
            }
        }
    }

    /// Takes a flit from a channel, and blocks until there is one or `most` picoseconds have gone.
    ///
    /// # Errors
    /// As [`Fabric::try_receive`] and [`Fabric::run_until`].
    pub fn receive(&mut self, target: Target, most: Time) -> Result<Option<P>, FabricError> {
        let end = self.now().saturating_add(most);
        loop {
            if let Some(payload) = self.try_receive(target)? {
                return Ok(Some(payload));
            }
            if !self.advance_for(target, end)? {
                return Ok(None);
            }
        }
    }

    /// Puts a memory of `bytes` bytes, in words of `width` bytes, on a channel of a board. [`RemoteMemory`](super::RemoteMemory)
    /// accesses it from another board.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a board or channel that is not there.
    pub fn add_memory(&mut self, target: Target, bytes: usize, width: usize) -> Result<(), FabricError> {
        check_channel(target)?;
        self.board_mut(target.board.into())?.add(Application::Memory(MemoryUnit::new(target, bytes, width)));
        Ok(())
    }

    /// Returns the bytes of the memory on a channel, and what it has done; `None` if there is none.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a board that is not there.
    pub fn memory(&self, target: Target) -> Result<Option<(&[u8], MemoryStatistics)>, FabricError> {
        Ok(match self.board(target.board.into())?.application(target.channel.into()) {
            Some(Application::Memory(unit)) => Some((unit.bytes(), unit.statistics())),
            _ => None,
        })
    }

    /// Pulls a cable at the time `at`, or now.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a cable that is not there.
    pub fn unplug(&mut self, cable: usize, at: Time) -> Result<(), FabricError> {
        self.post_to_cable(cable, at, Message::Unplug)
    }

    /// Plugs a cable at the time `at`, or now. Its transceivers lock first.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a cable that is not there.
    pub fn plug(&mut self, cable: usize, at: Time) -> Result<(), FabricError> {
        self.post_to_cable(cable, at, Message::Plug)
    }

    /// Configures a board again at the time `at`, or now: it forgets all flits, and its links restart.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a board that is not there.
    pub fn restart(&mut self, board: usize, at: Time) -> Result<(), FabricError> {
        self.board(board)?;
        self.world.post(self.boards[board], at, Message::Restart);
        Ok(())
    }

    /// Returns what a board has counted.
    ///
    /// # Errors
    /// [`FabricError::Unknown`] for a board that is not there.
    pub fn statistics(&self, board: usize) -> Result<BoardStatistics, FabricError> {
        Ok(self.board(board)?.statistics())
    }

    /// Returns the flits that all cables have lost, and those that they have damaged.
    pub fn line_faults(&self) -> (u64, u64) {
        self.world.components().fold((0, 0), |sum, (_, part)| match part {
            Part::Cable(cable) => (sum.0 + cable.faults().0, sum.1 + cable.faults().1),
            Part::Board(_) => sum,
        })
    }

    /// Lets time go on to the next event, but not past `end`; returns whether `end` is later than now.
    ///
    /// Without events nothing changes, so time goes to `end` at once.
    pub(super) fn advance(&mut self, end: Time) -> Result<bool, FabricError> {
        let now = self.now();
        let next = self.world.next_at().unwrap_or(end);
        self.run_until(next.min(end))?;
        Ok(now < end)
    }

    /// Puts one end of a pipe on its channel.
    pub(super) fn add_pipe_end(&mut self, target: Target, end: PipeUnit) -> Result<(), FabricError> {
        check_channel(target)?;
        self.board_mut(target.board.into())?.add(Application::Pipe(end));
        Ok(())
    }

    /// Returns the end of a pipe on a channel.
    pub(super) fn pipe_end(&mut self, target: Target) -> Result<Option<&mut PipeUnit>, FabricError> {
        Ok(match self.board_mut(target.board.into())?.application_mut(target.channel.into()) {
            Some(Application::Pipe(unit)) => Some(unit),
            _ => None,
        })
    }

    /// Tells a board that its host has changed something.
    pub(super) fn tell(&mut self, board: usize) -> Result<(), FabricError> {
        self.board(board)?;
        self.world.post(self.boards[board], self.now(), Message::HostAccess);
        Ok(())
    }

    /// As [`Fabric::advance`], but not past the next moment at which a flit of this channel can be taken.
    pub(super) fn advance_for(&mut self, target: Target, end: Time) -> Result<bool, FabricError> {
        let board = self.board(target.board.into())?;
        if !board.has_flit(target.channel.into()) {
            return self.advance(end);
        }
        // It came in this cycle, and can be taken in the next one.
        let (now, next) = (self.now(), board.clock().edge_after(self.now() + 1, 0));
        self.run_until(next.min(end))?;
        Ok(now < end)
    }

    fn check(&self) -> Result<(), FabricError> {
        for (number, id) in self.boards.iter().enumerate() {
            if let Part::Board(board) = self.world.get(*id)
                && let Some((port, violation)) = board.violation()
            {
                return Err(FabricError::Violation { board: number, port, violation });
            }
        }
        Ok(())
    }

    fn post_to_cable(&mut self, cable: usize, at: Time, message: Message<P>) -> Result<(), FabricError> {
        let count = self.cables.len();
        let id = self.cables.get(cable).ok_or(FabricError::Unknown { what: "cable", number: cable, count })?;
        self.world.post(*id, at, message);
        Ok(())
    }

    fn board(&self, number: usize) -> Result<&Board<P>, FabricError> {
        match self.boards.get(number).map(|id| self.world.get(*id)) {
            Some(Part::Board(board)) => Ok(board),
            _ => Err(FabricError::Unknown { what: "board", number, count: self.boards.len() }),
        }
    }

    fn board_mut(&mut self, number: usize) -> Result<&mut Board<P>, FabricError> {
        let count = self.boards.len();
        match self.boards.get(number).map(|id| self.world.get_mut(*id)) {
            Some(Part::Board(board)) => Ok(board),
            _ => Err(FabricError::Unknown { what: "board", number, count }),
        }
    }
}

fn check_channel(target: Target) -> Result<(), FabricError> {
    let number = usize::from(target.channel);
    if number >= CHANNELS {
        return Err(FabricError::Unknown { what: "channel", number, count: CHANNELS });
    }
    Ok(())
}
