//! Communicators whose members several processes hold: made together, or registered by their ranks alone.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use cmdseq::plan::{Collective, Plan, Request, plan};
use cmdseq::{Combine, Element, Reduction};
use fpga_driver::{Card, Choice, Cluster, Error, Execution, Peers, PeersError};
use fpga_hal::in_process;
use fpga_mock::{Fabric, Fault, Profile, When};
use fpga_regs::sequencer;
use fpga_tests::altered::altered;
use fpga_tests::run::domain;
use fpga_tests::threads::{self, Thread};

/// Where the sequencer is in BAR 0.
const BLOCK: u64 = 0x1000;

fn fabric(nodes: u32) -> Fabric {
    Fabric::new(Profile::optweb(nodes)).unwrap()
}

/// An allreduce of these cards, through no others.
fn allreduce(cluster: &Cluster, group: &[u32]) -> Plan {
    let combine = Some(Combine::new(Reduction::Sum, Element::U32));
    let request = Request::new(Collective::Allreduce, group.to_vec(), 64);
    plan(&Request { combine, relays: Some(Vec::new()), ..request }, cluster.capabilities()).unwrap()
}

fn execute(cluster: &mut Cluster, plan: &Plan) {
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

#[test]
fn communicators_are_made_together() {
    threads::clusters(&fabric(4), |cluster, rank| {
        let world = cluster.world();
        let choices: Vec<_> = (0..4).map(|rank| Some(Choice { colour: rank % 2, key: -(rank as i32) })).collect();
        let halves = cluster.split(&world, &choices).unwrap();
        assert_eq!(halves[0].as_ref().unwrap().members(), [2, 0]);
        let pair = cluster.create(&world, &[3, 0]).unwrap();
        assert_ne!(pair.id(), halves[0].as_ref().unwrap().id());
        for group in [halves[0].as_ref().unwrap().members(), pair.members(), &[1, 2, 3]] {
            let plan = allreduce(cluster, group);
            execute(cluster, &plan);
        }
        cluster.free(&pair).unwrap();
        assert!(matches!(cluster.free(&pair), Err(Error::Stale { .. })));
        assert_eq!(cluster.holds(rank), cluster.cards()[0].node() == rank);
    });
}

#[test]
fn ranks_register_communicators_that_others_know_nothing_of() {
    let fabric = fabric(4);
    let _clock = fabric.start_clock();
    let lists = [[0, 2], [3, 1]];
    let connected: Vec<Mutex<Option<Thread>>> =
        lists.iter().flat_map(|_| Thread::connect(2)).map(|peers| Mutex::new(Some(peers))).collect();
    threads::ranks(4, |all| {
        let node = all.rank();
        let mut cluster = Cluster::of(vec![threads::card(&fabric, node).unwrap()]).unwrap();
        let list = lists.iter().position(|list| list.contains(&node)).unwrap();
        let rank = lists[list].iter().position(|one| *one == node).unwrap();
        let peers = connected[list * 2 + rank].lock().unwrap().take().unwrap();
        let communicator = cluster.register(Box::new(peers), &[]).unwrap();
        assert_eq!(communicator.members(), lists[list]);
        let mut among = cluster.among(&communicator).unwrap();
        assert_eq!(among.nodes(), lists[list]);
        let plan = allreduce(&among, &lists[list]);
        let contexts = among.contexts(&plan.set.communicators).unwrap();
        assert!(plan.set.communicators.iter().all(|one| contexts.id(node, one.id) == communicator.id()));
        execute(&mut among, &plan);
        drop(contexts);
        drop(among);
        assert_eq!(cluster.nodes(), [node]);
        cluster.free(&communicator).unwrap();
        assert!(matches!(cluster.among(&communicator), Err(Error::Stale { .. })));
        cluster.close().unwrap();
        drop(all);
    });
}

/// A plan for all has inner communicators that only their own ranks have registered, and the other ranks never heard of.
#[test]
fn a_plan_for_all_shares_what_some_of_its_ranks_have_registered() {
    let fabric = Fabric::new(Profile::optweb_dragonfly(2, 2)).unwrap();
    let _clock = fabric.start_clock();
    let connected: Vec<Mutex<Vec<Thread>>> = (0..4).map(|_| Mutex::default()).collect();
    let connect = |list: &[usize]| {
        for (peers, node) in Thread::connect(list.len() as u32).into_iter().zip(list) {
            connected[*node].lock().unwrap().push(peers);
        }
    };
    [&[0, 1][..], &[2, 3], &[0, 1, 2, 3], &[0, 1], &[2, 3]].iter().for_each(|list| connect(list));
    threads::ranks(4, |all| {
        let node = all.rank();
        let mut cluster = Cluster::of(vec![threads::card(&fabric, node).unwrap()]).unwrap();
        let register = |cluster: &mut Cluster| {
            let peers = connected[node as usize].lock().unwrap().remove(0);
            cluster.register(Box::new(peers), &[]).unwrap()
        };
        let (row, world) = (register(&mut cluster), register(&mut cluster));
        let barrier = plan(&Request::new(Collective::Barrier, vec![0, 1, 2, 3], 0), cluster.capabilities()).unwrap();
        let inner: Vec<_> = barrier.set.communicators.iter().map(|one| one.members.clone()).collect();
        assert!(inner.contains(&vec![0, 1]) && inner.contains(&vec![2, 3]), "{inner:?}");
        for _ in 0..3 {
            execute(&mut cluster.among(&world).unwrap(), &barrier);
        }
        // Other ids of the same ranks are learned as well.
        cluster.free(&row).unwrap();
        let anew = register(&mut cluster);
        execute(&mut cluster.among(&world).unwrap(), &barrier);
        cluster.free(&anew).unwrap();
        execute(&mut cluster.among(&world).unwrap(), &barrier);
        cluster.free(&world).unwrap();
        cluster.close().unwrap();
        drop(all);
    });
}

/// More than all ids of a card's table: each returns when both ranks have freed it.
#[test]
fn ids_return_once_all_members_have_freed_them() {
    let fabric = fabric(2);
    let _clock = fabric.start_clock();
    let (count, alive) = (8100, 5);
    let connected: Vec<Mutex<Vec<Thread>>> = {
        let mut by_rank = [Vec::new(), Vec::new()];
        for _ in 0..count {
            for (rank, peers) in Thread::connect(2).into_iter().enumerate() {
                by_rank[rank].push(peers);
            }
        }
        by_rank.into_iter().map(Mutex::new).collect()
    };
    let ids = threads::ranks(2, |peers| {
        let rank = peers.rank() as usize;
        let mut cluster = Cluster::of(vec![threads::card(&fabric, rank as u32).unwrap()]).unwrap();
        let (mut held, mut ids) = (VecDeque::new(), Vec::new());
        for _ in 0..count {
            let peers = connected[rank].lock().unwrap().pop().unwrap();
            let communicator = cluster.register(Box::new(peers), &[]).unwrap();
            ids.push(communicator.id());
            held.push_back(communicator);
            if held.len() > alive {
                // One of them frees the oldest, and the other the newest but one.
                let place = if rank == 0 { 0 } else { held.len() - 2 };
                cluster.free(&held.remove(place).unwrap()).unwrap();
            }
        }
        drop(peers);
        ids
    });
    assert_eq!(ids[0], ids[1]);
    let different: BTreeSet<_> = ids[0].iter().collect();
    assert!(different.len() < count);
}

/// Connects a rank to the others, and resets the card of its number in one exchange: when all cards are ready for the nonces.
struct Resetting {
    peers: Thread,
    fabric: Fabric,
    /// Exchanges until then.
    left: u32,
}

impl fmt::Debug for Resetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resetting").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl Peers for Resetting {
    fn rank(&self) -> u32 {
        self.peers.rank()
    }

    fn size(&self) -> u32 {
        self.peers.size()
    }

    fn allgather(&mut self, data: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, PeersError> {
        let all = self.peers.allgather(data, timeout);
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            self.fabric.plant(Fault::Reset { node: self.rank(), when: When::Now });
        }
        all
    }

    fn raise(&mut self) {
        self.peers.raise();
    }

    fn raised(&mut self) -> Option<u32> {
        self.peers.raised()
    }
}

/// Members send each other numbers between addresses that the cards allow.
#[test]
fn cards_with_coarse_addresses_are_registered() {
    let fabric = fabric(2);
    let _clock = fabric.start_clock();
    threads::ranks(2, |peers| {
        let values = [(BLOCK + u64::from(sequencer::ADDRESS_ALIGN), 128)];
        let card = altered(fabric.endpoint(peers.rank()), 0, &values);
        let function = in_process::attach(card, &domain(), "a card").unwrap();
        let cards = Card::open(function).map(|card| vec![card]);
        let cluster = Cluster::join(cards, Box::new(peers), &[]).unwrap();
        assert_eq!(cluster.capabilities().address_align, 128);
    });
}

#[test]
fn a_card_that_fails_while_it_is_registered_is_named_by_all() {
    let fabric = Fabric::new(Profile::optweb(3)).unwrap();
    let _clock = fabric.start_clock();
    let errors = threads::ranks(3, |peers| {
        let rank = peers.rank();
        let cards = threads::card(&fabric, rank).map(|card| vec![card]);
        let peers: Box<dyn Peers> = match rank {
            1 => Box::new(Resetting { peers, fabric: fabric.clone(), left: 2 }),
            _ => Box::new(peers),
        };
        (rank, Cluster::join(cards, peers, &[]).unwrap_err())
    });
    for (rank, error) in errors {
        match error {
            Error::Peer { rank: 1, .. } if rank != 1 => {}
            Error::NotRunning { .. } if rank == 1 => {}
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

/// The first of a rank's cards is reset in the round, and cannot be written to after it.
#[test]
fn the_memory_of_the_other_cards_is_put_back_if_one_fails() {
    let fabric = fabric(3);
    let _clock = fabric.start_clock();
    threads::ranks(2, |peers| {
        let nodes: &[u32] = if peers.rank() == 0 { &[0, 1] } else { &[2] };
        let cards = nodes.iter().map(|node| threads::card(&fabric, *node).unwrap()).collect();
        let mut cluster = Cluster::of(cards).unwrap();
        let pattern: Vec<u8> = (0..1024).map(|byte| byte as u8).collect();
        let address = cluster.capabilities().memory_bytes - pattern.len() as u64;
        let last = nodes.len() - 1;
        cluster.card_mut(last).write_memory(address, &pattern).unwrap();
        let peers: Box<dyn Peers> = match peers.rank() {
            // What the ranks state, which id is free, and that the communicator is defined come before.
            0 => Box::new(Resetting { peers, fabric: fabric.clone(), left: 4 }),
            _ => Box::new(peers),
        };
        cluster.register(peers, &[]).unwrap_err();
        let mut found = vec![0; pattern.len()];
        cluster.card_mut(last).read_memory(address, &mut found).unwrap();
        assert!(found == pattern, "{nodes:?}");
    });
}
