//! The memory of the program that a call reads and writes.

use std::ffi::c_int;
use std::ops::Range;

use cmdseq::Element;
use cmdseq::plan::Collective;

use crate::abi::Constants;
use crate::arguments::{Arguments, Side};
use crate::data::Data;
use crate::foreign::Word;
use crate::mpi::{Comm, Datatype};
use crate::shape::{Shape, contiguous, size_of};

/// Elements that lie together in the program's memory.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: Word,
    /// Bytes of the data, without gaps.
    bytes: usize,
    form: Form,
}

/// How elements lie.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// One after the other.
    Together,
    /// So many of a type with gaps, which are packed.
    Packed(i64, Datatype),
    /// One after the other, but the gaps in them are the program's.
    Pairs(Gaps),
}

/// Where the values of a pair of C are, which the cards' pairs are like.
#[derive(Debug, Clone, Copy)]
struct Gaps {
    /// Bytes of a pair, of the value at its beginning, and before the index, a C `int`.
    pair: usize,
    value: usize,
    index_at: usize,
}

impl Gaps {
    /// Those of the elements of a reduction; `None` if they have none.
    fn of(element: Element) -> Option<Self> {
        let (value, index_at) = match element {
            Element::I16Index => (2, 4),
            Element::I64Index | Element::F64Index => (8, 8),
            _ => return None,
        };
        Some(Gaps { pair: element.bytes() as usize, value, index_at })
    }

    /// Ranges of the values in a pair.
    fn values(self) -> [Range<usize>; 2] {
        [0..self.value, self.index_at..self.index_at + std::mem::size_of::<c_int>()]
    }
}

/// Elements in the program's memory.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    bytes: usize,
    segments: Segments,
}

#[derive(Debug, Clone)]
enum Segments {
    One(Segment),
    /// Blocks of a vector form that do not lie one after the other.
    Many(Vec<Segment>),
}

/// What this rank gives and gets in a call; `None` if nothing.
#[derive(Debug, Clone)]
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
        if shape.collective.has_counts() {
            return Places::of_blocks(arguments, shape, constants, (rank, size));
        }
        let Arguments { send, receive, .. } = arguments;
        let is_root = rank == shape.root;
        let is_in_place = |side: &Side| side.buffer == constants.in_place;
        let (ranks, own) = (i64::from(size), i64::from(rank));
        let one = |side: &Side| Some(Uniform { side: *side, first: 0, blocks: 1 });
        let all = |side: &Side| Some(Uniform { side: *side, first: 0, blocks: ranks });
        let block = |side: &Side| Some(Uniform { side: *side, first: own, blocks: 1 });
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
        let place = |uniform: Option<Uniform>| {
            let Some(uniform) = uniform else { return Some(None) };
            uniform.segment(shape, constants).map(|segment| Some(Place::of(segment)))
        };
        let gaps = shape.combine.and_then(|combine| Gaps::of(combine.element));
        Some(Places { input: place(input)?, output: place(output)?.map(|place| place.with_gaps(gaps)) })
    }

    /// The places of a vector form.
    fn of_blocks(
        arguments: &Arguments,
        shape: &Shape,
        constants: &Constants,
        (rank, size): (u32, u32),
    ) -> Option<Self> {
        use Collective::{Allgatherv, Gatherv, Scatterv};
        let Arguments { send, receive, .. } = arguments;
        let is_in_place = |side: &Side| side.buffer == constants.in_place;
        let request = shape.request((0..size).collect());
        let (given, taken) = (request.input_bytes(rank), request.output_bytes(rank));
        let gives = |to: u32| request.given(rank, to);
        let takes = |from: u32| request.given(from, rank);
        let one = |side: &Side, bytes: u64| {
            Uneven::of(side, constants)?.elements(side.buffer, side.count, bytes).map(Place::of)
        };
        let own = |side: &Side, bytes: u64| Uneven::of(side, constants)?.block(rank, bytes).map(Place::of);
        let all = |side: &Side, bytes: &dyn Fn(u32) -> u64| {
            let side = Uneven::of(side, constants)?;
            let blocks = (0..size).filter(|other| bytes(*other) != 0);
            let segments = blocks.map(|other| side.block(other, bytes(other)));
            Place::of_segments(segments.collect::<Option<Vec<Segment>>>()?)
        };
        let input = || match shape.collective {
            Scatterv => all(send, &gives),
            Gatherv | Allgatherv if is_in_place(send) => own(receive, given),
            Gatherv | Allgatherv => one(send, given),
            _ => all(if is_in_place(send) { receive } else { send }, &gives),
        };
        let output = || match shape.collective {
            Scatterv => one(receive, taken),
            _ => all(receive, &takes),
        };
        let is_kept = shape.collective == Scatterv && is_in_place(receive);
        Some(Places {
            input: if given == 0 { None } else { Some(input()?) },
            output: if taken == 0 || is_kept { None } else { Some(output()?) },
        })
    }

    /// The data of both, for a call. What has to be packed is packed now.
    ///
    /// # Safety
    /// The places are those of arguments which the program has just passed to MPI, which requires that the elements exist, and that the
    /// program uses none of them, until the call ends. The result is dropped before.
    pub(crate) unsafe fn hold(&self, comm: Comm) -> Result<Held<'_>, i32> {
        let input = match &self.input {
            None => Elements::Copied(Vec::new()),
            Some(place) => match place.range() {
                Some((address, bytes)) => Elements::There(address, bytes),
                // SAFETY: by this function's contract.
                None => Elements::Copied(unsafe { place.packed(comm) }?),
            },
        };
        let output = match &self.output {
            None => Elements::Copied(Vec::new()),
            Some(place) => place.range().map_or_else(
                || Elements::Copied(vec![0; place.bytes]),
                |(address, bytes)| Elements::There(address, bytes),
            ),
        };
        Ok(Held { input, output, place: self.output.as_ref() })
    }

    /// Whether the MPI library takes the datatypes that have to be packed: it refuses those that are not committed, by an error on
    /// `probe`.
    pub(crate) fn can_be_packed(&self, probe: Comm) -> bool {
        let places = [&self.input, &self.output];
        // All segments of a place have one datatype.
        places.into_iter().flatten().filter_map(|place| place.segments().first()).all(|segment| match segment.form {
            // SAFETY: there are no elements to read.
            Form::Packed(_, datatype) => unsafe { datatype.pack(1, 0, &mut [], probe) }.is_ok(),
            Form::Together | Form::Pairs(_) => true,
        })
    }

    /// Bytes of the input and of the output.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let bytes = |place: &Option<Place>| place.as_ref().map_or(0, |place| place.bytes);
        (bytes(&self.input), bytes(&self.output))
    }
}

/// The data of a call while it runs. The card may use other bytes of it meanwhile: references lead to those only that are copied.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    input: Elements,
    output: Elements,
    place: Option<&'a Place>,
}

/// The elements of one side.
#[derive(Debug)]
enum Elements {
    /// They lie together at this address of the program, with so many bytes.
    There(Word, usize),
    /// They are, or will be, packed.
    Copied(Vec<u8>),
}

impl Held<'_> {
    /// Stores the output, if it was packed.
    pub(crate) fn release(self, comm: Comm) -> Result<(), i32> {
        match (self.place, self.output) {
            // SAFETY: by the contract of `Places::hold`, the call has not ended.
            (Some(place), Elements::Copied(data)) => unsafe { place.unpack(&data, comm) },
            _ => Ok(()),
        }
    }
}

impl Data for Held<'_> {
    fn wants_output(&self) -> bool {
        self.place.is_some()
    }

    fn input(&self, offset: usize, bytes: usize) -> &[u8] {
        match &self.input {
            Elements::There(address, all) => {
                assert!(offset <= *all && bytes <= all - offset, "{bytes} bytes at {offset} of {all}");
                // SAFETY: by the contract of `Places::hold` they exist, and nothing but `output` changes them, which borrows this.
                unsafe { std::slice::from_raw_parts((address + offset) as *const u8, bytes) }
            }
            Elements::Copied(data) => &data[offset..][..bytes],
        }
    }

    fn output(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        match &mut self.output {
            Elements::There(address, all) => {
                assert!(offset <= *all && bytes <= *all - offset, "{bytes} bytes at {offset} of {all}");
                // SAFETY: by the contract of `Places::hold` there is room, and nothing else uses it: `input` cannot while this is borrowed.
                unsafe { std::slice::from_raw_parts_mut((*address + offset) as *mut u8, bytes) }
            }
            Elements::Copied(data) => &mut data[offset..][..bytes],
        }
    }
}

/// Blocks of one side that lie one after the other, each of `bytes` of the shape.
struct Uniform {
    side: Side,
    /// Blocks before.
    first: i64,
    blocks: i64,
}

impl Uniform {
    fn segment(self, shape: &Shape, constants: &Constants) -> Option<Segment> {
        let Uniform { side, first, blocks } = self;
        let bytes = shape.bytes.checked_mul(u64::try_from(blocks).ok()?)?;
        let bytes = usize::try_from(bytes).ok()?;
        // Reductions have the elements of the cards, whose pairs lie as those of C.
        if shape.combine.is_some() || contiguous(side.datatype, constants).is_some() {
            let skip = usize::try_from(shape.bytes).ok()?.checked_mul(usize::try_from(first).ok()?)?;
            let address = side.buffer.checked_add(skip).filter(|_| side.buffer != 0)?;
            return Some(Segment { address, bytes, form: Form::Together });
        }
        let datatype = Datatype(side.datatype);
        let count = side.count.checked_mul(blocks)?;
        let size = datatype.size().ok()?;
        if u64::try_from(count).ok()?.checked_mul(size)? != bytes as u64 {
            return None;
        }
        let skip = if first == 0 { 0 } else { datatype.extent().ok()?.checked_mul(side.count)?.checked_mul(first)? };
        let address = side.buffer.wrapping_add_signed(isize::try_from(skip).ok()?);
        Some(Segment { address, bytes, form: Form::Packed(count, datatype) })
    }
}

/// One side of a vector form.
struct Uneven<'a> {
    side: &'a Side,
    /// Bytes of the data of an element, and from one element to the next.
    size: u64,
    extent: i64,
    has_gaps: bool,
}

impl<'a> Uneven<'a> {
    /// `None` if the datatype is invalid.
    fn of(side: &'a Side, constants: &Constants) -> Option<Self> {
        let size = size_of(side.datatype, constants).ok()?;
        let has_gaps = contiguous(side.datatype, constants).is_none();
        let extent = if has_gaps { Datatype(side.datatype).extent().ok()? } else { i64::try_from(size).ok()? };
        Some(Uneven { side, size, extent, has_gaps })
    }

    /// The block of rank `index`; `None` if it does not have `bytes` bytes.
    fn block(&self, index: u32, bytes: u64) -> Option<Segment> {
        let (blocks, index) = (self.side.blocks?, index as usize);
        let skip = blocks.displacements?.get(index).checked_mul(self.extent)?;
        let address = self.side.buffer.wrapping_add_signed(isize::try_from(skip).ok()?);
        self.elements(address, blocks.counts.get(index), bytes)
    }

    /// `count` elements at `address`; `None` if they do not have `bytes` bytes.
    fn elements(&self, address: Word, count: i64, bytes: u64) -> Option<Segment> {
        // MPI_BOTTOM is address 0: displacements, or derived datatypes, then hold addresses.
        let is_missing = address == 0 && !self.has_gaps;
        if is_missing || u64::try_from(count).ok()?.checked_mul(self.size)? != bytes {
            return None;
        }
        let form = if self.has_gaps { Form::Packed(count, Datatype(self.side.datatype)) } else { Form::Together };
        Some(Segment { address, bytes: usize::try_from(bytes).ok()?, form })
    }
}

impl Segment {
    /// Copies the data to `data`, which is as long.
    ///
    /// # Safety
    /// As [`Place::packed`].
    unsafe fn copy_out(&self, data: &mut [u8], comm: Comm) -> Result<(), i32> {
        match self.form {
            Form::Together | Form::Pairs(_) => {
                // SAFETY: by this function's contract there are `bytes` bytes, which are not changed meanwhile.
                data.copy_from_slice(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) });
                Ok(())
            }
            // SAFETY: by this function's contract the elements exist.
            Form::Packed(count, datatype) => unsafe { datatype.pack(self.address, count, data, comm) },
        }
    }

    /// Copies `data`, which is as long, to the elements.
    ///
    /// # Safety
    /// As [`Place::unpack`].
    unsafe fn copy_in(&self, data: &[u8], comm: Comm) -> Result<(), i32> {
        match self.form {
            Form::Together => {
                // SAFETY: by this function's contract there is room for `bytes` bytes, which nothing else uses.
                unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }.copy_from_slice(data);
                Ok(())
            }
            // SAFETY: by this function's contract there is room for the elements.
            Form::Packed(count, datatype) => unsafe { datatype.unpack(data, self.address, count, comm) },
            Form::Pairs(gaps) => {
                // SAFETY: as above.
                let pairs = unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) };
                for (pair, new) in pairs.chunks_exact_mut(gaps.pair).zip(data.chunks_exact(gaps.pair)) {
                    gaps.values().into_iter().for_each(|value| pair[value.clone()].copy_from_slice(&new[value]));
                }
                Ok(())
            }
        }
    }
}

impl Place {
    fn of(segment: Segment) -> Self {
        Place { bytes: segment.bytes, segments: Segments::One(segment) }
    }

    /// The same, of pairs with gaps that are not written.
    fn with_gaps(mut self, gaps: Option<Gaps>) -> Self {
        if let (Segments::One(segment), Some(gaps)) = (&mut self.segments, gaps) {
            segment.form = Form::Pairs(gaps);
        }
        self
    }

    /// Of segments in this order: one if each begins where the one before ends.
    fn of_segments(segments: Vec<Segment>) -> Option<Self> {
        let first = *segments.first()?;
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let is_one = segments.iter().all(|segment| matches!(segment.form, Form::Together))
            && segments.windows(2).all(|pair| pair[0].address.checked_add(pair[0].bytes) == Some(pair[1].address));
        let segments = if is_one { Segments::One(Segment { bytes, ..first }) } else { Segments::Many(segments) };
        Some(Place { bytes, segments })
    }

    /// Address and bytes of data that lies together; `None` if it has gaps.
    pub(crate) fn range(&self) -> Option<(Word, usize)> {
        match self.segments {
            Segments::One(Segment { address, bytes, form: Form::Together }) => Some((address, bytes)),
            _ => None,
        }
    }

    fn segments(&self) -> &[Segment] {
        match &self.segments {
            Segments::One(segment) => std::slice::from_ref(segment),
            Segments::Many(segments) => segments,
        }
    }

    /// The data, one element after the other.
    ///
    /// # Safety
    /// The place is that of arguments which the program has just passed to MPI, which requires that the elements exist and that
    /// nothing changes them during the call.
    unsafe fn packed(&self, comm: Comm) -> Result<Vec<u8>, i32> {
        let mut data = vec![0; self.bytes];
        let mut left = data.as_mut_slice();
        for segment in self.segments() {
            let (now, later) = left.split_at_mut(segment.bytes);
            // SAFETY: by this function's contract.
            unsafe { segment.copy_out(now, comm) }?;
            left = later;
        }
        Ok(data)
    }

    /// Stores `data`, which are all elements one after the other.
    ///
    /// # Safety
    /// The place is that of arguments which the program has just passed to MPI, which requires that there is room for the
    /// elements and that nothing uses them during the call.
    unsafe fn unpack(&self, data: &[u8], comm: Comm) -> Result<(), i32> {
        let mut left = data;
        for segment in self.segments() {
            let (now, later) = left.split_at(segment.bytes);
            // SAFETY: by this function's contract.
            unsafe { segment.copy_in(now, comm) }?;
            left = later;
        }
        Ok(())
    }
}
