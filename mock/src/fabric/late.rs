//! Delays replies of host memory, to test models and drivers on a bus with slow DMA.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use fpga_hal::Iova;
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaProgress, DmaTag, Endpoint, Interposer, InterruptPort};

use crate::net::noise::Dice;

/// A card whose DMA requests complete late: each after a random delay, in the order of the requests. A request still delayed
/// when its host goes is dropped; it never reaches the next host.
pub struct LateDma {
    card: Arc<dyn Endpoint>,
    seed: u64,
    longest: Duration,
    requests: OnceLock<Arc<Mutex<Sender<Request>>>>,
}

impl LateDma {
    /// Delays each request of `card` by at most `longest`. The delays are drawn from `seed`.
    pub fn new(card: Arc<dyn Endpoint>, seed: u64, longest: Duration) -> Arc<Self> {
        Arc::new(LateDma { card, seed, longest, requests: OnceLock::new() })
    }
}

impl Interposer for LateDma {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        let requests = self.requests.get_or_init(|| start(&self.card, self.seed, self.longest));
        let port = Port { bus: dma, requests: Arc::clone(requests) };
        self.card.attach(Arc::new(port), interrupts);
    }
}

/// A request, and the bus to make it on.
struct Request {
    bus: Arc<dyn DmaPort>,
    tag: DmaTag,
    iova: Iova,
    what: What,
}

enum What {
    Read { bytes: usize },
    Write { data: Vec<u8> },
}

/// Starts the thread that makes the requests. The thread ends when the card drops all its ports.
fn start(card: &Arc<dyn Endpoint>, seed: u64, longest: Duration) -> Arc<Mutex<Sender<Request>>> {
    let (sender, receiver) = channel();
    let card = Arc::downgrade(card);
    let started = thread::Builder::new()
        .name("late dma".into())
        .spawn(move || answer(&receiver, &card, Delays { dice: Dice::new(seed), longest }));
    if let Err(error) = started {
        log::error!("cannot start the thread for late DMA, all requests stay pending: {error}");
    }
    Arc::new(Mutex::new(sender))
}

/// The ports that the card sees as its bus.
struct Port {
    bus: Arc<dyn DmaPort>,
    requests: Arc<Mutex<Sender<Request>>>,
}

impl Port {
    fn wait(&self, tag: DmaTag, iova: Iova, what: What) -> DmaProgress {
        let request = Request { bus: Arc::clone(&self.bus), tag, iova, what };
        match self.requests.lock().unwrap_or_else(PoisonError::into_inner).send(request) {
            Ok(()) => DmaProgress::Pending,
            Err(_) => DmaProgress::Done(Err(DmaFault::HostGone)),
        }
    }
}

impl DmaPort for Port {
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress {
        self.wait(tag, iova, What::Read { bytes: data.len() })
    }

    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress {
        self.wait(tag, iova, What::Write { data: data.to_vec() })
    }
}

/// Makes requests one after another, until all senders are dropped.
fn answer(requests: &Receiver<Request>, card: &Weak<dyn Endpoint>, mut delays: Delays) {
    for Request { bus, tag, iova, what } in requests {
        thread::sleep(delays.next());
        let Some(card) = card.upgrade() else { return };
        let mut data = Vec::new();
        let progress = match what {
            What::Read { bytes } => {
                data.resize(bytes, 0);
                bus.read(tag, iova, &mut data)
            }
            What::Write { data } => bus.write(tag, iova, &data),
        };
        match progress {
            DmaProgress::Done(Ok(())) => card.dma_complete(tag, Ok(&data)),
            DmaProgress::Done(Err(fault)) => card.dma_complete(tag, Err(fault)),
            // The bus will complete it.
            DmaProgress::Pending => {}
        }
    }
}

/// Random delays.
struct Delays {
    dice: Dice,
    longest: Duration,
}

impl Delays {
    fn next(&mut self) -> Duration {
        let nanoseconds = u64::try_from(self.longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.dice.below(nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fabric, Profile};

    /// A host that reports the requested addresses.
    struct Host(Mutex<Sender<Iova>>);

    impl Host {
        fn start() -> (Arc<dyn DmaPort>, Receiver<Iova>) {
            let (asked, hear) = channel();
            (Arc::new(Host(Mutex::new(asked))), hear)
        }

        fn asked(&self, iova: Iova) -> DmaProgress {
            self.0.lock().unwrap().send(iova).unwrap();
            DmaProgress::Done(Ok(()))
        }
    }

    impl DmaPort for Host {
        fn read(&self, _: DmaTag, iova: Iova, _: &mut [u8]) -> DmaProgress {
            self.asked(iova)
        }

        fn write(&self, _: DmaTag, iova: Iova, _: &[u8]) -> DmaProgress {
            self.asked(iova)
        }
    }

    #[test]
    fn a_request_goes_to_the_host_it_was_made_to() {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let card: Arc<dyn Endpoint> = fabric.endpoint(0);
        let requests = start(&card, 1, Duration::from_millis(5));
        let (hosts, heard): (Vec<_>, Vec<_>) = (0..2).map(|_| Host::start()).unzip();
        let ports = hosts.into_iter().map(|bus| Port { bus, requests: Arc::clone(&requests) });
        // Both are made before any is answered.
        for (place, port) in (0..).zip(ports) {
            assert_eq!(port.write(DmaTag(0), Iova(place), &[1]), DmaProgress::Pending);
            assert_eq!(port.read(DmaTag(0), Iova(place), &mut [0]), DmaProgress::Pending);
        }
        drop(requests);
        for (place, heard) in (0..).zip(heard) {
            assert_eq!(heard.iter().collect::<Vec<_>>(), [Iova(place); 2]);
        }
    }
}
