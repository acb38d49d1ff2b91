//! Registered memory: directions, ownership, and refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fake::Fake;
use fpga_hal::endpoint::DmaFault;
use fpga_hal::memory::{HostMemory, MmapMut, NotRegistered, RawMemory};
use fpga_hal::{Direction, Domain, Error, Function, Iova, SharedMemory};

const BYTES: usize = 1 << 18;

fn master(domain: &Domain) -> (Arc<Fake>, Function) {
    let fake = Fake::new();
    let function = fake.open(domain, "card").unwrap();
    function.set_bus_master(true).unwrap();
    (fake, function)
}

/// What devices may do, in the words of the test.
const DIRECTIONS: [(Direction, bool, bool); 3] =
    [(Direction::ToDevice, true, false), (Direction::FromDevice, false, true), (Direction::Both, true, true)];

/// A device reads and writes `iova`, and is refused what the direction does not allow.
fn check_direction(fake: &Fake, iova: u64, (direction, reads, writes): (Direction, bool, bool)) {
    let allowed = |is: bool| if is { Ok(()) } else { Err(DmaFault::Unmapped { iova: fpga_hal::Iova(iova) }) };
    let mut seen = [0xee; 4];
    assert_eq!(fake.dma_read(iova, &mut seen), allowed(reads), "{direction:?}");
    assert_eq!(seen, if reads { *b"host" } else { [0xee; 4] }, "{direction:?}");
    assert_eq!(fake.dma_write(iova, b"card"), allowed(writes), "{direction:?}");
}

#[test]
fn a_device_reaches_memory_only_in_its_direction() {
    let domain = Domain::in_process();
    let (fake, _function) = master(&domain);
    for case @ (direction, _, writes) in DIRECTIONS {
        let mut memory = MmapMut::map_anon(BYTES).unwrap();
        memory[..4].copy_from_slice(b"host");
        let registered = domain.register(memory, direction).unwrap();
        assert_eq!((registered.len(), registered.direction()), (BYTES, direction));
        let iova = registered.iova().0;
        check_direction(&fake, iova, case);
        // The host reads and writes, whatever devices may.
        registered.write(BYTES - 4, b"tail").unwrap();
        assert!(matches!(registered.write(BYTES - 3, b"tail"), Err(Error::OutOfBounds { .. })));
        let mut seen = [0; 4];
        registered.read(0, &mut seen).unwrap();
        assert_eq!(&seen, if writes { b"card" } else { b"host" }, "{direction:?}");
        let memory = registered.unregister().unwrap();
        assert_eq!((&memory[..4], &memory[BYTES - 4..]), (&seen[..], &b"tail"[..]));
        assert!(fake.dma_read(iova, &mut seen).is_err() && fake.dma_write(iova, &seen).is_err(), "it was unmapped");
        assert_eq!(domain.mappings(), 0);
    }
}

#[test]
fn a_buffer_next_to_memory_of_one_direction_does_not_lend_it_its_own() {
    let domain = Domain::in_process();
    let (fake, _function) = master(&domain);
    let page = domain.allocate(1, 1).unwrap().backing().page_bytes;
    let memory = domain.register(MmapMut::map_anon(page).unwrap(), Direction::ToDevice).unwrap();
    let buffer = domain.allocate(page, 1).unwrap();
    assert_eq!(buffer.iova().0, memory.iova().0 + page as u64, "the test needs neighbours");
    assert!(fake.dma_write(memory.iova().0 + 8, &vec![1; page]).is_err());
    assert_eq!(buffer.load_acquire(0).unwrap(), 0, "nothing was written");
    assert_eq!(fake.dma_read(memory.iova().0 + 8, &mut vec![1; page]), Ok(()));
}

#[test]
fn a_refusal_has_the_cause_of_its_error() {
    let error = Error::DmaMap { iova: Iova(0), bytes: 1, source: std::io::ErrorKind::OutOfMemory.into() };
    let text = error.to_string();
    let refused = NotRegistered { memory: (), error };
    assert_eq!(refused.to_string(), text);
    let cause = std::error::Error::source(&refused).expect("a cause");
    assert_eq!(cause.to_string(), std::io::Error::from(std::io::ErrorKind::OutOfMemory).to_string());
}

/// Memory that looks, when it is dropped, at how many mappings there are.
struct Watched {
    memory: MmapMut,
    domain: Domain,
    mappings_at_drop: Arc<AtomicUsize>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.mappings_at_drop.store(self.domain.mappings(), Ordering::Relaxed);
    }
}

// SAFETY: as for `MmapMut`, which it wraps.
unsafe impl HostMemory for Watched {
    fn start(&mut self) -> *mut u8 {
        self.memory.start()
    }

    fn len(&self) -> usize {
        HostMemory::len(&self.memory)
    }
}

#[test]
fn memory_is_unmapped_before_it_is_dropped_and_may_outlive_function_and_domain() {
    let domain = Domain::in_process();
    let mappings_at_drop = Arc::new(AtomicUsize::new(usize::MAX));
    let watched = || Watched {
        memory: MmapMut::map_anon(BYTES).unwrap(),
        domain: domain.clone(),
        mappings_at_drop: Arc::clone(&mappings_at_drop),
    };
    let (fake, function) = master(&domain);
    let registered = domain.register(watched(), Direction::Both).unwrap_or_else(|refused| panic!("{refused}"));
    let iova = registered.iova().0;
    drop(registered);
    assert_eq!(mappings_at_drop.swap(usize::MAX, Ordering::Relaxed), 0);
    assert!(fake.dma_write(iova, &[1]).is_err());

    let registered = domain.register(watched(), Direction::Both).unwrap_or_else(|refused| panic!("{refused}"));
    drop((function, domain));
    registered.write(0, b"alone").unwrap();
    assert_eq!(mappings_at_drop.load(Ordering::Relaxed), usize::MAX);
    drop(registered);
    assert_eq!(mappings_at_drop.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_that_is_not_whole_pages_is_refused_and_given_back() {
    let domain = Domain::in_process();
    let page = domain.allocate(1, 1).unwrap().backing().page_bytes;
    let mut memory = MmapMut::map_anon(4 * page).unwrap();
    let start = memory.as_mut_ptr();
    for (offset, len) in [(0, 0), (0, page - 1), (0, page + 8), (8, page), (page / 2, page), (1, 2 * page - 1)] {
        // SAFETY: the range lies in `memory`, which lives longer and is not used meanwhile.
        let raw = unsafe { RawMemory::new(start.wrapping_add(offset), len) };
        match domain.register(raw, Direction::Both) {
            Err(NotRegistered { memory, error: Error::RegisteredRange { start: at, bytes, granule } }) => {
                assert_eq!((at as usize, bytes as usize, granule as usize), (start.addr() + offset, len, page));
                assert_eq!(HostMemory::len(&memory), len);
            }
            other => panic!("{offset} {len}: {other:?}"),
        }
    }
    // SAFETY: as above.
    let raw = unsafe { RawMemory::new(start.wrapping_add(page), 2 * page) };
    assert_eq!(domain.register(raw, Direction::Both).unwrap().len(), 2 * page);
    // A mapping knows its length in bytes.
    assert!(domain.register(MmapMut::map_anon(page + 1).unwrap(), Direction::Both).is_err());
    assert_eq!(domain.mappings(), 0);
}

#[test]
fn memory_is_given_back_when_the_domain_is_full() {
    let domain = Domain::in_process_with(&[0x10_0000..=0x1f_ffff], 2);
    let mut memory = MmapMut::map_anon(BYTES).unwrap();
    memory.fill(7);
    let _held = [(); 2].map(|()| domain.allocate(1, 1).unwrap());
    let refused = domain.register(memory, Direction::Both).unwrap_err();
    assert!(matches!(refused.error, Error::EntryLimit { limit: 2 }), "{refused}");
    assert!(refused.memory.iter().all(|byte| *byte == 7));
    drop(_held);
    assert!(matches!(
        domain.register(MmapMut::map_anon(2 << 20).unwrap(), Direction::Both).map_err(Error::from),
        Err(Error::IovaSpace { .. })
    ));
    assert!(domain.register(refused.memory, Direction::Both).is_ok());
}

#[test]
fn shared_memory_is_the_same_memory_for_its_owner_and_for_devices() {
    let domain = Domain::in_process();
    let (fake, _function) = master(&domain);
    let shared = Arc::new(SharedMemory::new("shared", 5000).unwrap());
    let registered = domain.register(Arc::clone(&shared), Direction::Both).unwrap();
    assert!(registered.len() >= 5000 && registered.len() < 5000 + (64 << 10), "whole pages");
    fake.dma_write(registered.iova().0 + 10, b"from the card").unwrap();
    let mut seen = [0; 13];
    shared.read(10, &mut seen).unwrap();
    assert_eq!(&seen, b"from the card");
    // In another domain as well.
    let other = Domain::in_process();
    let (fake, _function) = master(&other);
    let again = other.register(Arc::clone(&shared), Direction::ToDevice).unwrap();
    drop(registered);
    let mut seen = [0; 13];
    fake.dma_read(again.iova().0 + 10, &mut seen).unwrap();
    assert_eq!(&seen, b"from the card");
}

#[test]
fn memory_without_a_descriptor_is_refused_where_servers_need_one() {
    let domain = Domain::vfio_user();
    let mut memory = MmapMut::map_anon(BYTES).unwrap();
    memory.fill(3);
    let refused = domain.register(memory, Direction::Both).unwrap_err();
    assert!(matches!(refused.error, Error::NotShareable { bytes } if bytes == BYTES as u64), "{refused}");
    assert!(refused.to_string().contains("SharedMemory"), "it says what helps: {refused}");
    assert!(refused.memory.iter().all(|byte| *byte == 3));
    let shared = Arc::new(SharedMemory::new("shared", BYTES as u64).unwrap());
    assert!(domain.register(shared, Direction::Both).is_ok());
    assert_eq!(domain.mappings(), 0);
}

#[cfg(feature = "vfio-user-server")]
#[test]
fn a_device_behind_a_socket_reaches_memory_only_in_its_direction() {
    use fpga_hal::vfio_user::{Options, Server, connect_with};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("card");
    let fake = Fake::new();
    let _serving = Server::bind(&path, Arc::clone(&fake) as Arc<dyn fpga_hal::Endpoint>).unwrap().spawn().unwrap();
    let domain = Domain::vfio_user();
    let shared = Arc::new(SharedMemory::new("shared", BYTES as u64).unwrap());
    // Registered before a server connects, and while one is connected.
    let before = domain.register(Arc::clone(&shared), Direction::ToDevice).unwrap();
    let function = connect_with(&path, &domain, &Options::default()).unwrap();
    function.set_bus_master(true).unwrap();
    shared.write(0, b"host").unwrap();
    check_direction(&fake, before.iova().0, DIRECTIONS[0]);
    for case in DIRECTIONS {
        shared.write(0, b"host").unwrap();
        let registered = domain.register(Arc::clone(&shared), case.0).unwrap();
        check_direction(&fake, registered.iova().0, case);
        let mut seen = [0; 4];
        shared.read(0, &mut seen).unwrap();
        assert_eq!(&seen, if case.2 { b"card" } else { b"host" }, "{:?}", case.0);
        let iova = registered.iova().0;
        registered.unregister().unwrap();
        assert!(fake.dma_read(iova, &mut seen).is_err(), "it was unmapped");
    }
}

#[test]
fn buffers_are_on_the_node_asked_for_or_the_node_is_refused() {
    let domain = Domain::in_process();
    let buffer = domain.allocate_on(4 << 20, 1, 0).unwrap();
    buffer.write(0, b"there").unwrap();
    // Every machine has node 0; on others, memory may have landed elsewhere if it was full.
    let Some(node) = buffer.numa_node() else { return eprintln!("the kernel does not report nodes") };
    let online = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_else(|_| "0".to_owned());
    assert!(node == 0 || online.trim() != "0", "node {node} of {online}");
    for node in [1023, 1024, u32::MAX] {
        match domain.allocate_on(4 << 20, 1, node) {
            Err(Error::NumaNode { node: refused, .. }) => assert_eq!(refused, node),
            other => panic!("{node}: {other:?}"),
        }
    }
    assert_eq!(domain.mappings(), 1);
}
