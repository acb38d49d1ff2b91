//! Accesses that take longer than the time limit of what they start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fpga_driver::{Cluster, Error, Execution};
use fpga_hal::endpoint::Interposer;
use fpga_hal::{BarIndex, Domain, Endpoint, in_process};
use fpga_mock::{Fabric, Fault, Profile, When};
use fpga_tests::run::plan_all;

const LIMIT: Duration = Duration::from_secs(2);

/// A card of which a write to a register takes longer than [`LIMIT`], once.
struct Slow {
    card: Arc<dyn Endpoint>,
    is_due: AtomicBool,
}

impl Interposer for Slow {
    fn behind(&self) -> &dyn Endpoint {
        &*self.card
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.card.bar_write(bar, offset, data);
        if self.is_due.swap(false, Ordering::Relaxed) {
            thread::sleep(LIMIT + Duration::from_millis(100));
        }
    }
}

/// The first card is rung before the second: what it waits for happens in a later access.
#[test]
fn what_has_completed_by_the_end_of_an_access_is_not_late() {
    for is_frozen in [false, true] {
        let fabric = Fabric::new(Profile::optweb(2)).unwrap();
        let slow = Arc::new(Slow { card: fabric.endpoint(1), is_due: AtomicBool::new(false) });
        let endpoints: [Arc<dyn Endpoint>; 2] = [fabric.endpoint(0), Arc::<Slow>::clone(&slow)];
        let domain = Domain::in_process();
        let functions = endpoints.map(|endpoint| in_process::attach(endpoint, &domain, "card").unwrap());
        let mut cluster = Cluster::open(functions.into()).unwrap();
        let plan = plan_all(&cluster, "alltoall", 64, None, None).unwrap();
        let execution = Execution { timeout: LIMIT, ..Execution::default() };
        cluster.execute(&plan.set, &execution).unwrap();
        if is_frozen {
            fabric.plant(Fault::Freeze { node: 0, when: When::Now });
        }
        slow.is_due.store(true, Ordering::Relaxed);
        let outcome = cluster.execute(&plan.set, &execution);
        assert!(!slow.is_due.load(Ordering::Relaxed));
        match is_frozen {
            true => assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}"),
            false => drop(outcome.unwrap()),
        }
    }
}
