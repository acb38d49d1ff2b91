//! Calls of the MPI library that this library makes itself, always under the names `PMPI_`.
//!
//! Handles come from the program, which vouches for them by its own call, or from MPI. A call returns the code of MPI if it fails.

use std::ffi::{c_char, c_int, c_void};

use cmdseq::plan::Collective;

use crate::abi::Constants;
use crate::entry;
use crate::error_codes;
use crate::foreign::{Code, SUCCESS, Word, pmpi};
use crate::handlers;
use crate::shape::Shape;

/// Longest name of an object in any MPI library, and its terminator.
const NAME_MAX: usize = 512;

/// The datatype and the operation of a reduction, as the program names them.
pub(crate) type Handles = (Word, Word);

/// Result of a call.
pub(crate) type Result<T> = std::result::Result<T, Code>;

pub(crate) fn check(code: Code) -> Result<()> {
    // MPICH 5 returns success from a call whose handler has returned.
    match (code, handlers::take_handled()) {
        (SUCCESS, SUCCESS) => Ok(()),
        (SUCCESS, handled) => Err(handled),
        (code, _) => Err(code),
    }
}

/// The code of an exchange that another rank has not joined in time. It is none of MPI.
pub(crate) const LATE: Code = c_int::MAX - 1;

/// A communicator that exists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comm(pub(crate) Word);

impl Comm {
    pub(crate) fn size(self) -> Result<u32> {
        let mut size: c_int = 0;
        // SAFETY: the communicator exists, and MPI writes one integer.
        check(unsafe { pmpi!(MPI_Comm_size, self.0, &raw mut size) })?;
        Ok(size.max(0) as u32)
    }

    pub(crate) fn rank(self) -> Result<u32> {
        let mut rank: c_int = 0;
        // SAFETY: the communicator exists, and MPI writes one integer.
        check(unsafe { pmpi!(MPI_Comm_rank, self.0, &raw mut rank) })?;
        Ok(rank.max(0) as u32)
    }

    /// Members of the other group of a communicator that connects two.
    pub(crate) fn remote_size(self) -> Result<u32> {
        let mut size: c_int = 0;
        // SAFETY: the communicator exists, and MPI writes one integer.
        check(unsafe { pmpi!(MPI_Comm_remote_size, self.0, &raw mut size) })?;
        Ok(size.max(0) as u32)
    }

    /// Whether it connects two groups.
    pub(crate) fn is_inter(self) -> Result<bool> {
        let mut is_inter: c_int = 0;
        // SAFETY: the communicator exists, and MPI writes one integer.
        check(unsafe { pmpi!(MPI_Comm_test_inter, self.0, &raw mut is_inter) })?;
        Ok(is_inter != 0)
    }

    /// The ranks of its members in `other`; `None` if one is no member there.
    pub(crate) fn ranks_in(self, other: Comm) -> Result<Option<Vec<u32>>> {
        let (mut own, mut all): (Word, Word) = (0, 0);
        // SAFETY: both communicators exist, and MPI writes a handle of at most a word.
        check(unsafe { pmpi!(MPI_Comm_group, self.0, &raw mut own) })?;
        // SAFETY: as for the first group.
        check(unsafe { pmpi!(MPI_Comm_group, other.0, &raw mut all) })?;
        let size = self.size()? as usize;
        let ranks: Vec<c_int> = (0..size as c_int).collect();
        let mut found = vec![-1; size];
        // SAFETY: both arrays have `size` integers, which is the size of the group.
        let translated =
            check(unsafe { pmpi!(MPI_Group_translate_ranks, own, size, ranks.as_ptr(), all, found.as_mut_ptr()) });
        for group in [&mut own, &mut all] {
            // SAFETY: the group was made above and is not used after this.
            check(unsafe { pmpi!(MPI_Group_free, group as *mut Word) })?;
        }
        translated?;
        // MPI_UNDEFINED is negative in every ABI, a rank is not.
        Ok(found.iter().map(|rank| u32::try_from(*rank).ok()).collect())
    }

    /// The ranks of this host: the own number among them, and the rank of the first. Collective.
    pub(crate) fn on_host(self, constants: &Constants) -> Result<(u32, i64)> {
        let mut host: Word = 0;
        let kind = constants.type_shared;
        let rank = self.rank()?;
        // SAFETY: the communicator exists, and MPI writes a handle of at most a word.
        let code = unsafe { pmpi!(MPI_Comm_split_type, self.0, kind, rank, constants.info_null, &raw mut host) };
        check(code)?;
        let host = Comm(host);
        let mut first = [i64::from(rank)];
        let number = host.rank()?;
        host.broadcast_numbers(&mut first, 0, constants)?;
        host.free()?;
        Ok((number, first[0]))
    }

    /// A communicator of the members that give `color`, in the order of `key`. Collective.
    pub(crate) fn split(self, color: u32, key: u32) -> Result<Comm> {
        let mut part: Word = 0;
        // SAFETY: the communicator exists, and MPI writes a handle of at most a word.
        check(unsafe { pmpi!(MPI_Comm_split, self.0, color, key, &raw mut part) })?;
        Ok(Comm(part))
    }

    /// A duplicate that returns errors. Collective.
    pub(crate) fn returning_errors(self, constants: &Constants) -> Result<Comm> {
        let mut made: Word = 0;
        // SAFETY: the communicator exists, and MPI writes a handle of at most a word.
        check(unsafe { pmpi!(MPI_Comm_dup, self.0, &raw mut made) })?;
        // SAFETY: the communicator was made above, and the error handler is a predefined one.
        check(unsafe { pmpi!(MPI_Comm_set_errhandler, made, constants.errors_return) })?;
        Ok(Comm(made))
    }

    /// Frees a communicator that this library has made. Collective.
    pub(crate) fn free(self) -> Result<()> {
        let mut handle = self.0;
        // SAFETY: the communicator exists; MPI writes a handle of at most a word.
        check(unsafe { pmpi!(MPI_Comm_free, &raw mut handle) })
    }

    /// Sends `data` to member `to`, which receives as many bytes.
    pub(crate) fn send(self, data: &[u8], to: u32, constants: &Constants) -> Result<()> {
        let (count, byte) = (data.len(), constants.byte);
        // SAFETY: the communicator exists, and MPI reads `count` bytes.
        check(unsafe { pmpi!(MPI_Send, data.as_ptr(), count, byte, to, 0, self.0) })
    }

    /// Receives as many bytes as `data` has from member `from`.
    pub(crate) fn receive(self, data: &mut [u8], from: u32, constants: &Constants) -> Result<()> {
        let (count, byte, status) = (data.len(), constants.byte, constants.status_ignore);
        // SAFETY: the communicator exists; MPI writes at most `count` bytes, and no status.
        check(unsafe { pmpi!(MPI_Recv, data.as_mut_ptr(), count, byte, from, 0, self.0, status) })
    }

    /// Sends `data` of the root to all members, where it has as many bytes. Collective.
    pub(crate) fn broadcast(self, data: &mut [u8], root: u32, constants: &Constants) -> Result<()> {
        let (count, byte) = (data.len(), constants.byte);
        // SAFETY: the communicator exists, and MPI reads or writes `count` bytes.
        check(unsafe { pmpi!(MPI_Bcast, data.as_mut_ptr(), count, byte, root, self.0) })
    }

    /// Sends `numbers` of the root to all members, in place. Collective.
    pub(crate) fn broadcast_numbers(self, numbers: &mut [i64], root: u32, constants: &Constants) -> Result<()> {
        let (count, int64) = (numbers.len(), constants.int64);
        // SAFETY: MPI reads or writes `count` integers of 64 bits.
        check(unsafe { pmpi!(MPI_Bcast, numbers.as_mut_ptr(), count, int64, root, self.0) })
    }

    /// Makes a collective of the MPI library with `shape`, from `send` to `receive`, which both have room for what this rank
    /// gives, and for what it gets. A reduction is of elements of `datatype` by `operation`. Collective.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of them is made")]
    pub(crate) fn collective(
        self,
        shape: &Shape,
        send: &[u8],
        receive: &mut [u8],
        (datatype, operation): Handles,
        constants: &Constants,
    ) -> Result<()> {
        let &Shape { root, bytes, combine, .. } = shape;
        let (own, size) = (self.rank()?, self.size()?);
        let (rank, request) = (own as usize, shape.request((0..size).collect()));
        let sends = Packed::of((0..size).map(|other| request.given(own, other)));
        let receives = Packed::of((0..size).map(|other| request.given(other, own)));
        let (from, to, byte) = (send.as_ptr(), receive.as_mut_ptr(), constants.byte);
        let count = bytes / combine.map_or(1, |combine| combine.element.bytes());
        let (elements, comm) = (datatype, self.0);
        // SAFETY: both buffers have room for what this rank gives, and for what it gets; the datatype is one without a constructor.
        check(unsafe {
            match shape.collective {
                Collective::Broadcast => pmpi!(MPI_Bcast, to, count, byte, root, comm),
                Collective::Scatter => pmpi!(MPI_Scatter, from, count, byte, to, count, byte, root, comm),
                Collective::Gather => pmpi!(MPI_Gather, from, count, byte, to, count, byte, root, comm),
                Collective::Allgather => pmpi!(MPI_Allgather, from, count, byte, to, count, byte, comm),
                Collective::Alltoall => pmpi!(MPI_Alltoall, from, count, byte, to, count, byte, comm),
                Collective::Reduce => pmpi!(MPI_Reduce, from, to, count, elements, operation, root, comm),
                Collective::Allreduce => pmpi!(MPI_Allreduce, from, to, count, elements, operation, comm),
                Collective::ReduceScatter => {
                    pmpi!(MPI_Reduce_scatter_block, from, to, count, elements, operation, comm)
                }
                Collective::Scatterv => {
                    let (block, sends) = (receives.total(), &sends);
                    pmpi!(MPI_Scatterv, from, sends.counts(), sends.places(), byte, to, block, byte, root, comm)
                }
                Collective::Gatherv => {
                    let (block, receives) = (sends.total(), &receives);
                    pmpi!(MPI_Gatherv, from, block, byte, to, receives.counts(), receives.places(), byte, root, comm)
                }
                Collective::Allgatherv => {
                    let block = sends.counts[rank];
                    pmpi!(MPI_Allgatherv, from, block, byte, to, receives.counts(), receives.places(), byte, comm)
                }
                Collective::Alltoallv => {
                    let (counts, places) = (sends.counts(), sends.places());
                    let (taken, at) = (receives.counts(), receives.places());
                    pmpi!(MPI_Alltoallv, from, counts, places, byte, to, taken, at, byte, comm)
                }
                Collective::Scan => pmpi!(MPI_Scan, from, to, count, elements, operation, comm),
                Collective::Exscan => pmpi!(MPI_Exscan, from, to, count, elements, operation, comm),
                _ => pmpi!(MPI_Barrier, comm),
            }
        })
    }

    /// Lets the MPI library work on what the program has begun: a rendezvous that a late receive waits for.
    pub(crate) fn progress(self, constants: &Constants) {
        let mut flag: c_int = 0;
        let (source, tag) = (constants.any_source, constants.any_tag);
        // SAFETY: the communicator exists; MPI writes one integer, and no status.
        let _ = unsafe { pmpi!(MPI_Iprobe, source, tag, self.0, &raw mut flag, constants.status_ignore) };
    }

    /// Its name; empty if it has none.
    pub(crate) fn name(self) -> String {
        let mut name = [0u8; NAME_MAX];
        let mut length: c_int = 0;
        // SAFETY: MPI writes at most MPI_MAX_OBJECT_NAME characters, which no library has above NAME_MAX.
        let code = unsafe { pmpi!(MPI_Comm_get_name, self.0, name.as_mut_ptr(), &raw mut length) };
        if code != SUCCESS {
            return String::new();
        }
        let length = usize::try_from(length).unwrap_or(0).min(NAME_MAX);
        String::from_utf8_lossy(&name[..length]).into_owned()
    }

    /// Its attribute `key`; `None` if it has none.
    pub(crate) fn attribute(self, key: Key) -> Result<Option<Word>> {
        let (mut value, mut flag): (Word, c_int) = (0, 0);
        // SAFETY: the communicator and the key exist; MPI writes a word and an integer.
        check(unsafe { pmpi!(MPI_Comm_get_attr, self.0, key.0, &raw mut value, &raw mut flag) })?;
        Ok((flag != 0).then_some(value))
    }

    pub(crate) fn set_attribute(self, key: Key, value: Word) -> Result<()> {
        // SAFETY: the communicator and the key exist; MPI keeps the word and does not look at it.
        check(unsafe { pmpi!(MPI_Comm_set_attr, self.0, key.0, value) })
    }

    /// Deletes its attribute `key`, whose delete function frees the value.
    pub(crate) fn delete_attribute(self, key: Key) -> Result<()> {
        // SAFETY: the communicator and the key exist.
        check(unsafe { pmpi!(MPI_Comm_delete_attr, self.0, key.0) })
    }

    /// Raises an error with `text` on its error handler, and returns the code of the error.
    pub(crate) fn raise(self, text: &str) -> Code {
        let code = error_codes::of(text).unwrap_or_else(|code| code);
        // SAFETY: the communicator exists and the code is one of MPI.
        let called = entry::passing(|| unsafe { pmpi!(MPI_Comm_call_errhandler, self.0, code) });
        if called == SUCCESS { code } else { called }
    }
}

/// Folds `count` elements of `left` with those of `right`, in this order, to `right`. Both have the bytes of as many elements.
pub(crate) fn reduce(left: &[u8], right: &mut [u8], count: u64, (datatype, operation): Handles) -> Result<()> {
    // SAFETY: MPI reads and writes `count` elements, which both have; the datatype is one without a constructor.
    check(unsafe { pmpi!(MPI_Reduce_local, left.as_ptr(), right.as_mut_ptr(), count, datatype, operation) })
}

/// Counts of blocks that lie one after the other, and their places.
pub(crate) struct Packed {
    counts: Vec<c_int>,
    places: Vec<c_int>,
}

impl Packed {
    /// Blocks of so many bytes each, together no more than an integer holds.
    pub(crate) fn of(blocks: impl Iterator<Item = u64>) -> Self {
        let counts: Vec<c_int> = blocks.map(|bytes| bytes as c_int).collect();
        let mut at = 0;
        let place = |count: &c_int| {
            at += count;
            at - count
        };
        let places = counts.iter().map(place).collect();
        Packed { counts, places }
    }

    pub(crate) fn counts(&self) -> *const c_int {
        self.counts.as_ptr()
    }

    pub(crate) fn places(&self) -> *const c_int {
        self.places.as_ptr()
    }

    /// The blocks, which are in `data`.
    pub(crate) fn blocks(&self, data: &[u8]) -> Vec<Vec<u8>> {
        let block = |(place, count): (&c_int, &c_int)| data[*place as usize..][..*count as usize].to_vec();
        self.places.iter().zip(&self.counts).map(block).collect()
    }

    fn total(&self) -> c_int {
        self.counts.iter().sum()
    }
}

/// Frees what a communicator has in an attribute. Arguments: communicator, key, value, extra state (MPI 4.0, section 7.7.2).
pub(crate) type Delete = unsafe extern "C" fn(Word, Word, Word, Word) -> Code;

/// A key of attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key(c_int);

impl Key {
    /// A key whose attributes no duplicate inherits, and that `delete` frees.
    pub(crate) fn create(delete: Delete) -> Result<Self> {
        let mut key: c_int = 0;
        let copy: unsafe extern "C" fn(Word, Word, Word, Word, Word, *mut c_int) -> Code = not_copied;
        // SAFETY: both functions have the signatures that MPI calls, and live as long as the process; MPI writes one integer.
        check(unsafe {
            pmpi!(MPI_Comm_create_keyval, copy as *const c_void, delete as *const c_void, &raw mut key, 0)
        })?;
        Ok(Key(key))
    }
}

/// Tells MPI that a duplicate has no copy of an attribute.
///
/// # Safety
/// `flag` is the address of an integer, as MPI passes it.
unsafe extern "C" fn not_copied(_: Word, _: Word, _: Word, _: Word, _: Word, flag: *mut c_int) -> Code {
    // SAFETY: by this function's contract.
    unsafe { flag.write(0) };
    SUCCESS
}

/// An info object of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Info(pub(crate) Word);

/// Characters of a value that are looked at.
const VALUE_MAX: usize = 63;

impl Info {
    /// The value of `key`, or its beginning; `None` if there is none.
    pub(crate) fn value(self, key: &str) -> Option<String> {
        let key = std::ffi::CString::new(key).ok()?;
        let mut value = [0u8; VALUE_MAX + 1];
        let mut flag: c_int = 0;
        // SAFETY: the info object exists and the key is terminated; MPI writes at most VALUE_MAX characters, a terminator and
        // an integer.
        let code = unsafe { pmpi!(MPI_Info_get, self.0, key.as_ptr(), VALUE_MAX, value.as_mut_ptr(), &raw mut flag) };
        if code != SUCCESS || flag == 0 {
            return None;
        }
        let length = value.iter().position(|byte| *byte == 0).unwrap_or(VALUE_MAX);
        Some(String::from_utf8_lossy(&value[..length]).into_owned())
    }
}

/// A datatype of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datatype(pub(crate) Word);

/// Where elements at address 0 are said to be. Nothing is there.
const BASE: Word = 4096;

impl Datatype {
    /// Bytes of its data, without gaps.
    pub(crate) fn size(self) -> Result<u64> {
        let mut size: i64 = 0;
        // SAFETY: the datatype exists, and MPI writes an MPI_Count, of 64 bits in all three ABIs.
        check(unsafe { pmpi!(MPI_Type_size_x, self.0, &raw mut size) })?;
        u64::try_from(size).map_err(|_| c_int::MAX)
    }

    /// Bytes from one element to the next.
    pub(crate) fn extent(self) -> Result<i64> {
        let (mut lower, mut extent): (i64, i64) = (0, 0);
        // SAFETY: the datatype exists, and MPI writes two MPI_Counts.
        check(unsafe { pmpi!(MPI_Type_get_extent_x, self.0, &raw mut lower, &raw mut extent) })?;
        Ok(extent)
    }

    /// `count` elements at address 0, as one element at [`BASE`], for `work`: MPICH 4.0 neither packs from address 0 nor unpacks
    /// to it, which is that of `MPI_BOTTOM`.
    fn based(self, count: i64, work: impl FnOnce(Datatype) -> Result<()>) -> Result<()> {
        let count = c_int::try_from(count).map_err(|_| c_int::MAX)?;
        let (back, mut made): (isize, Word) = (-BASE.cast_signed(), 0);
        // SAFETY: the datatype exists; MPI reads one count and one displacement, and writes a handle of at most a word.
        check(unsafe { pmpi!(MPI_Type_create_hindexed, 1, &raw const count, &raw const back, self.0, &raw mut made) })?;
        // SAFETY: the datatype was made above; MPI writes a handle of at most a word.
        let worked = check(unsafe { pmpi!(MPI_Type_commit, &raw mut made) }).and_then(|()| work(Datatype(made)));
        // SAFETY: the datatype was made above and is not used after this.
        check(unsafe { pmpi!(MPI_Type_free, &raw mut made) }).and(worked)
    }

    /// Writes `count` elements at `buffer` to `packed`, without gaps.
    ///
    /// # Safety
    /// There are as many elements at `buffer`.
    pub(crate) unsafe fn pack(self, buffer: Word, count: i64, packed: &mut [u8], comm: Comm) -> Result<()> {
        if buffer == 0 {
            // SAFETY: by this function's contract: the element at `BASE` is the elements at 0.
            return self.based(count, |one| unsafe { one.pack(BASE, 1, packed, comm) });
        }
        let mut position: c_int = 0;
        let length = packed.len();
        // SAFETY: the elements exist by this function's contract; MPI writes at most `length` bytes.
        check(unsafe {
            pmpi!(MPI_Pack, buffer, count, self.0, packed.as_mut_ptr(), length, &raw mut position, comm.0)
        })?;
        if position as usize == length { Ok(()) } else { Err(c_int::MAX) }
    }

    /// Reads `count` elements from `packed` to `buffer`.
    ///
    /// # Safety
    /// There is room for as many elements at `buffer`.
    pub(crate) unsafe fn unpack(self, packed: &[u8], buffer: Word, count: i64, comm: Comm) -> Result<()> {
        if buffer == 0 {
            // SAFETY: by this function's contract: the element at `BASE` is the elements at 0.
            return self.based(count, |one| unsafe { one.unpack(packed, BASE, 1, comm) });
        }
        let mut position: c_int = 0;
        let length = packed.len();
        // SAFETY: the room exists by this function's contract; MPI reads at most `length` bytes.
        check(unsafe { pmpi!(MPI_Unpack, packed.as_ptr(), length, &raw mut position, buffer, count, self.0, comm.0) })?;
        if position as usize == length { Ok(()) } else { Err(c_int::MAX) }
    }
}

/// Whether `MPI_Init` has been called and `MPI_Finalize` has not: a program may use sessions instead.
pub(crate) fn is_running() -> bool {
    let (mut begun, mut ended): (c_int, c_int) = (0, 0);
    // SAFETY: both functions may be called at any time, and write one integer.
    let codes = [unsafe { pmpi!(MPI_Initialized, &raw mut begun) }, unsafe { pmpi!(MPI_Finalized, &raw mut ended) }];
    codes == [SUCCESS; 2] && begun != 0 && ended == 0
}

/// The level of thread support that the program was given.
pub(crate) fn thread_level() -> Result<c_int> {
    let mut level: c_int = 0;
    // SAFETY: MPI writes one integer.
    check(unsafe { pmpi!(MPI_Query_thread, &raw mut level) })?;
    Ok(level)
}

/// The text of an error code.
pub(crate) fn text(code: Code) -> String {
    if code == c_int::MAX {
        return "unexpected sizes".to_owned();
    }
    if code == LATE {
        return "another rank did not make its call within FPGA_MPI_TIMEOUT".to_owned();
    }
    let mut text = [0 as c_char; 2048];
    let mut length: c_int = 0;
    // SAFETY: MPI writes at most MPI_MAX_ERROR_STRING characters, which no library has above 1024.
    let told = unsafe { pmpi!(MPI_Error_string, code, text.as_mut_ptr(), &raw mut length) };
    if told != SUCCESS {
        return format!("MPI error {code}");
    }
    let bytes: Vec<u8> = text.iter().map(|one| *one as u8).take_while(|one| *one != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
