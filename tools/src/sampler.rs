//! Reads the sensors of published cards while a command has the cards.

use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fpga_driver::{Card, PublishedSensors};

/// Time between two readings. Firmware counts its heartbeat meanwhile, or its values are stale.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at firmware that starts.
const STARTING: Duration = Duration::from_millis(100);

/// The sensors of a card.
#[derive(Debug)]
struct Sampled {
    name: String,
    sensors: PublishedSensors,
    /// When they are read next.
    due: Instant,
}

impl Sampled {
    /// Reads the sensors if it is time. Returns whether the card is still published.
    fn sample(&mut self, now: Instant) -> bool {
        if now < self.due {
            return true;
        }
        let published = self.sensors.publish();
        let is_starting = published.is_ok() && !self.sensors.were_read();
        self.due = Instant::now() + if is_starting { STARTING } else { INTERVAL };
        published.unwrap_or_else(|error| {
            log::info!("{}: cannot read its sensors: {error}", self.name);
            true
        })
    }
}

/// A thread that reads sensors, until this is dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Closed when the thread is to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts to read the sensors of `cards`; `None` if no card has any. What fails is logged: nobody may be watching.
    pub(crate) fn start(cards: &[Card]) -> Option<Self> {
        let found = |card: &Card| match card.sensors() {
            Ok(sensors) => {
                sensors.map(|sensors| Sampled { name: card.name().to_owned(), sensors, due: Instant::now() })
            }
            Err(error) => {
                log::info!("{}: does not publish its sensors: {error}", card.name());
                None
            }
        };
        let mut sensors: Vec<Sampled> = cards.iter().filter_map(found).collect();
        if sensors.is_empty() {
            return None;
        }
        let (stop, stopped) = mpsc::channel();
        let read = move || {
            loop {
                let now = Instant::now();
                // A reading over a serial link takes long: who waits for the end waits for that of one card.
                let is_stopped = || stopped.try_recv() != Err(TryRecvError::Empty);
                sensors.retain_mut(|one| !is_stopped() && one.sample(now));
                let Some(next) = sensors.iter().map(|one| one.due).min() else { return };
                if stopped.recv_timeout(next.saturating_duration_since(Instant::now()))
                    != Err(RecvTimeoutError::Timeout)
                {
                    return;
                }
            }
        };
        match thread::Builder::new().name("sensors".to_owned()).spawn(read) {
            Ok(thread) => Some(Sampler { stop: Some(stop), thread: Some(thread) }),
            Err(error) => {
                log::info!("Publishes no sensors: {error}");
                None
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It ends after at most one reading, whose waits are bounded.
            let _ = thread.join();
        }
    }
}
