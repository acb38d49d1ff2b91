//! The client, with every field of a server's descriptions correct, at its limit, and beyond.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use fpga_hal::vfio_user::{Options, Server, connect_with};
use fpga_hal::{BarIndex, Domain, Error, Function, InterruptKind};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::{AsFd, AsRawFd};

use crate::card::Card;
use crate::logged::lines;
use crate::raw::*;
use crate::setting::{Directory, Served, memory};

const MEGABYTE: u64 = 1 << 20;

fn options(map_bars: bool) -> Options {
    let mut options = Options::default();
    // Long, since a busy machine is not what this tests.
    (options.patience, options.map_bars, options.share_memory) = (Duration::from_secs(60), map_bars, false);
    options
}

/// Has `test` use a function whose server's replies `change` has changed, which sees the commands as well.
pub fn with_changed(
    map_bars: bool,
    change: impl Fn(&Reply, &mut Reply) + Sync,
    test: impl FnOnce(fpga_hal::Result<Function>, &Domain),
) {
    with_options(&options(map_bars), change, test);
}

fn with_options(
    options: &Options,
    change: impl Fn(&Reply, &mut Reply) + Sync,
    test: impl FnOnce(fpga_hal::Result<Function>, &Domain),
) {
    let (served, directory) = (Served::new(), Directory::new());
    let front = directory.0.join("front");
    let listener = UnixListener::bind(&front).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let client = Raw::over(listener.accept().unwrap().0);
            let server = Raw::over(UnixStream::connect(served.path()).unwrap());
            client.stream.set_read_timeout(None).unwrap();
            while let Some(command) = client.receive() {
                let bytes = message(command.id, command.command, command.flags, &command.body);
                let passed: Vec<_> = command.descriptors.iter().map(AsFd::as_fd).collect();
                server.send_with(&bytes, &passed).unwrap();
                if command.flags & NO_REPLY == 0 {
                    let mut reply = server.receive().unwrap();
                    change(&command, &mut reply);
                    let mut bytes = message(reply.id, reply.command, reply.flags, &reply.body);
                    bytes[12..16].copy_from_slice(&reply.error.to_ne_bytes());
                    let passed: Vec<_> = reply.descriptors.iter().map(AsFd::as_fd).collect();
                    let _ = client.send_with(&bytes, &passed);
                }
            }
        });
        let domain = Domain::vfio_user();
        test(connect_with(&front, &domain, options), &domain);
    });
}

fn set(reply: &mut Reply, at: usize, value: u32) {
    reply.body[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn set_u64(reply: &mut Reply, at: usize, value: u64) {
    reply.body[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

/// Opens the function of a server whose replies are changed, and returns what [`Error::Nonsense`] names. `None`: it opens.
fn nonsense(map_bars: bool, change: impl Fn(&Reply, &mut Reply) + Sync) -> Option<&'static str> {
    let mut what = None;
    with_changed(map_bars, change, |opened, _| match opened {
        Ok(_) => {}
        Err(Error::Nonsense { what: said }) => what = Some(said),
        Err(other) => panic!("{other:?}"),
    });
    what
}

#[test]
fn a_version_is_agreed_on_or_refused() {
    let json = |json: &str| format!("{{\"capabilities\":{{{json}}}}}\0").into_bytes();
    let fine = json("\"max_msg_fds\":16");
    for (major, minor, data, expected) in [
        (0, 1, fine.clone(), None),
        (0, 0, fine.clone(), None),
        (0, 1, Vec::new(), None),
        (0, 2, fine.clone(), Some("version")),
        (1, 0, fine.clone(), Some("version")),
        (1, 1, fine.clone(), Some("version")),
        (1, 2, fine.clone(), Some("version")),
        (0, 1, b"[]".to_vec(), Some("version")),
        (0, 1, json("\"pgsizes\":4096"), None),
        (0, 1, json("\"pgsizes\":2101248"), None),
        (0, 1, json("\"pgsizes\":2097152"), Some("list of page sizes")),
        (0, 1, json("\"pgsizes\":0"), Some("list of page sizes")),
        (0, 1, json("\"pgsizes\":2048"), Some("list of page sizes")),
    ] {
        let body = body().u16(major).u16(minor).bytes(&data).0;
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == VERSION {
                reply.body.clone_from(&body);
            }
        };
        assert_eq!(nonsense(false, changed), expected, "{major}.{minor} {}", String::from_utf8_lossy(&data));
    }
    // Half of a version.
    let changed = |command: &Reply, reply: &mut Reply| {
        if command.command == VERSION {
            reply.body.truncate(3);
        }
    };
    assert_eq!(nonsense(false, changed), Some("version"));
}

#[test]
fn a_description_is_accepted_or_refused() {
    for (at, value, expected) in [
        (4, 3, None),
        (4, 1, Some("description")),
        (4, 0x8000_0003, None),
        (8, 9, None),
        (8, 8, None),
        (8, 7, Some("description")),
        (8, 0, Some("description")),
        (8, 1000, None),
        (12, 5, None),
        (12, 0, None),
    ] {
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == GET_INFO {
                set(reply, at, value);
            }
        };
        assert_eq!(nonsense(false, changed), expected, "{value:#x} at {at}");
    }
}

#[test]
fn a_configuration_space_has_256_bytes_at_least() {
    for (bytes, expected) in
        [(4096, None), (256, None), (255, Some("configuration space")), (0, Some("configuration space"))]
    {
        let written = Mutex::new(Vec::new());
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == GET_REGION_INFO && command.u32(8) == 7 {
                set_u64(reply, 16, bytes);
            }
            if command.command == REGION_WRITE && command.u32(8) == 7 {
                written.lock().unwrap().push(command.u64(0));
            }
        };
        assert_eq!(nonsense(false, changed), expected, "{bytes}");
        if expected.is_none() {
            with_changed(false, changed, |function, _| {
                let function = function.unwrap();
                assert_eq!(function.config_read_u32(0).unwrap(), 0x5020_10ee);
                let begin = written.lock().unwrap().len();
                // The card has zeros there; beyond the region, all-ones.
                assert_eq!(function.config_read_u32(252).unwrap(), 0);
                let beyond = if bytes == 256 { u32::MAX } else { 0 };
                assert_eq!(function.config_read_u32(256).unwrap(), beyond);
                function.config_write_u32(252, 0).unwrap();
                function.config_write_u32(256, 0).unwrap();
                let expected: &[u64] = if bytes == 256 { &[252] } else { &[252, 256] };
                assert_eq!(written.lock().unwrap()[begin..], *expected);
            });
        }
    }
}

#[test]
fn descriptions_of_interrupts_are_accepted_or_refused() {
    let wrong = Some("description of interrupts");
    for (at, value, expected) in [
        (8, 2, Ok(40)),
        (8, 1, Err(wrong)),
        (8, 3, Err(wrong)),
        (12, 1, Ok(1)),
        (12, 2048, Ok(2048)),
        (12, 2049, Err(wrong)),
        (12, u32::MAX, Err(wrong)),
        // Without eventfds they cannot be used.
        (4, 0, Ok(0)),
        (4, 0xffff_fffe, Ok(0)),
        (4, 1, Ok(40)),
    ] {
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == GET_IRQ_INFO && command.u32(8) == 2 {
                set(reply, at, value);
            }
        };
        with_changed(false, changed, |opened, _| {
            let vectors = opened.and_then(|function| function.vectors(InterruptKind::Msix));
            let found = vectors.map_err(|error| if let Error::Nonsense { what } = error { Some(what) } else { None });
            assert_eq!(found, expected, "{value:#x} at {at}");
        });
    }
    // A server without this index is not asked.
    let changed = |command: &Reply, reply: &mut Reply| {
        if command.command == GET_INFO {
            set(reply, 12, 2);
        }
        assert!(command.command != GET_IRQ_INFO || command.u32(8) < 2);
    };
    with_changed(false, changed, |opened, _| {
        let function = opened.unwrap();
        assert_eq!(function.vectors(InterruptKind::Msix).unwrap(), 0);
        assert_eq!(function.vectors(InterruptKind::Intx).unwrap(), 1);
    });
}

#[test]
fn a_region_is_mapped_as_described() {
    let whole = |command: &Reply| command.command == GET_REGION_INFO && command.u32(8) == 2;
    let is_mapped = |map_bars, change: &(dyn Fn(&mut Reply) + Sync)| {
        let mut mapped = Ok(false);
        let changed = |command: &Reply, reply: &mut Reply| {
            if whole(command) {
                // Room for a thousand areas.
                assert_eq!(command.u32(0), 32 + 16 + 1024 * 16);
                change(reply);
            }
        };
        with_changed(map_bars, changed, |opened, _| {
            mapped =
                opened.map_err(|error| if let Error::Nonsense { what } = error { what } else { "" }).map(|function| {
                    let window = function.window(BarIndex::new(2).unwrap()).unwrap();
                    window.is_mapped()
                });
        });
        mapped
    };
    let wrong = Err("description of BAR2");
    let areas = |areas: &[(u64, u64)]| {
        let head = body().u16(1).u16(1).u32(0).u32(areas.len() as u32).u32(0);
        areas.iter().fold(head, |body, (offset, size)| body.u64(*offset).u64(*size)).0
    };
    let listed = |list: Vec<u8>| {
        move |reply: &mut Reply| {
            set(reply, 4, 0xf);
            set(reply, 12, 32);
            reply.body.extend(&list);
        }
    };
    assert_eq!(is_mapped(true, &|_| ()), Ok(true));
    assert_eq!(is_mapped(false, &|_| ()), Ok(false));
    assert_eq!(is_mapped(true, &|reply| set(reply, 8, 1)), wrong, "a description of another region");
    assert_eq!(is_mapped(true, &|reply| reply.body.truncate(31)), wrong);
    // Without its flag, the offset of capabilities is ignored.
    assert_eq!(is_mapped(true, &|reply| set(reply, 12, 5)), Ok(true));
    assert_eq!(is_mapped(true, &|reply| set(reply, 4, 3)), Ok(false), "without the flag for mapping");
    assert_eq!(is_mapped(true, &|reply| set(reply, 4, 0xf)), Ok(true), "without a list of areas");
    assert_eq!(is_mapped(true, &|reply| reply.descriptors.clear()), Ok(false));
    assert_eq!(is_mapped(true, &listed(areas(&[(0, 1 << 16)]))), Ok(true));
    assert_eq!(is_mapped(true, &listed(areas(&[(0, (1 << 16) + 4096)]))), wrong);
    assert_eq!(is_mapped(true, &listed(areas(&[]))), Ok(false));
    assert_eq!(is_mapped(true, &listed(vec![0; 7])), wrong);
    // Memory that could shrink, or may not be written, is accessed by messages.
    let only_read = || {
        let file = memory(1 << 16, true);
        std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap().into()
    };
    assert_eq!(is_mapped(true, &|reply| reply.descriptors = vec![only_read()]), Ok(false));
    assert_eq!(is_mapped(true, &|reply| reply.descriptors = vec![memory(1 << 16, false)]), Ok(false));
    let huge = MFdFlags::MFD_HUGETLB | MFdFlags::MFD_ALLOW_SEALING;
    if let Ok(file) = memfd_create("huge", huge) {
        nix::unistd::ftruncate(&file, 1 << 30).unwrap();
        nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_ADD_SEALS(nix::fcntl::SealFlag::F_SEAL_SHRINK)).unwrap();
        let file = Mutex::new(Some(file));
        assert_eq!(
            is_mapped(true, &|reply| reply.descriptors = file.lock().unwrap().take().into_iter().collect()),
            Ok(false)
        );
    }
}

#[test]
fn a_reply_with_more_descriptors_than_any_is_wrong_and_no_refusal() {
    for (wrong, count, expected) in [
        (GET_REGION_INFO, 16, None),
        (GET_REGION_INFO, 17, Some("number of descriptors")),
        (VERSION, 17, Some("number of descriptors")),
    ] {
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == wrong {
                reply.descriptors = (0..count).map(|_| crate::setting::counter().into()).collect();
            }
        };
        assert_eq!(nonsense(true, changed), expected, "{count} in answer to {wrong}");
    }
    let seen = Mutex::new(Vec::new());
    let changed = |command: &Reply, reply: &mut Reply| {
        if [DMA_MAP, DMA_UNMAP].contains(&command.command) {
            seen.lock().unwrap().push(command.command);
            reply.descriptors = (0..17).map(|_| crate::setting::counter().into()).collect();
        }
    };
    with_changed(false, changed, |opened, domain| {
        let _function = opened.unwrap();
        let error = domain.allocate(4096, 1).unwrap_err();
        assert!(matches!(error, Error::Nonsense { what: "number of descriptors" }), "{error:?}");
        assert_eq!(*seen.lock().unwrap(), [DMA_MAP, DMA_UNMAP], "what it may have mapped is unmapped");
    });
}

fn refuse(reply: &mut Reply, errno: u32) {
    (reply.flags, reply.error) = (0x21, errno);
    reply.body.clear();
    reply.descriptors.clear();
}

#[test]
fn only_needed_descriptions_may_not_be_refused() {
    const EIO: u32 = 5;
    // BAR1 is not implemented. Neither the expansion ROM nor the VGA region is asked for.
    let changed = |command: &Reply, reply: &mut Reply| {
        assert!(command.command != GET_REGION_INFO || ![6, 8].contains(&command.u32(8)));
        match (command.command, command.body.get(8)) {
            (GET_REGION_INFO, Some(1)) => refuse(reply, EINVAL),
            (GET_IRQ_INFO, Some(0 | 2)) => refuse(reply, EINVAL),
            _ => {}
        }
    };
    with_changed(true, changed, |opened, _| {
        let function = opened.unwrap();
        let vectors = InterruptKind::ALL.map(|kind| (kind, function.vectors(kind).unwrap()));
        let refused = [InterruptKind::Msix, InterruptKind::Intx];
        assert!(vectors.iter().all(|(kind, count)| !refused.contains(kind) || *count == 0), "{vectors:?}");
        assert!(function.window(BarIndex::new(1).unwrap()).is_err());
        assert!(function.window(BarIndex::new(2).unwrap()).unwrap().is_mapped());
    });
    let needed = [
        (GET_REGION_INFO, 0, EIO, "BAR0"),
        (GET_REGION_INFO, 7, EINVAL, "the configuration space"),
        (GET_IRQ_INFO, 2, EIO, "interrupts"),
    ];
    for (asked, index, errno, name) in needed {
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == asked && command.u32(8) == index {
                refuse(reply, errno);
            }
        };
        with_changed(true, changed, |opened, _| {
            let error = opened.unwrap_err().to_string();
            assert_eq!(error, format!("The server refused to describe {name} of the function"));
        });
    }
}

#[test]
fn as_many_vectors_are_connected_at_a_time_as_the_server_accepts() {
    for (most, batches) in
        [(16, vec![16, 16, 8]), (100, vec![16, 16, 8]), (7, vec![7, 7, 7, 7, 7, 5]), (40, vec![16, 16, 8])]
    {
        let seen = Mutex::new(Vec::new());
        let changed = |command: &Reply, reply: &mut Reply| {
            if command.command == VERSION {
                let json = format!("{{\"capabilities\":{{\"max_msg_fds\":{most}}}}}\0");
                reply.body = body().u16(0).u16(1).bytes(json.as_bytes()).0;
            }
            if command.command == SET_IRQS && !command.descriptors.is_empty() {
                assert_eq!((command.u32(4), command.u32(8)), (0x24, 2));
                assert_eq!(command.u32(16) as usize, command.descriptors.len());
                seen.lock().unwrap().push((command.u32(12), command.u32(16)));
            }
        };
        with_changed(false, changed, |opened, _| {
            let function = opened.unwrap();
            assert_eq!(function.enable_interrupts(40).unwrap().len(), 40);
        });
        let expected: Vec<_> =
            batches.iter().enumerate().map(|(at, count)| (batches[..at].iter().sum::<u32>(), *count)).collect();
        assert_eq!(*seen.lock().unwrap(), expected, "{most}");
    }
    // A server that accepts no descriptors.
    let changed = |command: &Reply, reply: &mut Reply| {
        if command.command == VERSION {
            reply.body = body().u16(0).u16(1).bytes(b"{\"capabilities\":{\"max_msg_fds\":0}}\0").0;
        }
    };
    with_changed(false, changed, |opened, _| {
        let error = opened.unwrap().enable_interrupts(1).unwrap_err();
        assert!(matches!(error, Error::Nonsense { what: "limit of descriptors" }), "{error:?}");
    });
}

#[test]
fn a_server_that_accepts_no_descriptors_gets_none_of_memory() {
    let seen = Mutex::new(Vec::new());
    let changed = |command: &Reply, reply: &mut Reply| match command.command {
        VERSION => reply.body = body().u16(0).u16(1).bytes(b"{\"capabilities\":{\"max_msg_fds\":0}}\0").0,
        DMA_MAP => seen.lock().unwrap().push((command.descriptors.len(), reply.errno())),
        _ => {}
    };
    let mut options = options(false);
    options.share_memory = true;
    with_options(&options, changed, |opened, domain| {
        let _function = opened.unwrap();
        drop(domain.allocate(4096, 1).unwrap());
    });
    assert_eq!(*seen.lock().unwrap(), [(0, 0)]);
}

#[test]
fn a_body_may_have_as_many_bytes_as_one_transfer() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    // Too long for this command, but not for a message.
    let most = vec![0; 32 + MEGABYTE as usize];
    assert_eq!(raw.call(RESET, &most).errno(), EINVAL);
    assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).errno(), 0);
    let _ = raw.send(&message(1, GET_INFO, 0, &[&most[..], &[0]].concat()));
    raw.expect_end();
}

#[test]
fn a_request_about_interrupts_is_exact() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let events: Vec<_> = (0..3).map(|_| crate::setting::counter()).collect();
    let line = set_irqs(0x24, 0, 0, 1, &[]);
    assert_eq!(raw.call_with(SET_IRQS, &line, &[events[0].as_fd()]).errno(), 0);
    raw.connect_vectors(0, &events);
    let last = u32::from(crate::card::VECTORS) - 1;
    for (flags, index, start, count, data, passed, expected) in [
        // Each kind of data and each action; none or two of either.
        (0x21, 2, 0, 1, &[][..], 0, 0),
        (0x22, 2, 0, 1, &[1][..], 0, 0),
        (0x24, 2, 0, 1, &[], 1, 0),
        (0x20, 2, 0, 1, &[], 0, EINVAL),
        (0x23, 2, 0, 1, &[1], 0, EINVAL),
        (0x25, 2, 0, 1, &[], 0, EINVAL),
        (0x26, 2, 0, 1, &[1], 0, EINVAL),
        (0x27, 2, 0, 1, &[], 0, EINVAL),
        (0x01, 2, 0, 1, &[], 0, EINVAL),
        (0x31, 2, 0, 1, &[], 0, EINVAL),
        (0x29, 2, 0, 1, &[], 0, EINVAL),
        (0x19, 0, 0, 1, &[], 0, EINVAL),
        (0x39, 0, 0, 1, &[], 0, EINVAL),
        (0x61, 2, 0, 1, &[], 0, EINVAL),
        (0x8000_0021, 2, 0, 1, &[], 0, EINVAL),
        // Only the line can be masked.
        (0x09, 0, 0, 1, &[], 0, 0),
        (0x11, 0, 0, 1, &[], 0, 0),
        (0x0a, 0, 0, 1, &[1], 0, 0),
        (0x12, 0, 0, 1, &[0], 0, 0),
        (0x09, 2, 0, 1, &[], 0, ENOTSUP),
        (0x11, 3, 0, 1, &[], 0, ENOTSUP),
        (0x14, 0, 0, 1, &[], 1, ENOTSUP),
        (0x0c, 2, 0, 1, &[], 0, ENOTSUP),
        // Data for each interrupt, and descriptors only with their flag.
        (0x22, 2, 0, 2, &[1], 0, EINVAL),
        (0x22, 2, 0, 1, &[1, 1], 0, EINVAL),
        (0x22, 2, 0, 0, &[], 0, EINVAL),
        (0x21, 2, 0, 1, &[1], 0, EINVAL),
        (0x24, 2, 0, 1, &[1], 1, EINVAL),
        (0x21, 2, 0, 1, &[], 1, EINVAL),
        (0x22, 2, 0, 1, &[1], 1, EINVAL),
        (0x24, 2, 0, 2, &[], 1, EINVAL),
        (0x24, 2, 0, 1, &[], 2, EINVAL),
        (0x24, 2, 0, 0, &[], 0, EINVAL),
        // As many interrupts as exist.
        (0x21, 2, last, 1, &[], 0, 0),
        (0x21, 2, last, 2, &[], 0, EINVAL),
        (0x21, 2, last + 1, 0, &[], 0, EINVAL),
        (0x21, 2, 0, last + 2, &[], 0, EINVAL),
        (0x21, 2, 1, u32::MAX, &[], 0, EINVAL),
        (0x21, 0, 0, 2, &[], 0, EINVAL),
        (0x21, 1, 0, 0, &[], 0, EINVAL),
        (0x21, 5, 0, 1, &[], 0, EINVAL),
        // A count of zero is only for disconnecting all.
        (0x21, 2, 1, 0, &[], 0, EINVAL),
        (0x09, 0, 0, 0, &[], 0, EINVAL),
        (0x21, 0, 0, 0, &[], 0, 0),
        (0x21, 0, 0, 1, &[], 0, EINVAL),
        (0x09, 0, 0, 1, &[], 0, EINVAL),
        (0x21, 3, 0, 0, &[], 0, 0),
        (0x21, 2, 0, 0, &[], 0, 0),
        (0x21, 2, 0, 1, &[], 0, EINVAL),
    ] {
        let passed: Vec<_> = events[..passed].iter().map(AsFd::as_fd).collect();
        let found = raw.call_with(SET_IRQS, &set_irqs(flags, index, start, count, data), &passed).errno();
        assert_eq!(found, expected, "{flags:#x} {index} {start} {count} {data:?} {}", passed.len());
    }
    // argsz counts the structure and its data.
    raw.connect_vectors(0, &events);
    for (argsz, expected) in [(0, EINVAL), (21, EINVAL), (22, 0), (23, 0), (u32::MAX, 0)] {
        let request = body().u32(argsz).u32(0x22).u32(2).u32(0).u32(2).bytes(&[1, 0]).0;
        assert_eq!(raw.call(SET_IRQS, &request).errno(), expected, "{argsz}");
    }
}

#[test]
fn descriptors_do_not_come_with_a_version() {
    let served = Served::new();
    let event = crate::setting::counter();
    for count in [1, 16, 17] {
        let mut raw = Raw::connect(served.path());
        assert_eq!(raw.call_with(VERSION, &version(), &vec![event.as_fd(); count]).errno(), EINVAL, "{count}");
        raw.expect_end();
    }
    assert_eq!(Raw::open(served.path()).call(GET_INFO, &four(16, 0, 0, 0)).errno(), 0);
}

#[test]
fn replies_are_kept_for_a_client_that_reads_late() {
    const READS: u16 = 120;
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let data = crate::setting::pattern(5, 1 << 16);
    raw.write(2, 0, &data);
    // More than the server keeps until it stops reading.
    for id in 0..READS {
        raw.send(&message(id, REGION_READ, 0, &access(2, 0, 1 << 16, &[]))).unwrap();
    }
    // Replies wait now.
    thread::sleep(Duration::from_millis(50));
    for id in 0..READS {
        let reply = raw.receive().expect("the server waits for the client");
        assert_eq!((reply.id, reply.errno()), (id, 0));
        assert!(reply.body[16..] == data);
    }
    assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).errno(), 0);
}

#[test]
fn a_server_that_ends_normally_logs_nothing() {
    let lines = lines(|one| one.level() <= log::Level::Warn);
    let mut served = Served::new();
    let path = served.path().display().to_string();
    for _ in 0..3 {
        let mut raw = Raw::open(served.path());
        assert_eq!(raw.read_u32(0, 0), crate::card::ID_VALUE);
    }
    drop(served.serving.take());
    assert_eq!(lines.take(|_, line| line.contains(&path)), [""; 0]);
    // Other servers of this process may log about their clients, but not about accepting.
    assert_eq!(lines.take(|_, line| line.starts_with("Accepting")), [""; 0]);
}

#[test]
fn a_server_has_debug_text() {
    let directory = Directory::new();
    let server = Server::bind(directory.0.join("card"), Card::new()).unwrap();
    let shown = format!("{server:?}");
    assert!(shown.contains("endpoint: Endpoint,") && shown.contains(directory.0.to_str().unwrap()), "{shown}");
}
