//! Pipes over BlueLink do what Linux's pipes do.

use std::io::{ErrorKind, Read, Write};

use fpga_mock::bluelink::{
    Fabric, FabricError, LineConfig, PIPE_BUF, PIPE_BYTES, Parameters, PipeError, PipeReader, PipeWriter, Target, pipe,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use proptest::prelude::*;

const US: u128 = 1_000_000;
/// Time in which a full pipe gets to the reader.
const SETTLED: u128 = 400 * US;
const WRITER: Target = Target { board: 0, channel: 2 };
const READER: Target = Target { board: 1, channel: 9 };

#[test]
fn a_pipe_has_two_channels() {
    let mut fabric = Fabric::new(Parameters::published(), 2, &[(0, 1)]).unwrap();
    let error = pipe(&mut fabric, WRITER, WRITER).unwrap_err();
    assert_eq!(error, PipeError::Same(WRITER));
    assert_eq!(error.to_string(), "both ends of a pipe on board 0, channel 2");
    // The channel is still free.
    pipe(&mut fabric, WRITER, READER).unwrap();
    let [one, other] = [0, 1].map(|channel| Target { board: 1, channel });
    let (writer, reader) = pipe(&mut fabric, one, other).unwrap();
    assert_eq!(writer.write(&mut fabric, b"blue", SETTLED), Ok(4));
    assert_eq!(reader.read(&mut fabric, 10, SETTLED), Ok(b"blue".to_vec()));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Write(usize),
    Read(usize),
    CloseWriter,
    CloseReader,
}

/// What a step has done, on Linux and here.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Written(usize),
    Data(Vec<u8>),
    WouldBlock,
    Broken,
    Closed,
}

struct Linux(Option<std::io::PipeReader>, Option<std::io::PipeWriter>);

impl Linux {
    fn new() -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        assert_eq!(fcntl(&writer, FcntlArg::F_GETPIPE_SZ), Ok(PIPE_BYTES as i32));
        Linux(Some(reader), Some(writer))
    }

    fn step(&mut self, step: Step, data: &[u8]) -> Option<Outcome> {
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock => Outcome::WouldBlock,
            ErrorKind::BrokenPipe => Outcome::Broken,
            other => panic!("{other}"),
        };
        match step {
            Step::Write(_) => Some(self.1.as_mut()?.write(data).map_or_else(failed, Outcome::Written)),
            Step::Read(bytes) => {
                let mut buffer = vec![0; bytes];
                let read = self.0.as_mut()?.read(&mut buffer);
                Some(read.map_or_else(failed, |count| Outcome::Data(buffer[..count].to_vec())))
            }
            Step::CloseWriter => self.1.take().map(|_| Outcome::Closed),
            Step::CloseReader => self.0.take().map(|_| Outcome::Closed),
        }
    }
}

struct Ours {
    fabric: Fabric,
    reader: Option<PipeReader>,
    writer: Option<PipeWriter>,
}

impl Ours {
    fn new(parameters: Parameters) -> Self {
        let mut fabric = Fabric::new(parameters, 2, &[(0, 1)]).unwrap();
        let (writer, reader) = pipe(&mut fabric, WRITER, READER).unwrap();
        Ours { fabric, reader: Some(reader), writer: Some(writer) }
    }

    fn without_blocking(parameters: Parameters) -> Self {
        let mut ours = Ours::new(parameters);
        ours.writer.iter_mut().for_each(|writer| writer.set_blocking(false));
        ours.reader.iter_mut().for_each(|reader| reader.set_blocking(false));
        ours
    }

    fn step(&mut self, step: Step, data: &[u8]) -> Option<Outcome> {
        let failed = |error: PipeError| match error {
            PipeError::WouldBlock => Outcome::WouldBlock,
            PipeError::Broken => Outcome::Broken,
            other => panic!("{other}"),
        };
        let fabric = &mut self.fabric;
        let outcome = match step {
            Step::Write(_) => self.writer.as_ref()?.write(fabric, data, 0).map_or_else(failed, Outcome::Written),
            Step::Read(bytes) => self.reader.as_ref()?.read(fabric, bytes, 0).map_or_else(failed, Outcome::Data),
            Step::CloseWriter => self.writer.take()?.close(fabric).map_or_else(failed, |()| Outcome::Closed),
            Step::CloseReader => self.reader.take()?.close(fabric).map_or_else(failed, |()| Outcome::Closed),
        };
        fabric.run_until(fabric.now() + SETTLED).unwrap();
        Some(outcome)
    }
}

/// Steps, few of which close an end.
fn steps(sizes: impl Strategy<Value = usize> + Clone) -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        12 => sizes.clone().prop_map(Step::Write),
        12 => sizes.prop_map(Step::Read),
        1 => Just(Step::CloseWriter),
        1 => Just(Step::CloseReader),
    ];
    prop::collection::vec(one, 1..40)
}

fn compare(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut linux, mut ours) = (Linux::new(), Ours::without_blocking(Parameters::published()));
    for (number, step) in steps.into_iter().enumerate() {
        let data = match step {
            Step::Write(bytes) => (0..bytes).map(|byte| (byte + 31 * number) as u8).collect(),
            _ => Vec::new(),
        };
        prop_assert_eq!(ours.step(step, &data), linux.step(step, &data), "step {}: {:?}", number, step);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Linux keeps bytes in pages: with whole pages its capacity is exact, so a full pipe is compared too.
    #[test]
    fn whole_pages_are_written_and_read_as_on_linux(steps in steps((0..20usize).prop_map(|pages| pages * 4096))) {
        compare(steps)?;
    }

    /// Any sizes, in a pipe that never gets full.
    #[test]
    fn any_sizes_are_written_and_read_as_on_linux(steps in steps(0..1_500usize)) {
        // 16 pages hold 16 writes whatever their sizes.
        let mut writes = 0;
        let few = steps.into_iter().filter(|step| {
            writes += usize::from(matches!(step, Step::Write(_)));
            !matches!(step, Step::Write(_)) || writes <= 16
        });
        compare(few.collect())?;
    }

    /// A stream through a blocking pipe, on a bad line with a pulled cable.
    #[test]
    fn a_stream_arrives_whole(
        writes in prop::collection::vec(0..30_000usize, 1..12), read_most in 1..40_000usize, seed in any::<u64>(),
        pulled in prop::option::of((0..200u128, 1..300u128)),
    ) {
        let line = LineConfig { bit_error_rate: 1e-5, loss_rate: 1e-4, ..Parameters::published().line };
        let mut ours = Ours::new(Parameters { line, seed, ..Parameters::published() });
        if let Some((at, length)) = pulled {
            ours.fabric.unplug(0, at * US).unwrap();
            ours.fabric.plug(0, (at + length) * US).unwrap();
        }
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for bytes in writes {
            let data: Vec<u8> = (0..bytes).map(|byte| ((sent.len() + byte) % 251) as u8).collect();
            let mut left = &data[..];
            while !left.is_empty() {
                // A writer that is blocked for long lets the reader read.
                match ours.writer.as_ref().unwrap().write(&mut ours.fabric, left, 50 * US) {
                    Ok(written) => left = &left[written..],
                    // All may have been read, with the cable out before the writer knows: then the reader waits in vain.
                    Err(PipeError::TimedOut { .. }) => {
                        match ours.reader.as_ref().unwrap().read(&mut ours.fabric, read_most, 1_000 * US) {
                            Ok(data) => received.extend(data),
                            Err(error) => prop_assert!(matches!(error, PipeError::TimedOut { .. }), "{}", error),
                        }
                        prop_assert!(ours.fabric.now() < 1_000_000 * US, "stuck after {} bytes", received.len());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            sent.extend(data);
        }
        ours.writer.take().unwrap().close(&mut ours.fabric).unwrap();
        loop {
            let data = ours.reader.as_ref().unwrap().read(&mut ours.fabric, read_most, 10_000 * US).unwrap();
            prop_assert!(data.len() <= read_most);
            if data.is_empty() {
                break;
            }
            received.extend(data);
        }
        prop_assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    }
}

#[test]
fn a_small_write_is_not_divided() {
    let mut ours = Ours::without_blocking(Parameters::published());
    let (writer, fabric) = (ours.writer.as_ref().unwrap(), &mut ours.fabric);
    assert_eq!(writer.write(fabric, &vec![1; PIPE_BYTES - 10], 0), Ok(PIPE_BYTES - 10));
    assert_eq!(writer.write(fabric, &[2; PIPE_BUF], 0), Err(PipeError::WouldBlock));
    assert_eq!(writer.write(fabric, &[2; 10], 0), Ok(10));
    assert_eq!(writer.write(fabric, &[2; PIPE_BUF + 1], 0), Err(PipeError::WouldBlock));
    fabric.run_until(fabric.now() + SETTLED).unwrap();
    // One byte read makes room for one, once the writer's board knows.
    assert_eq!(ours.reader.as_ref().unwrap().read(fabric, 1, US), Ok(vec![1]));
    fabric.run_until(fabric.now() + US).unwrap();
    assert_eq!(writer.write(fabric, &[3; PIPE_BUF], 0), Err(PipeError::WouldBlock));
    assert_eq!(writer.write(fabric, &[3; PIPE_BUF + 1], 0), Ok(1));
}

#[test]
fn a_blocked_end_waits_for_the_other() {
    let mut ours = Ours::new(Parameters::published());
    let (writer, reader, fabric) = (ours.writer.take().unwrap(), ours.reader.take().unwrap(), &mut ours.fabric);
    assert_eq!(reader.read(fabric, 1, 5 * US), Err(PipeError::TimedOut { waited: 5 * US }));
    assert_eq!(fabric.now(), 5 * US);
    // As on a signal: what was written before counts.
    assert_eq!(writer.write(fabric, &vec![7; PIPE_BYTES + 500], SETTLED), Ok(PIPE_BYTES));
    assert_eq!(writer.write(fabric, &[7; 500], US), Err(PipeError::TimedOut { waited: US }));
    assert_eq!(reader.read(fabric, 500, US).map(|data| data.len()), Ok(500));
    assert_eq!(writer.write(fabric, &[7; 500], US), Ok(500));
    reader.close(fabric).unwrap();
    assert_eq!(writer.write(fabric, &[7], SETTLED), Err(PipeError::Broken));
    assert_eq!(writer.write(fabric, &[], US), Ok(0));
}

#[test]
fn a_foreign_end_is_named_and_a_missing_one_too() {
    let mut ours = Ours::new(Parameters::published());
    let (writer, reader, fabric) = (ours.writer.take().unwrap(), ours.reader.take().unwrap(), &mut ours.fabric);
    fabric.send(0, READER, 0x77 << 56, US).unwrap();
    fabric.send(1, WRITER, 0x20 << 56 | 1, US).unwrap();
    fabric.run_until(fabric.now() + US).unwrap();
    assert_eq!(reader.read(fabric, 1, US), Err(PipeError::Flit(0x77 << 56)));
    // Nothing was written, so nothing can have been read.
    assert_eq!(writer.write(fabric, &[1], US), Err(PipeError::Flit(0x20 << 56 | 1)));
    fabric.restart(1, fabric.now()).unwrap();
    fabric.run_until(fabric.now() + US).unwrap();
    assert_eq!(reader.read(fabric, 1, US), Err(PipeError::Missing(READER)));
    let nowhere = Target { board: 2, channel: 0 };
    assert!(matches!(
        pipe(fabric, WRITER, nowhere),
        Err(PipeError::Fabric(FabricError::Unknown { what: "board", .. }))
    ));
}
