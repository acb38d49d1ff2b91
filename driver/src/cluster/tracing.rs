//! Traces of a cluster: what the host did, and what each card said.

use cmdseq::instruction::WORLD;

use crate::card::Card;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::trace::recording::Recording;
use crate::trace::spans::{Moment, Spans};
use crate::trace::{CardTrace, Trace};

impl Cluster {
    /// Records from now on what goes through the queues of the cards held here, and what the calls of this cluster do, until
    /// [`take_trace`](Cluster::take_trace). Of each card, the latest `records` instructions and doorbells are kept
    /// ([`RECORDS`](crate::trace::RECORDS) is a good number); their memory is allocated here. `began` is the moment that times count
    /// from: a caller that has planned before notes it before. A trace that was begun before is dropped.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use cmdseq::Instruction;
    /// use fpga_driver::trace::{Moment, RECORDS};
    /// # use fpga_hal::{Domain, in_process};
    /// # let fabric = fpga_mock::Fabric::new(fpga_mock::Profile::optweb(2))?;
    /// # let domain = Domain::in_process();
    /// # let functions = (0..2).map(|node| in_process::attach(fabric.endpoint(node), &domain, &format!("card {node}")));
    /// # let functions = functions.collect::<Result<Vec<_>, _>>()?;
    /// let mut cluster = fpga_driver::Cluster::open(functions)?;
    /// cluster.start_trace(Moment::now(), RECORDS)?;
    /// let begin = Moment::now();
    /// let programs = [vec![Instruction::barrier().into()], vec![Instruction::barrier().into()]];
    /// cluster.run(&[0, 1], &programs, std::time::Duration::from_secs(1))?.result?;
    /// cluster.end_span("meet", begin);
    /// let trace = cluster.take_trace().expect("it was started");
    /// let meeting = &trace.cards[0].instructions[0];
    /// println!("{}: {} cycles", meeting.instruction.operation.name(), meeting.completion.t2);
    /// # assert!(trace.spans.iter().any(|span| span.name == "meet") && trace.dropped() == 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadArgument`] if a card has instructions in flight, or if this machine has no memory for the records.
    pub fn start_trace(&mut self, began: Moment, records: usize) -> Result<()> {
        if let Some(busy) = self.cards.iter().find(|card| card.queue().in_flight() > 0) {
            let value = format!("{} of {}", busy.queue().in_flight(), busy.name());
            return Err(Error::argument("instructions in flight", value, "none when a trace begins"));
        }
        let spans = Spans::new(began);
        let no_memory =
            |error| Error::argument("number of records", records, format!("fewer, for lack of memory: {error}"));
        let recording = |card: &Card| Recording::new(spans.began, card.queue().depth(), records).map_err(no_memory);
        let recordings = self.cards.iter().map(recording).collect::<Result<Vec<_>>>()?;
        for (card, recording) in self.cards.iter_mut().zip(recordings) {
            card.queue_mut().ledger.record(recording);
        }
        self.spans = Some(Box::new(spans));
        Ok(())
    }

    /// Returns this moment if a trace is recorded; else the clock is not read.
    pub(crate) fn moment(&self) -> Option<Moment> {
        self.spans.as_ref().map(|_| Moment::now())
    }

    /// Notes that what began at `begin` ends now, if a trace is recorded.
    pub fn end_span(&mut self, name: &'static str, begin: impl Into<Option<Moment>>) {
        if let (Some(spans), Some(begin)) = (&mut self.spans, begin.into()) {
            spans.end(name, begin);
        }
    }

    /// Ends the recording, and returns it; `None` if none was begun.
    pub fn take_trace(&mut self) -> Option<Trace> {
        let spans = *self.spans.take()?;
        let began = spans.wall;
        let mut cards = Vec::with_capacity(self.cards.len());
        for card in &mut self.cards {
            let Some((recording, in_flight)) = card.queue_mut().ledger.take_recording() else { continue };
            let (instructions, doorbells, dropped) = recording.into_records();
            let world = (WORLD, (0..card.capabilities().nodes).collect());
            let communicators = card.entries.iter().flatten().filter(|defined| defined.is_certain);
            cards.push(CardTrace {
                node: card.node(),
                name: card.name().to_owned(),
                clock_khz: card.capabilities().clock_khz,
                is_mock: card.is_mock(),
                depth: card.queue().depth(),
                communicators: std::iter::once(world)
                    .chain(communicators.map(|one| (one.id.raw(), one.members.to_vec())))
                    .collect(),
                instructions,
                in_flight,
                doorbells,
                dropped,
            });
        }
        let (spans, dropped_spans) = spans.into_spans();
        Some(Trace { began, spans, dropped_spans, cards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_fake::Fake;

    #[test]
    fn records_that_no_memory_holds_are_refused_and_the_trace_goes_on() {
        let fakes = [0, 1].map(|node| Fake::node(node, 2, 64));
        let mut cluster = Cluster::open(fakes.iter().map(Fake::function).collect()).unwrap();
        cluster.start_trace(Moment::now(), 1).unwrap();
        cluster.end_span("before", Moment::now());
        for records in [usize::MAX, 1 << 60] {
            let error = cluster.start_trace(Moment::now(), records).unwrap_err();
            assert!(matches!(error, Error::BadArgument { what: "number of records", .. }), "{error}");
        }
        let trace = cluster.take_trace().unwrap();
        assert_eq!((trace.cards.len(), trace.spans[0].name), (2, "before"));
    }
}
