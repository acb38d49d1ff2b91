//! Reads the sensors of published cards while a command has the cards.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fpga_driver::{Card, PublishedSensors};

/// Time between two readings. Firmware counts its heartbeat meanwhile, or its values are stale.
const INTERVAL: Duration = Duration::from_secs(1);

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
            Ok(sensors) => sensors.map(|sensors| (card.name().to_owned(), sensors)),
            Err(error) => {
                log::info!("{}: does not publish its sensors: {error}", card.name());
                None
            }
        };
        let mut sensors: Vec<(String, PublishedSensors)> = cards.iter().filter_map(found).collect();
        if sensors.is_empty() {
            return None;
        }
        let (stop, stopped) = mpsc::channel();
        let read = move || {
            loop {
                sensors.retain_mut(|(name, one)| {
                    one.publish().unwrap_or_else(|error| {
                        log::info!("{name}: cannot read its sensors: {error}");
                        true
                    })
                });
                if sensors.is_empty() || stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
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
