//! Operations: collectives that were launched, to be waited for or awaited.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fpga_collective::{Class, CollectiveId, DmaBuffer};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::exit::{InPython, drop_in_python, stop_if_ending};
use crate::form::{Axes, Form};
use crate::memory::Mapped;
use crate::plan::Stored;
use crate::shared::{Orphan, Shared, State};

/// Data of ranks in the staging buffer begin at multiples of this: what cards can take.
const ALIGNMENT: usize = 64;

/// Where data for cards is, or goes.
enum Place {
    /// At this offset of memory that the cards reach.
    Ours(Arc<DmaBuffer>, usize),
    /// In memory that only the processor reaches.
    Other,
}

/// An array of an operation.
pub(crate) struct Data {
    array: Array,
    place: Place,
}

impl Data {
    pub(crate) fn new(shared: &Shared, array: Array) -> Self {
        let place = match shared.find(array.address(), array.bytes()) {
            Some((buffer, offset)) => Place::Ours(buffer, offset),
            None => Place::Other,
        };
        Data { array, place }
    }

    pub(crate) fn array(&self) -> &Array {
        &self.array
    }
}

/// What an operation in flight is to give.
pub(crate) struct Flight {
    output: Option<Data>,
    axes: Axes,
    /// The plan that a Python object has, or had: it stays on the cards meanwhile.
    _plan: Option<Arc<Stored>>,
}

/// What has become of a launch.
pub(crate) enum Phase {
    InFlight(Arc<Flight>),
    Done(fpga_collective::Times),
    /// It has failed, or was aborted.
    Over,
    /// Its cards were closed or its plan was released before it was done, as the text says.
    Withdrawn(&'static str),
}

/// A launch: it ends by its operation, or with the plan or the cards.
pub(crate) struct Launch {
    pub(crate) id: CollectiveId,
    phase: Mutex<Phase>,
}

impl Launch {
    /// Held without calls of Python or of cards that another thread uses.
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(&*self.phase(), Phase::InFlight(_))
    }

    /// Ends the launch, if it is in flight, and lets go of its output.
    pub(crate) fn end(&self, phase: Phase) {
        let mut now = self.phase();
        let ended = matches!(*now, Phase::InFlight(_)).then(|| std::mem::replace(&mut *now, phase));
        drop(now);
        // Without the lock: it may call Python.
        Python::try_attach(|py| drop_in_python(py, ended));
    }
}

/// Times of a launch, counted by the cards: the largest over the ranks, from the issue on each.
#[pyclass(frozen, get_all, module = "fpga")]
pub(crate) struct Times {
    /// T1 in microseconds: all beats of the last instruction counted out.
    t1_us: f64,
    /// T2 in microseconds: the last instruction complete.
    t2_us: f64,
    /// Microseconds until the last byte of any instruction was counted in; 0.0 if none was.
    arrival_us: f64,
    /// T1 in cycles of the cards' clock (`Card.clock_khz`).
    t1_cycles: u64,
    /// T2 in cycles.
    t2_cycles: u64,
    /// The arrival in cycles.
    arrival_cycles: u64,
}

#[pymethods]
impl Times {
    fn __repr__(&self) -> String {
        let Times { t1_us, t2_us, arrival_us, .. } = self;
        format!("<fpga.Times t1_us={t1_us:.3} t2_us={t2_us:.3} arrival_us={arrival_us:.3}>")
    }
}

impl From<fpga_collective::Times> for Times {
    fn from(times: fpga_collective::Times) -> Self {
        let fpga_collective::Times { t1_us, t2_us, arrival_us, t1_cycles, t2_cycles, arrival_cycles } = times;
        Times { t1_us, t2_us, arrival_us, t1_cycles, t2_cycles, arrival_cycles }
    }
}

/// A collective that was launched. ``await`` it, or call ``wait()``; both give its output.
///
/// One operation of a ``Cards`` is in flight at a time. An operation that nobody holds is aborted. An ``await`` that is cancelled aborts it,
/// too; one that is cancelled before it has begun, as that of ``asyncio.wait_for(operation, 0)``, does not: call ``abort()``.
#[pyclass(frozen, module = "fpga")]
pub(crate) struct Operation {
    shared: Arc<Shared>,
    launch: Arc<Launch>,
    name: &'static str,
    /// The output array, or `None` of Python if the operation has no output. Taken by the garbage collector only.
    result: Mutex<Option<Py<PyAny>>>,
}

impl Operation {
    /// Copies the input to the cards, and launches `id`. `state` is that of `shared`.
    pub(crate) fn launch(
        py: Python<'_>,
        (shared, state): (&Arc<Shared>, &mut State),
        (form, id, plan): (Form, CollectiveId, Option<Arc<Stored>>),
        input: Option<&Data>,
        (output, result): (Option<Data>, Py<PyAny>),
    ) -> Result<Self> {
        state.check_idle()?;
        let spans = spans(state, id, form.input, Side::Input)?;
        let staging = match input {
            Some(Data { array, place: Place::Other }) => {
                let staging = state.staging(total(&spans))?;
                for span in &spans {
                    staging.copy_in(py, span.staged, array.view(), span.offset, span.bytes)?;
                }
                Some(staging)
            }
            _ => None,
        };
        state.transfer(py, |cards| {
            for span in &spans {
                let (buffer, at) = span.memory(input.map(|data| &data.place), staging.as_deref());
                cards.load_input(id, span.rank, buffer, at)?;
            }
            cards.launch(id)
        })?;
        let flight = Arc::new(Flight { output, axes: form.output, _plan: plan });
        let launch = Arc::new(Launch { id, phase: Mutex::new(Phase::InFlight(flight)) });
        state.launched = Arc::downgrade(&launch);
        Ok(Operation { shared: Arc::clone(shared), launch, name: form.name, result: Mutex::new(Some(result)) })
    }

    /// Returns what is in flight, or `None` if it is done.
    fn flight(&self) -> Result<Option<Arc<Flight>>> {
        match &*self.launch.phase() {
            Phase::InFlight(flight) => Ok(Some(Arc::clone(flight))),
            Phase::Done(_) => Ok(None),
            Phase::Over => {
                let message = format!("this {} has failed or was aborted: launch it again", self.name);
                Err(fpga_collective::Error::new(Class::Refused, message).into())
            }
            Phase::Withdrawn(why) => Err(Error::usage(*why)),
        }
    }

    /// Runs `wait` on the cards if the operation is in flight, and takes the output once it is done. Returns whether it is.
    fn finish(
        &self,
        py: Python<'_>,
        wait: impl FnOnce(&mut fpga_collective::Cards) -> fpga_collective::Result<Option<fpga_collective::Times>> + Send,
    ) -> Result<bool> {
        if self.flight()?.is_none() {
            return Ok(true);
        }
        // In a child the launch stays in flight: the parent's cards run it.
        self.shared.check_process()?;
        let id = self.launch.id;
        let mut goes_on = false;
        let finished = self.shared.with(py, |state| {
            // Another thread may have seen it end since.
            let Some(flight) = self.flight()? else { return Ok(true) };
            let cards = &mut state.cards;
            // Done already if the copy of its output took too long.
            let waited = py.detach(|| wait(cards));
            if let Err(error) = &waited {
                goes_on = error.class == Class::Timeout && cards.in_flight() == Some(id);
            }
            let Some(times) = waited? else { return Ok(false) };
            let fetched = fetch(py, state, id, &flight);
            goes_on = fetched.as_ref().is_err_and(Error::is_timeout);
            fetched?;
            self.launch.end(Phase::Done(times));
            drop_in_python(py, flight);
            Ok(true)
        });
        if !goes_on && !matches!(finished, Ok(_) | Err(Error::Busy)) {
            self.launch.end(Phase::Over);
        }
        finished
    }

    fn result(&self, py: Python<'_>) -> Py<PyAny> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.as_ref().map_or_else(|| py.None(), |result| result.clone_ref(py))
    }

    /// Aborts the launch, if it is in flight: nobody holds the operation.
    fn let_go(&self, py: Python<'_>) {
        if self.launch.is_in_flight() {
            self.shared.let_go(py, Orphan::Launch(self.launch.id));
            self.launch.end(Phase::Over);
        }
    }
}

/// Copies the output of `id` to where it goes.
fn fetch(py: Python<'_>, state: &mut State, id: CollectiveId, flight: &Flight) -> Result<()> {
    let Some(output) = &flight.output else { return Ok(()) };
    let spans = spans(state, id, flight.axes, Side::Output)?;
    let staging = match output.place {
        Place::Other => Some(state.staging(total(&spans))?),
        Place::Ours(..) => None,
    };
    state.transfer(py, |cards| {
        spans.iter().try_for_each(|span| {
            let (buffer, at) = span.memory(Some(&output.place), staging.as_deref());
            cards.store_output(id, span.rank, buffer, at)
        })
    })?;
    if let Some(staging) = staging {
        for span in &spans {
            staging.copy_out(py, span.staged, output.array.view(), span.offset, span.bytes)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Input,
    Output,
}

/// One rank's data.
struct Span {
    rank: u32,
    bytes: usize,
    /// In the array.
    offset: usize,
    /// In the staging buffer.
    staged: usize,
}

impl Span {
    fn memory<'m>(&self, place: Option<&'m Place>, staging: Option<&'m Mapped>) -> (&'m Arc<DmaBuffer>, usize) {
        match (place, staging) {
            (Some(Place::Ours(buffer, at)), _) => (buffer, at + self.offset),
            (_, Some(staging)) => (staging.buffer(), self.staged),
            (_, None) => unreachable!("data is in our memory, or staged"),
        }
    }
}

/// Returns the data of the ranks that have some.
fn spans(state: &State, id: CollectiveId, axes: Axes, side: Side) -> Result<Vec<Span>> {
    let mut spans = Vec::with_capacity(state.cards.count() as usize);
    let mut staged = 0;
    for rank in 0..state.cards.count() {
        let (input, output) = state.cards.data_bytes(id, rank)?;
        let bytes = if side == Side::Input { input } else { output } as usize;
        if bytes > 0 && axes != Axes::Nothing {
            let offset = if axes.is_of_each() { rank as usize * bytes } else { 0 };
            spans.push(Span { rank, bytes, offset, staged });
            staged += bytes.next_multiple_of(ALIGNMENT);
        }
    }
    Ok(spans)
}

fn total(spans: &[Span]) -> usize {
    spans.last().map_or(0, |last| last.staged + last.bytes)
}

/// Returns a time limit in seconds as a duration.
pub(crate) fn limit(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| Error::usage(format!("invalid timeout {seconds}: expected seconds, at least 0 ({error})")))
}

#[pymethods]
impl Operation {
    /// Waits until all ranks are done, and returns the output array (None for a barrier).
    ///
    /// ``timeout`` is in seconds; without it, the timeout of the cards. Other threads run meanwhile. After ``fpga.TimeoutError`` the
    /// launch goes on: wait again, or abort it. Ctrl-C aborts it. Handlers of signals run meanwhile, and may use the cards: what they
    /// close or abort ends the wait with an error.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let given = timeout.map(limit).transpose()?;
        if matches!(&*self.launch.phase(), Phase::Done(_)) {
            return Ok(self.result(py));
        }
        let limit = match given {
            Some(limit) => limit,
            None => limit(self.shared.with(py, |state| Ok(state.timeout))?)?,
        };
        let began = Instant::now();
        let _reserved = self.shared.reserve()?;
        // In parts: between two of them the cards are free for this thread, whose handlers of signals may use them.
        loop {
            let done = self.finish(py, |cards| {
                let part = cards.wait_part(self.launch.id, began, limit);
                if matches!(part, Ok(None)) {
                    stop_if_ending();
                }
                part
            });
            if done.map_err(|error| error.with_timeout(limit.as_secs_f64()))? {
                return Ok(self.result(py));
            }
            if let Err(interrupted) = py.check_signals() {
                if let Err(error) = self.abort(py) {
                    interrupted.add_note(py, format!("the abort failed: {error}"))?;
                }
                return Err(interrupted);
            }
        }
    }

    /// Returns whether all ranks are done, and never waits. Then ``wait()`` returns at once.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.finish(py, |cards| cards.test(self.launch.id))?)
    }

    /// Ends the launch. The output is undefined.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        if !self.launch.is_in_flight() {
            return Ok(());
        }
        self.shared.check_process()?;
        let aborted = self.shared.without_lock(py, |cards| cards.abort(self.launch.id));
        if !matches!(aborted, Err(Error::Busy)) {
            self.launch.end(Phase::Over);
        }
        Ok(aborted?)
    }

    /// Returns a descriptor that becomes readable when the operation may be done, for ``select`` and event loops.
    ///
    /// Call ``test()`` then: it says whether the operation is done, and readies the descriptor for the next event. The descriptor
    /// is the cards': do not read or close it. A card that is gone raises no event: call ``test()`` every second, too.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.shared.with(py, |state| Ok(state.cards.event()?.as_raw_fd()))?)
    }

    /// The times that the cards have counted, or None before the operation is done.
    #[getter]
    fn times(&self) -> Option<Times> {
        match &*self.launch.phase() {
            Phase::Done(times) => Some((*times).into()),
            _ => None,
        }
    }

    /// Whether the operation is "in flight", "done", or "over": failed, aborted, or its plan was released or the cards were closed.
    #[getter]
    fn status(&self) -> &'static str {
        match &*self.launch.phase() {
            Phase::InFlight(_) => "in flight",
            Phase::Done(_) => "done",
            Phase::Over | Phase::Withdrawn(_) => "over",
        }
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static FINISHED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        let _inside = InPython::enter(py);
        FINISHED.import(py, "fpga._asyncio", "finished")?.call1((slf,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        format!("<fpga.Operation {}, {}>", self.name, self.status())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // What is in use is not garbage.
        if let Ok(result) = self.result.try_lock() {
            visit.call(&*result)?;
        }
        if let Ok(phase) = self.launch.phase.try_lock()
            && let Phase::InFlight(flight) = &*phase
            && let Some(output) = &flight.output
        {
            output.array.traverse(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self, py: Python<'_>) {
        self.let_go(py);
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without the lock: it may call Python.
        drop_in_python(py, result);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        Python::try_attach(|py| {
            self.let_go(py);
            let result = self.result.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            drop_in_python(py, result);
        });
    }
}
