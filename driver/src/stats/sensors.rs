//! The writer of a card's published sensors.

use std::sync::Weak;
use std::time::SystemTime;

use fpga_hal::Function;
use fpga_hal::memory::PublishedWords;

use super::publication::put_text;
use super::sensed::{VALUE, W_NAME, W_PART, W_UNIT, encoded};
use super::{SENSOR_WORDS, SENSORS_MAX, W_SENSED, W_SENSOR_COUNT, W_SENSORS};
use crate::readings::sensors::Sensors;
use crate::readings::{Error, Reading, Value};

/// The sensors of a published card. Whoever has them reads them now and then, on any thread: instructions are not delayed.
#[derive(Debug)]
pub struct PublishedSensors {
    sensors: Sensors,
    words: Weak<PublishedWords>,
    /// The last reading.
    last: Vec<Reading>,
}

impl PublishedSensors {
    /// Finds the sensors of a function whose counters are published in `words`; `None` if it has none.
    pub(crate) fn find(function: &Function, words: Weak<PublishedWords>) -> Result<Option<Self>, Error> {
        let found = Sensors::find(function)?;
        Ok(found.map(|sensors| PublishedSensors { sensors, words, last: Vec::new() }))
    }

    /// Whether the sensors were read, since the firmware that measures has started.
    pub fn were_read(&self) -> bool {
        !self.last.is_empty()
    }

    /// Reads the sensors and publishes what they read; at least a second should pass between two calls that read something. Returns
    /// whether the card is still published.
    ///
    /// # Errors
    /// Those of the part that measures, and the bus's. The values read before are published as stale then.
    pub fn publish(&mut self) -> Result<bool, Error> {
        let Some(words) = self.words.upgrade() else { return Ok(false) };
        let read = match self.sensors.read() {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(true),
            Err(error) => {
                let stale = |value| match value {
                    Value::Good(value) => Value::Stale(value),
                    other => other,
                };
                store(&words, self.last.iter().map(|one| stale(one.value)));
                return Err(error);
            }
        };
        if self.last.is_empty() {
            name(&words, &read);
        }
        store(&words, read.iter().map(|one| one.value));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        words.store(W_SENSED, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        self.last = read;
        Ok(true)
    }
}

/// Stores what does not change: a reader takes the sensors that are counted.
fn name(words: &PublishedWords, read: &[Reading]) {
    for (index, one) in read.iter().take(SENSORS_MAX).enumerate() {
        let mut entry = [0; SENSOR_WORDS];
        put_text(&mut entry[W_PART], one.part);
        put_text(&mut entry[W_NAME], &one.name);
        put_text(&mut entry[W_UNIT], one.unit.name());
        for (word, value) in entry.into_iter().enumerate() {
            words.store(W_SENSORS + index * SENSOR_WORDS + word, value);
        }
    }
    words.store(W_SENSOR_COUNT, read.len().min(SENSORS_MAX) as u64);
}

fn store(words: &PublishedWords, values: impl Iterator<Item = Value>) {
    for (index, value) in values.take(SENSORS_MAX).enumerate() {
        words.store(W_SENSORS + index * SENSOR_WORDS + VALUE, encoded(value));
    }
}
