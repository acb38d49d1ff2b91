//! Communicators on cards: created, split, duplicated, freed and used in any order, against a plain model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cmdseq::plan::{self, Collective, Request, plan};
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Bound, Choice, Cluster, Communicator, Error, Execution, Submission};
use fpga_mock::Profile;
use fpga_tests::dice::{Dice, seed};
use fpga_tests::run::open;
use fpga_tests::sweep::is_full;

const SECONDS: Duration = Duration::from_secs(5);
const NODES: u32 = 8;
/// Entries of a card's table, of which 0 is the world's.
pub(crate) const ENTRIES: u16 = 32;
/// Ids of an entry.
const GENERATIONS: usize = 256;

/// How `node` ends one instruction.
fn status(cluster: &mut Cluster, node: u32, instruction: impl Submission) -> Status {
    let queue = cluster.card_mut(node as usize).queue_mut();
    let token = queue.submit(instruction).unwrap();
    queue.wait(&token, SECONDS).unwrap().status
}

/// Has all `members` gather what each has, on communicator `id`, and looks at what comes out at every one of them.
pub(crate) fn gathers(cluster: &mut Cluster, id: u16, members: &[u32], seed: u64) {
    const HERE: u64 = 0;
    const THERE: u64 = 1 << 20;
    let value = |rank: usize| seed.wrapping_mul(rank as u64 * 2 + 1);
    let gather = Instruction::allgather(Operand::card(HERE), Operand::card(THERE), 8).on(id);
    let mut tokens = Vec::new();
    for (rank, node) in members.iter().enumerate() {
        let queue = cluster.card_mut(*node as usize).queue_mut();
        for instruction in [Instruction::fill(Operand::card(HERE), 8, value(rank)), gather] {
            tokens.push((*node, queue.submit(instruction).unwrap()));
        }
    }
    for (node, token) in tokens {
        cluster.card_mut(node as usize).wait(&token, SECONDS).unwrap();
    }
    let expected: Vec<u8> = (0..members.len()).flat_map(|rank| value(rank).to_le_bytes()).collect();
    for node in members {
        let mut found = vec![0; expected.len()];
        cluster.card_mut(*node as usize).read_memory(THERE, &mut found).unwrap();
        assert_eq!(found, expected, "communicator {id} of {members:?} at node {node}");
    }
}

/// What is known without looking at any table.
#[derive(Default)]
struct Model {
    live: Vec<(Communicator, Vec<u32>)>,
    /// By node and entry, the id that is live there.
    tables: BTreeMap<(u32, u16), u16>,
    /// By node, the ids that someone was told since the reset of its card.
    told: BTreeMap<u32, BTreeSet<u16>>,
    freed: Vec<(Communicator, Vec<u32>)>,
    /// What was done, by name.
    counts: BTreeMap<&'static str, u64>,
}

impl Model {
    fn is_full(&self, nodes: &[u32]) -> bool {
        (1..ENTRIES).all(|entry| nodes.iter().any(|node| self.tables.contains_key(&(*node, entry))))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Whether every id of each entry that is free on `nodes` was told to one of them.
    fn is_spent(&self, nodes: &[u32]) -> bool {
        let told: BTreeSet<u16> = nodes.iter().filter_map(|node| self.told.get(node)).flatten().copied().collect();
        let is_free = |entry: &u16| nodes.iter().all(|node| !self.tables.contains_key(&(*node, *entry)));
        (1..ENTRIES)
            .filter(is_free)
            .all(|entry| told.iter().filter(|id| **id % ENTRIES == entry).count() == GENERATIONS)
    }

    /// `made` came out, and should have had `members`.
    fn add(&mut self, made: Communicator, members: Vec<u32>) {
        assert_eq!(made.members(), members);
        let (id, entry) = (made.id(), made.id() % ENTRIES);
        assert_ne!(entry, 0);
        for node in &members {
            assert_eq!(self.tables.insert((*node, entry), id), None, "entry {entry} of node {node} is given out twice");
            assert!(self.told.entry(*node).or_default().insert(id), "id {id} comes again at node {node}");
        }
        self.live.push((made, members));
    }

    fn remove(&mut self, place: usize) {
        let (communicator, members) = self.live.swap_remove(place);
        for node in &members {
            assert_eq!(self.tables.remove(&(*node, communicator.id() % ENTRIES)), Some(communicator.id()));
        }
        self.freed.push((communicator, members));
        if self.freed.len() > 64 {
            self.freed.remove(0);
        }
    }
}

struct Walk {
    cluster: Cluster,
    world: Communicator,
    model: Model,
    random: Dice,
}

impl Walk {
    /// A communicator that is live, or the world.
    fn any(&mut self) -> (Communicator, Vec<u32>) {
        match self.random.below(4) {
            0 => (self.world.clone(), (0..NODES).collect()),
            _ => match self.random.pick(&self.model.live) {
                Some((communicator, members)) => (communicator.clone(), members.clone()),
                None => (self.world.clone(), (0..NODES).collect()),
            },
        }
    }

    /// Takes what was made of `members`, or that nothing could be.
    fn made(&mut self, made: Result<Communicator, Error>, members: Vec<u32>) {
        match made {
            Ok(made) => {
                assert!(!self.model.is_full(&members));
                self.model.add(made, members);
            }
            Err(Error::TableFull { limit: 32, .. }) => {
                assert!(self.model.is_full(&members), "there is room for {members:?}");
                self.model.count("full");
            }
            Err(Error::IdsSpent { .. }) => {
                assert!(!self.model.is_full(&members) && self.model.is_spent(&members), "{members:?}");
                self.model.count("spent");
                if self.random.below(8) == 0 {
                    (0..NODES).for_each(|node| self.reset_card(node));
                }
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn create(&mut self) {
        let (parent, nodes) = self.any();
        let ranks = self.random.some(nodes.len() as u32);
        let members = ranks.iter().map(|rank| nodes[*rank as usize]).collect();
        let made = self.cluster.create(&parent, &ranks);
        self.made(made, members);
    }

    fn duplicate(&mut self) {
        let (of, members) = self.any();
        let made = self.cluster.duplicate(&of);
        self.made(made, members);
    }

    fn split(&mut self) {
        let (parent, nodes) = self.any();
        let random = &mut self.random;
        let choices: Vec<Option<Choice>> = nodes
            .iter()
            .map(|_| (random.below(4), random.below(5)))
            .map(|(colour, key)| (colour < 3).then_some(Choice { colour: colour as u32 * 7, key: key as i32 - 2 }))
            .collect();
        // Colour by colour, sorted by key and, of equal ones, by rank.
        let mut groups: BTreeMap<u32, BTreeSet<(i32, usize)>> = BTreeMap::new();
        for (rank, choice) in choices.iter().enumerate() {
            choice.iter().for_each(|choice| {
                groups.entry(choice.colour).or_default().insert((choice.key, rank));
            });
        }
        let nodes_of = |ranks: &BTreeSet<(i32, usize)>| ranks.iter().map(|(_, rank)| nodes[*rank]).collect::<Vec<_>>();
        let together: Vec<u32> = groups.values().flat_map(nodes_of).collect();
        match self.cluster.split(&parent, &choices) {
            Ok(made) => {
                assert_eq!(made.len(), nodes.len());
                assert!(made.iter().zip(&choices).all(|(made, choice)| made.is_some() == choice.is_some()));
                assert!(together.is_empty() || !self.model.is_full(&together));
                let ids: BTreeSet<u16> = made.iter().flatten().map(Communicator::id).collect();
                assert_eq!(ids.len(), usize::from(!groups.is_empty()), "all colours have one id");
                for ranks in groups.values() {
                    let mut handles = ranks.iter().map(|(_, rank)| made[*rank].clone().unwrap());
                    let first = handles.next().unwrap();
                    assert!(handles.all(|other| other.members() == first.members()));
                    self.model.add(first, nodes_of(ranks));
                }
            }
            Err(Error::TableFull { .. }) => {
                assert!(self.model.is_full(&together));
                self.model.count("full");
            }
            Err(Error::IdsSpent { .. }) => {
                assert!(!self.model.is_full(&together) && self.model.is_spent(&together), "{together:?}");
                self.model.count("spent");
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn free(&mut self) {
        if self.model.live.is_empty() {
            return;
        }
        let place = self.random.below(self.model.live.len() as u64) as usize;
        self.cluster.free(&self.model.live[place].0).unwrap();
        self.model.remove(place);
    }

    fn exchange(&mut self) {
        let (communicator, members) = self.any();
        let seed = self.random.roll();
        gathers(&mut self.cluster, communicator.id(), &members, seed);
    }

    /// A handle that was freed, and words that name its id all the same.
    fn stale(&mut self) {
        let Some((handle, members)) = self.random.pick(&self.model.freed).cloned() else { return };
        for outcome in [
            self.cluster.duplicate(&handle).map(drop),
            self.cluster.create(&handle, &[0]).map(drop),
            self.cluster.split(&handle, &[]).map(drop),
            self.cluster.free(&handle),
            self.cluster.restore(&handle),
        ] {
            assert!(matches!(outcome, Err(Error::Stale { what: "communicator" })), "{outcome:?}");
        }
        let Some(node) = self.random.pick(&members).copied() else { return };
        let id = handle.id();
        let is_told = self.model.told.get(&node).is_some_and(|told| told.contains(&id));
        // After a reset it may be another's, and before it is no one's.
        if !is_told || self.model.tables.get(&(node, id % ENTRIES)) == Some(&id) {
            return;
        }
        for word in [
            Instruction::barrier().on(id),
            Instruction::send(0, Operand::card(0), 8).on(id),
            Instruction::rdma_read(0, Operand::card(0), Operand::card(64), 8).on(id),
            Instruction::free(id),
        ] {
            assert_eq!(status(&mut self.cluster, node, word), Status::BadCommunicator, "{word:?} at node {node}");
        }
    }

    /// Words that the host would not make: a definition where another one is, ids there cannot be, an end of the world.
    fn forged(&mut self) {
        let (communicator, members) = self.any();
        let (id, node) = (communicator.id(), members[0]);
        let card = self.cluster.card_mut(node as usize);
        let buffer = card.allocate(4).unwrap();
        let other = (node + 1) % NODES;
        buffer.write(0, &[node as u8, 0, other as u8, 0]).unwrap();
        let group = |id| Bound::from(Instruction::group(id, buffer.iova().0, 2)).holding(buffer.clone());
        let later = id.wrapping_add(ENTRIES * (1 + self.random.below(2047) as u16));
        if members != [node, other] {
            assert_eq!(status(&mut self.cluster, node, group(id)), Status::BadCommunicator, "{id} at node {node}");
        }
        let frees = [later, 0].map(|id| Bound::from(Instruction::free(id)));
        for word in [later, 8192, 0].map(group).into_iter().chain(frees) {
            let text = format!("{:?} beside {id}", word.instruction());
            assert_eq!(status(&mut self.cluster, node, word), Status::BadCommunicator, "{text}");
        }
        // Nothing of that has changed anything.
        gathers(&mut self.cluster, id, &members, u64::from(later));
    }

    /// A plan for a group that nobody holds, perhaps.
    fn planned(&mut self) {
        let group = match self.random.below(3) {
            0 => self.any().1,
            _ => self.random.some(NODES),
        };
        let is_held = self.model.live.iter().any(|(_, members)| *members == group);
        let needs_none = group.len() < 2 || group.iter().copied().eq(0..NODES);
        let request = Request { group: group.clone(), ..request(Collective::Broadcast) };
        let plan = plan(&request, self.cluster.capabilities()).unwrap();
        let data: Vec<u8> = (0..8).map(|_| self.random.roll() as u8).collect();
        self.cluster.write_input(&plan.set, 0, 0, &data).unwrap();
        match self.cluster.execute(&plan.set, &Execution::default()) {
            Ok(_) => {
                for rank in 0..group.len() as u32 {
                    let mut found = [0; 8];
                    self.cluster.read_output(&plan.set, rank, 0, &mut found).unwrap();
                    assert_eq!(found, *data, "broadcast to rank {rank} of {group:?}");
                }
            }
            Err(Error::TableFull { .. }) => {
                assert!(self.model.is_full(&group) && !is_held && !needs_none, "{group:?}");
                self.model.count("full for a plan");
            }
            Err(Error::IdsSpent { .. }) => {
                assert!(self.model.is_spent(&group) && !is_held && !needs_none, "{group:?}");
                self.model.count("spent for a plan");
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// A card forgets everything; what it was a member of is there again when asked for.
    fn reset(&mut self) {
        let node = self.random.below(NODES.into()) as u32;
        self.reset_card(node);
    }

    fn reset_card(&mut self, node: u32) {
        self.cluster.card_mut(node as usize).reset().unwrap();
        self.model.told.remove(&node);
        for (communicator, members) in self.model.live.clone() {
            if members.contains(&node) {
                self.model.told.entry(node).or_default().insert(communicator.id());
                let barrier = Instruction::barrier().on(communicator.id());
                assert_eq!(status(&mut self.cluster, node, barrier), Status::BadCommunicator);
                self.cluster.restore(&communicator).unwrap();
            }
        }
    }

    fn step(&mut self) {
        let (name, what): (_, fn(&mut Walk)) = match self.random.below(1000) {
            0..250 => ("create", Walk::create),
            250..350 => ("duplicate", Walk::duplicate),
            350..450 => ("split", Walk::split),
            450..720 => ("free", Walk::free),
            720..860 => ("exchange", Walk::exchange),
            860..930 => ("stale", Walk::stale),
            930..970 => ("forged", Walk::forged),
            970..998 => ("plan", Walk::planned),
            // Seldom, so that many ids are given between two.
            _ if self.random.below(8) > 0 => return,
            _ => ("reset", Walk::reset),
        };
        self.model.count(name);
        what(self);
    }
}

fn request(collective: Collective) -> Request {
    Request::new(collective, Vec::new(), 8)
}

#[test]
fn any_sequence_does_what_a_plain_model_says() {
    let (walks, steps) = if is_full() { (4, 100_000) } else { (1, 40_000) };
    (0..walks).for_each(|index| walk(seed() + index, steps));
}

fn walk(seed: u64, steps: u32) {
    let (_fabric, cluster) = open(Profile::optweb(NODES));
    let world = cluster.world();
    let mut walk = Walk { cluster, world, model: Model::default(), random: Dice(seed) };
    for _ in 0..steps {
        walk.step();
    }
    println!("seed {seed}, {steps} steps: {:?}", walk.model.counts);
    assert!(walk.model.counts["full"] > 0 && walk.model.counts["full for a plan"] > 0, "the table was never full");
    while !walk.model.live.is_empty() {
        walk.free();
    }
    // All that was given out has come back.
    (0..walk.cluster.cards().len()).for_each(|place| walk.cluster.card_mut(place).reset().unwrap());
    let all: Vec<_> = (1..ENTRIES).map(|_| walk.cluster.duplicate(&walk.world).unwrap()).collect();
    assert!(matches!(walk.cluster.duplicate(&walk.world), Err(Error::TableFull { cards: 8, limit: 32 })));
    for (number, one) in (0..).zip(&all) {
        gathers(&mut walk.cluster, one.id(), &(0..NODES).collect::<Vec<_>>(), number);
    }
}

#[test]
fn no_id_is_given_twice_before_a_reset() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let world = cluster.world();
    assert_eq!((world.id(), world.size()), (0, 2));
    let turned = Request { group: vec![1, 0], bytes: 0, ..request(Collective::Barrier) };
    let turned = plan(&turned, cluster.capabilities()).unwrap();
    let held = cluster.duplicate(&world).unwrap();
    let mut ids = BTreeSet::from([held.id()]);
    let mut next = || {
        let one = cluster.duplicate(&world)?;
        cluster.free(&one).unwrap();
        assert_eq!(status(&mut cluster, 0, Instruction::barrier().on(one.id())), Status::BadCommunicator);
        assert!(ids.insert(one.id()), "id {} comes again", one.id());
        Ok(ids.len())
    };
    let error = loop {
        match next() {
            Ok(count) => assert!(count <= usize::from(ENTRIES - 1) * GENERATIONS),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::IdsSpent { cards: 2 }), "{error}");
    // The entry of the one that is held has ids left, and no room.
    assert_eq!(ids.len(), usize::from(ENTRIES - 2) * GENERATIONS + 1);
    assert!(matches!(cluster.execute(&turned.set, &Execution::default()), Err(Error::IdsSpent { .. })));
    gathers(&mut cluster, held.id(), &[0, 1], 3);

    cluster.card_mut(0).reset().unwrap();
    cluster.restore(&held).unwrap();
    assert!(matches!(cluster.duplicate(&world), Err(Error::IdsSpent { .. })), "one card has had them all");
    let alone = cluster.create(&world, &[0]).unwrap();
    cluster.card_mut(1).reset().unwrap();
    cluster.restore(&held).unwrap();
    let both = cluster.duplicate(&world).unwrap();
    assert_eq!(BTreeSet::from([held.id(), alone.id(), both.id()]).len(), 3);
    gathers(&mut cluster, both.id(), &[0, 1], 4);
    cluster.execute(&turned.set, &Execution::default()).unwrap();
}

/// No one is told the ids of plans, so any number of plans can be run.
#[test]
fn plans_do_not_use_ids_up() {
    let (_fabric, mut cluster) = open(Profile::optweb(8));
    let mut random = Dice(seed());
    let groups: Vec<Vec<u32>> = (0..200).map(|_| random.some(NODES)).filter(|group| group.len() > 1).collect();
    let plans: Vec<_> = groups
        .iter()
        .map(|group| Request { group: group.clone(), bytes: 0, ..request(Collective::Barrier) })
        .map(|request| plan(&request, cluster.capabilities()).unwrap())
        .collect();
    for turn in 0..9000 {
        let plan = &plans[turn % plans.len()];
        drop(cluster.contexts(&plan.set.communicators).unwrap());
    }
    let world = cluster.world();
    cluster.duplicate(&world).unwrap();
}

#[test]
fn what_cannot_be_is_refused_by_the_host() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let world = cluster.world();
    let (_other_fabric, other) = open(Profile::optweb(4));
    assert!(matches!(cluster.duplicate(&other.world()), Err(Error::Stale { .. })), "a handle is of one cluster");
    for ranks in [&[][..], &[4], &[1, 1], &[0, 1, 2, 3, 0]] {
        assert!(matches!(cluster.create(&world, ranks), Err(Error::BadArgument { .. })), "{ranks:?}");
    }
    assert!(matches!(cluster.split(&world, &[None; 3]), Err(Error::BadArgument { .. })));
    assert!(matches!(cluster.free(&world), Err(Error::BadArgument { .. })));
    for (id, members) in [(0, &[0, 1][..]), (32, &[0, 1]), (8193, &[0, 1]), (1, &[]), (1, &[0, 0]), (1, &[0, 4])] {
        let refused = cluster.define(&plan::Communicator { id, members: members.to_vec() });
        assert!(matches!(refused, Err(Error::BadArgument { .. })), "{id} of {members:?}");
    }
    // None of that has reached a card.
    assert!(cluster.cards().iter().all(|card| card.retired().unwrap() == 0));
}

#[test]
fn ids_that_a_program_names_replace_one_another_and_nothing_that_is_held() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let world = cluster.world();
    let held = cluster.create(&world, &[3, 1]).unwrap();
    assert_eq!(held.id(), 1);
    let named = |id, members: &[u32]| plan::Communicator { id, members: members.to_vec() };
    assert!(matches!(cluster.define(&named(1, &[1, 2])), Err(Error::BadArgument { .. })));
    cluster.define(&named(1, &[0, 2])).unwrap();
    gathers(&mut cluster, 1, &[3, 1], 5);
    gathers(&mut cluster, 1, &[0, 2], 6);
    let before: Vec<u64> = cluster.cards().iter().map(|card| card.retired().unwrap()).collect();
    cluster.define(&named(1, &[0, 2])).unwrap();
    let after: Vec<u64> = cluster.cards().iter().map(|card| card.retired().unwrap()).collect();
    assert_eq!(before, after, "what is defined is not defined again");
    cluster.define(&named(1, &[2, 0])).unwrap();
    gathers(&mut cluster, 1, &[2, 0], 7);
    cluster.define(&named(1, &[2])).unwrap();
    assert_eq!(status(&mut cluster, 0, Instruction::barrier().on(1)), Status::BadCommunicator);
    // Card 0 has had an id of that entry, and none of the next.
    let next = cluster.create(&world, &[0]).unwrap();
    assert_eq!(next.id(), 2);
}

/// An entry holds one id, of whatever generation: the one that was defined last is freed before the next.
#[test]
fn an_id_that_a_run_defines_makes_room_for_the_clusters() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let world = cluster.world();
    let (members, next) = (vec![3, 1], 1 + ENTRIES);
    let held = cluster.create(&world, &members).unwrap();
    assert_eq!(held.id(), 1);
    let program = |node: u32| {
        let table = cluster.cards()[node as usize].allocate(4).unwrap();
        table.write(0, &[3, 0, 1, 0]).unwrap();
        let group = Bound::from(Instruction::group(next, table.iova().0, 2)).holding(table);
        vec![Instruction::free(1).into(), group, Instruction::barrier().on(next).into()]
    };
    let programs: Vec<Vec<Bound>> = members.iter().map(|node| program(*node)).collect();
    cluster.run(&members, &programs, SECONDS).unwrap().result.unwrap();
    let barrier = Request::new(Collective::Barrier, members.clone(), 0);
    let barrier = plan(&barrier, cluster.capabilities()).unwrap();
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    gathers(&mut cluster, held.id(), &members, 5);
    assert_eq!(status(&mut cluster, 1, Instruction::barrier().on(next)), Status::BadCommunicator);
}

/// What a program frees is its own: neither what another id of the plan names nor what is held, though the members are the
/// same. The next plan defines anew.
#[test]
fn what_a_program_frees_is_its_own() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let world = cluster.world();
    let members = vec![3, 1];
    let held = cluster.create(&world, &members).unwrap();
    let group: Vec<u32> = (0..4).collect();
    let barrier = Request::new(Collective::Barrier, group.clone(), 0);
    let mut plan = plan(&barrier, cluster.capabilities()).unwrap();
    plan.set.communicators = [1, 2].map(|id| plan::Communicator { id, members: members.clone() }).into();
    for (node, program) in plan.set.programs.iter_mut().enumerate() {
        program.instructions = match members.contains(&(node as u32)) {
            true => vec![Instruction::barrier().on(1), Instruction::free(1), Instruction::barrier().on(2)],
            false => Vec::new(),
        };
    }
    cmdseq::verify(&plan.set, cluster.capabilities()).unwrap();
    for _ in 0..3 {
        cluster.execute(&plan.set, &Execution::default()).unwrap();
        gathers(&mut cluster, held.id(), &members, 5);
    }
    // Nothing of it is left behind.
    let all: Vec<_> = (2..ENTRIES).map(|_| cluster.duplicate(&world).unwrap()).collect();
    assert!(matches!(cluster.duplicate(&world), Err(Error::TableFull { .. })));
    all.iter().for_each(|one| gathers(&mut cluster, one.id(), &[0, 1, 2, 3], one.id().into()));
}

#[test]
fn plans_use_what_is_held_and_leave_what_they_define() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let world = cluster.world();
    let group = vec![2, 0, 3];
    let barrier = Request { group: group.clone(), bytes: 0, ..request(Collective::Barrier) };
    let barrier = plan(&barrier, cluster.capabilities()).unwrap();
    let retired = |cluster: &Cluster| cluster.cards()[0].retired().unwrap();
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    let first = retired(&cluster);
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    assert_eq!((first, retired(&cluster)), (4, 7), "defined once, and then three barriers each time");

    // A full table has no place for a plan, but for one of a group that is held.
    let held = cluster.create(&world, &group).unwrap();
    let others: Vec<_> = (2..ENTRIES).map(|_| cluster.duplicate(&world).unwrap()).collect();
    assert!(matches!(cluster.duplicate(&world), Err(Error::TableFull { .. })));
    cluster.execute(&barrier.set, &Execution::default()).unwrap();
    let other = Request { group: vec![0, 3], bytes: 0, ..request(Collective::Barrier) };
    let other = plan(&other, cluster.capabilities()).unwrap();
    assert!(matches!(cluster.execute(&other.set, &Execution::default()), Err(Error::TableFull { cards: 2, .. })));

    // What a stored plan uses stays on the cards when its handle is freed, and no longer.
    let contexts = cluster.contexts(&barrier.set.communicators).unwrap();
    let id = contexts.id(0, barrier.set.communicators[0].id);
    assert_eq!(id, held.id());
    let words = contexts.translate(0, &barrier.set.programs[0].instructions);
    assert!(words.iter().all(|word| word.communicator == id));
    cluster.free(&held).unwrap();
    assert!(matches!(cluster.free(&held), Err(Error::Stale { .. })));
    gathers(&mut cluster, id, &group, 9);
    assert!(matches!(cluster.duplicate(&world), Err(Error::TableFull { .. })), "it is in use");
    drop(contexts);
    let last = cluster.duplicate(&world).unwrap();
    assert_eq!(last.id() % ENTRIES, id % ENTRIES);
    assert_eq!(status(&mut cluster, 0, Instruction::barrier().on(id)), Status::BadCommunicator);
    for one in others {
        gathers(&mut cluster, one.id(), &[0, 1, 2, 3], one.id().into());
    }
}
