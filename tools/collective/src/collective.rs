//! What is asked of a collective, and what became of it.

use std::sync::atomic::{AtomicU64, Ordering};

use cmdseq::completion::microseconds;
use cmdseq::plan::{self, Collective, Plan};
use cmdseq::{Combine, Element};
use fpga_driver::Prepared;

use crate::error::{Error, Result};

/// A collective on all cards of a selector, by the names of the command line. Rank r runs on the card with index r.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The operation, such as `allreduce`. Vector forms, with blocks of several lengths, are refused.
    pub operation: &'a str,
    /// The reduction, such as `sum`; for reductions only.
    pub reduction: Option<&'a str>,
    /// The type of the elements, such as `f32`; for reductions only.
    pub element: Option<&'a str>,
    /// The algorithm, such as `ring`; `None` lets the planner choose.
    pub algorithm: Option<&'a str>,
    /// Root, or sender.
    pub root: u32,
    /// Receiver of a send.
    pub peer: u32,
    /// Bytes, as [`Collective`] counts them.
    pub bytes: u64,
}

impl Request<'_> {
    /// Returns the request for the planner, on the cards of `nodes`.
    pub(crate) fn on(&self, nodes: Vec<u32>) -> Result<plan::Request> {
        let collective = collective(self.operation)?;
        let combine = match (collective.reduces(), self.reduction, self.element) {
            (true, Some(reduction), Some(element)) => Some(Combine::new(parse(reduction)?, parse(element)?)),
            (true, ..) => {
                return Err(Error::usage(format!("{collective} needs a reduction and an element type: sum of f32")));
            }
            (false, Some(reduction), _) => {
                return Err(Error::usage(format!("{collective} does not reduce: remove the reduction {reduction:?}")));
            }
            (false, None, _) => None,
        };
        Ok(plan::Request {
            combine,
            algorithm: self.algorithm.map(parse).transpose()?,
            root: self.root,
            peer: self.peer,
            relays: Some(nodes.clone()),
            resident: true,
            ..plan::Request::new(collective, nodes, self.bytes)
        })
    }
}

/// Returns the collective of that name, without those that have blocks of several lengths.
fn collective(name: &str) -> Result<Collective> {
    match name.parse::<Collective>() {
        Ok(vector) if vector.has_counts() => {
            Err(Error::usage(format!("{vector}: blocks of several lengths are not supported here")))
        }
        Ok(collective) => Ok(collective),
        Err(_) => {
            let available = Collective::ALL.iter().filter(|one| !one.has_counts());
            let names: Vec<&str> = available.map(|one| one.name()).collect();
            Err(Error::usage(format!("unknown collective {name:?} (available: {})", names.join(", "))))
        }
    }
}

/// Returns the bytes of an element of type `name`, such as `f32`.
///
/// # Errors
/// [`Class::Usage`](crate::Class::Usage) for an unknown name.
pub fn element_bytes(name: &str) -> Result<u64> {
    Ok(parse::<Element>(name)?.bytes())
}

fn parse<T: std::str::FromStr<Err: std::error::Error>>(name: &str) -> Result<T> {
    name.parse().map_err(|error: T::Err| Error::usage(error.to_string()))
}

/// Names a planned collective of one [`Cards`](crate::Cards). A process gives each id once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CollectiveId(pub(crate) u64);

impl CollectiveId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        CollectiveId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What was planned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Description {
    /// The operation.
    pub operation: &'static str,
    /// The algorithm, chosen or given.
    pub algorithm: &'static str,
    /// Number of ranks.
    pub ranks: u32,
    /// Predicted time until the last byte arrives at the last rank, microseconds.
    pub predicted_us: f64,
}

/// Times of a launch, counted by the cards: the largest over the ranks, in microseconds from the issue on each.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// T1: all beats of the last instruction counted out.
    pub t1_us: f64,
    /// T2: the last instruction complete.
    pub t2_us: f64,
    /// The last byte of any instruction counted in; 0 if none was.
    pub arrival_us: f64,
    /// T1 in cycles of the cards' clock ([`CardInfo::clock_khz`](crate::CardInfo::clock_khz)).
    pub t1_cycles: u64,
    /// T2 in cycles.
    pub t2_cycles: u64,
    /// The arrival in cycles.
    pub arrival_cycles: u64,
}

impl Times {
    pub(crate) fn of(times: fpga_driver::Times, clock_khz: u32) -> Self {
        let us = |cycles: u64| microseconds(cycles, clock_khz);
        let fpga_driver::Times { t1_cycles, t2_cycles, arrival_cycles } = times;
        let (t1_us, t2_us, arrival_us) = (us(t1_cycles), us(t2_cycles), us(arrival_cycles));
        Times { t1_us, t2_us, arrival_us, t1_cycles, t2_cycles, arrival_cycles }
    }
}

/// A planned collective that is stored on the cards.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) prepared: Prepared,
    /// By rank, if the last launch has or may have written over the input: whether no byte of it was written since.
    pub(crate) spent_inputs: Vec<bool>,
    /// Of the last launch that was waited for.
    pub(crate) times: Option<Times>,
}

impl Planned {
    /// Notes that `bytes` bytes of a rank's input were written.
    pub(crate) fn note_input(&mut self, rank: u32, bytes: u64) {
        if bytes > 0
            && let Some(is_spent) = self.spent_inputs.get_mut(rank as usize)
        {
            *is_spent = false;
        }
    }

    /// Refuses a launch on an input that the last launch has written over.
    pub(crate) fn check_inputs(&self) -> Result<()> {
        match self.spent_inputs.iter().position(|is_spent| *is_spent) {
            None => Ok(()),
            Some(rank) => Err(Error::refused(format!(
                "the last launch has replaced the input of rank {rank} by the output: write the input again"
            ))),
        }
    }

    /// Notes that a launch has begun, or may have.
    pub(crate) fn spend_inputs(&mut self) {
        if self.plan.replaces_input {
            self.spent_inputs = vec![true; self.plan.request.ranks() as usize];
        }
    }
}
