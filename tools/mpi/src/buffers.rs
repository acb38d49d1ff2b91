//! The memory of the program that a call reads and writes.

use cmdseq::plan::Collective;

use crate::abi::Constants;
use crate::arguments::{Arguments, Side};
use crate::foreign::Word;
use crate::mpi::{Comm, Datatype};
use crate::shape::{Shape, contiguous};

/// Elements in the program's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    address: Word,
    /// Bytes of the data, without gaps.
    bytes: usize,
    /// Count and type of elements with gaps, which are packed.
    packed: Option<(i64, Datatype)>,
}

/// What this rank gives and gets in a call; `None` if nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) input: Option<Place>,
    pub(crate) output: Option<Place>,
}

impl Places {
    /// Returns the places of a call with `shape` by rank `rank` of `size`; `None` if a buffer is missing or a datatype invalid,
    /// which the MPI library reports.
    pub(crate) fn of(
        arguments: &Arguments,
        shape: &Shape,
        constants: &Constants,
        (rank, size): (u32, u32),
    ) -> Option<Self> {
        use Collective::{Allgather, Alltoall, Barrier, Broadcast, Exscan, Gather, Reduce, ReduceScatter, Scatter};
        let Arguments { send, receive, .. } = arguments;
        let is_root = rank == shape.root;
        let is_in_place = |side: &Side| side.buffer == constants.in_place;
        let (ranks, own) = (i64::from(size), i64::from(rank));
        let one = |side: &Side| Some(Whole { side: *side, first: 0, blocks: 1 });
        let all = |side: &Side| Some(Whole { side: *side, first: 0, blocks: ranks });
        let block = |side: &Side| Some(Whole { side: *side, first: own, blocks: 1 });
        let given = if is_in_place(send) { receive } else { send };
        let input = match shape.collective {
            Barrier => None,
            Broadcast | Scatter if !is_root => None,
            Broadcast => one(send),
            Scatter => all(send),
            Gather | Allgather if is_in_place(send) => block(receive),
            Gather | Allgather => one(send),
            Alltoall | ReduceScatter => all(given),
            _ => one(given),
        };
        let output = match shape.collective {
            Barrier => None,
            Broadcast if is_root => None,
            Reduce | Gather if !is_root => None,
            Exscan if rank == 0 => None,
            Scatter if is_in_place(receive) => None,
            Gather | Allgather | Alltoall => all(receive),
            _ => one(receive),
        };
        let place = |whole: Option<Whole>| whole.map_or(Some(None), |whole| whole.place(shape, constants).map(Some));
        Some(Places { input: place(input)?, output: place(output)? })
    }

    /// Bytes of both.
    pub(crate) fn bytes(&self) -> u64 {
        [self.input, self.output].iter().flatten().map(|place| place.bytes as u64).sum()
    }
}

/// Blocks of one side, each of `bytes` of the shape.
struct Whole {
    side: Side,
    /// Blocks before.
    first: i64,
    blocks: i64,
}

impl Whole {
    fn place(self, shape: &Shape, constants: &Constants) -> Option<Place> {
        let Whole { side, first, blocks } = self;
        let bytes = shape.bytes.checked_mul(u64::try_from(blocks).ok()?)?;
        let bytes = usize::try_from(bytes).ok()?;
        // Reductions have the elements of the cards, whose pairs lie as those of C.
        if shape.combine.is_some() || contiguous(side.datatype, constants).is_some() {
            let skip = usize::try_from(shape.bytes).ok()?.checked_mul(usize::try_from(first).ok()?)?;
            let address = side.buffer.checked_add(skip).filter(|_| side.buffer != 0)?;
            return Some(Place { address, bytes, packed: None });
        }
        let datatype = Datatype(side.datatype);
        let count = side.count.checked_mul(blocks)?;
        let size = datatype.size().ok()?;
        if u64::try_from(count).ok()?.checked_mul(size)? != bytes as u64 {
            return None;
        }
        let skip = if first == 0 { 0 } else { datatype.extent().ok()?.checked_mul(side.count)?.checked_mul(first)? };
        let address = side.buffer.wrapping_add_signed(isize::try_from(skip).ok()?);
        Some(Place { address, bytes, packed: Some((count, datatype)) })
    }
}

impl Place {
    /// Calls `take` with the data.
    ///
    /// # Safety
    /// The place is that of arguments which the program has just passed to MPI, which requires that the elements exist and that
    /// nothing changes them during the call.
    pub(crate) unsafe fn read<T>(&self, comm: Comm, take: impl FnOnce(&[u8]) -> T) -> Result<T, i32> {
        match self.packed {
            None => {
                // SAFETY: by this function's contract there are `bytes` bytes, which are not changed meanwhile.
                Ok(take(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }))
            }
            Some((count, datatype)) => {
                let mut packed = vec![0; self.bytes];
                // SAFETY: by this function's contract the elements exist.
                unsafe { datatype.pack(self.address, count, &mut packed, comm) }?;
                Ok(take(&packed))
            }
        }
    }

    /// Calls `give` with room for the data, all of which it fills, and stores the data.
    ///
    /// # Safety
    /// The place is that of arguments which the program has just passed to MPI, which requires that there is room for the
    /// elements and that nothing uses them during the call.
    pub(crate) unsafe fn write<E>(&self, comm: Comm, give: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E>
    where
        E: From<i32>,
    {
        match self.packed {
            None => {
                // SAFETY: by this function's contract there is room for `bytes` bytes, which nothing else uses.
                give(unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) })
            }
            Some((count, datatype)) => {
                let mut packed = vec![0; self.bytes];
                give(&mut packed)?;
                // SAFETY: by this function's contract there is room for the elements.
                unsafe { datatype.unpack(&packed, self.address, count, comm) }.map_err(E::from)
            }
        }
    }
}
