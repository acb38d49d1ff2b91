//! Graphs of collectives: what is ordered, placed, verified and refused.

use super::cards::{connected, dragonfly};
use cmdseq::graph::{Buffer, Graph, GraphError, Schedule, Step};
use cmdseq::plan::{Algorithm, Collective, Program, Request, plan};
use cmdseq::ranges::Range;
use cmdseq::{Combine, Element, Operation, Reduction, verify};

fn request(collective: Collective, bytes: u64) -> Request {
    let combine = collective.reduces().then_some(Combine::new(Reduction::Sum, Element::F32));
    Request { combine, ..Request::new(collective, vec![0, 1, 2, 3], bytes) }
}

/// reduce_scatter of `x` to `part`, allgather of `part` to `y`, and a barrier.
fn chain() -> Graph {
    let mut graph = Graph::new(vec![0, 1, 2, 3]);
    graph.buffer(Buffer::new("x", 4096).of(Element::F32).rebindable());
    graph.buffer(Buffer::new("part", 1024).of(Element::F32));
    graph.buffer(Buffer::new("y", 4096).of(Element::F32).rebindable());
    graph.step(Step::new(request(Collective::ReduceScatter, 1024)).input("x").output("part"));
    graph.step(Step::new(request(Collective::Allgather, 1024)).input("part").output("y"));
    graph.step(Step::new(request(Collective::Barrier, 0)));
    graph
}

fn verified(schedule: &Schedule, nodes: u32) {
    verify(&schedule.bound(), &connected(nodes)).unwrap();
}

#[test]
fn buffers_lie_apart_and_steps_in_order() {
    let schedule = chain().schedule(&connected(4)).unwrap();
    verified(&schedule, 4);
    assert_eq!(schedule.steps.len(), 3);
    let operations = |program: &Program| program.instructions.iter().map(|one| one.operation).collect::<Vec<_>>();
    for program in &schedule.set.programs {
        let instructions = &program.instructions;
        assert_eq!(operations(program), [Operation::ReduceScatter, Operation::Allgather, Operation::Barrier]);
        assert_eq!((instructions[0].source.address, instructions[0].source.argument), (0, Some(0)));
        assert_eq!((instructions[1].destination.address, instructions[1].destination.argument), (0, Some(1)));
        assert_eq!(instructions[0].destination, instructions[1].source);
    }
    let addresses: Vec<u64> = schedule.buffers.iter().map(|placed| placed.address).collect();
    // A pseudo channel each: with four cards, halves of stripes are 256 MiB, and so are the channels.
    assert_eq!(addresses, [0, 256 << 20, 512 << 20]);
    assert_eq!(schedule.arguments(), [0, 512 << 20, 0]);
    assert_eq!((schedule.step_of(3, 1), schedule.step_of(3, 2), schedule.step_of(3, 3)), (Some(1), Some(2), None));
    assert!(schedule.predicted.t2_ps > schedule.steps.iter().map(|one| one.predicted.t2_ps).max().unwrap());
    assert_eq!(schedule.between.bytes, 0, "direct steps need nothing between");
    assert_eq!(chain().schedule(&connected(4)).unwrap(), schedule, "the same every time");
}

#[test]
fn a_buffer_is_bound_to_another_address_or_not_at_all() {
    let capabilities = connected(4);
    let mut schedule = chain().schedule(&capabilities).unwrap();
    let programs = schedule.set.programs.clone();
    schedule.rebind("x", 1 << 30, &capabilities).unwrap();
    assert_eq!((schedule.arguments()[0], &schedule.set.programs), (1 << 30, &programs));
    verified(&schedule, 4);
    let before = schedule.clone();
    let end = capabilities.memory_bytes;
    for (name, address) in [("x", (256 << 20) + 1000), ("x", (512 << 20) - 4000), ("y", end - 4095), ("y", u64::MAX)] {
        let refused = schedule.rebind(name, address, &capabilities).unwrap_err();
        assert!(matches!(refused, GraphError::BadAddress { .. }), "{refused}");
    }
    assert!(matches!(schedule.rebind("part", 0, &capabilities), Err(GraphError::NotBindable { .. })));
    assert_eq!(schedule, before);
}

#[test]
fn steps_of_subgroups_share_communicators_that_are_the_same() {
    let capabilities = connected(4);
    let mut graph = Graph::new(vec![3, 2, 1, 0]);
    graph.buffer(Buffer::new("a", 64)).buffer(Buffer::new("b", 64)).buffer(Buffer::new("c", 256));
    let on = |group: &[u32], collective| Step::new(Request::new(collective, group.to_vec(), 64));
    graph.step(on(&[0, 1], Collective::Broadcast).input("a").output("b"));
    graph.step(on(&[2, 3], Collective::Allgather).input("a").output("c"));
    graph.step(on(&[0, 1], Collective::Allgather).input("b").output("c"));
    graph.step(on(&[0, 1, 2, 3], Collective::Allgather).input("a").output("c"));
    let schedule = graph.schedule(&capabilities).unwrap();
    verified(&schedule, 4);
    let ids: Vec<u16> = schedule.set.communicators.iter().map(|one| one.id).collect();
    assert_eq!(ids, [1, 2], "the one of all cards is always there");
    let ids =
        |rank: usize| schedule.set.programs[rank].instructions.iter().map(|one| one.communicator).collect::<Vec<_>>();
    assert_eq!((ids(3), ids(0)), (vec![1, 1, 0], vec![2, 0]));
}

#[test]
fn a_dragonfly_takes_its_rows_and_columns_once() {
    let capabilities = dragonfly(2, 3);
    let mut graph = Graph::new((0..6).collect());
    graph.buffer(Buffer::new("a", 64)).buffer(Buffer::new("b", 64 * 6));
    let all =
        |collective| Request { algorithm: Some(Algorithm::TwoLevel), ..Request::new(collective, (0..6).collect(), 64) };
    for _ in 0..3 {
        graph.step(Step::new(all(Collective::Allgather)).input("a").output("b"));
    }
    graph.step(Step::new(all(Collective::Gather)).input("a").output("b"));
    let schedule = graph.schedule(&capabilities).unwrap();
    assert_eq!(schedule.set.communicators.len(), 5, "two rows and three columns");
    assert_eq!(schedule.between.bytes, 3 * 64, "the blocks of a row, on the way to the root");
}

#[test]
fn a_striped_buffer_goes_from_step_to_step() {
    let capabilities = connected(4);
    let mut graph = Graph::new(vec![0, 1, 2, 3]);
    graph.buffer(Buffer::new("a", 1 << 20)).buffer(Buffer::new("all", 1 << 20).striped());
    graph.buffer(Buffer::new("turned", 1 << 20).striped());
    graph.step(Step::new(request(Collective::Allgather, 1 << 20)).input("a").output("all"));
    graph.step(Step::new(request(Collective::Alltoall, 1 << 20)).input("all").output("turned"));
    let schedule = graph.schedule(&capabilities).unwrap();
    verified(&schedule, 4);
    let stripes = schedule.buffer("all").unwrap().pieces(4, &capabilities);
    assert_eq!(
        stripes.iter().map(|piece| piece.address).collect::<Vec<_>>(),
        [0, 1, 2, 3].map(|n| (256 << 20) + (n << 29))
    );
    let alone = Request { algorithm: Some(Algorithm::Direct), ..request(Collective::Alltoall, 1 << 20) };
    let alone = plan(&alone, &capabilities).unwrap();
    assert_eq!(schedule.steps[1].predicted.t2_ps, alone.predicted.t2_ps, "as fast as where the planner puts it");
}

#[test]
fn a_way_that_works_in_place_is_found() {
    let mut graph = Graph::new(vec![0, 1, 2, 3]);
    graph.buffer(Buffer::new("x", 4096));
    graph.step(Step::new(request(Collective::Allreduce, 4096)).input("x").output("x"));
    let schedule = graph.schedule(&connected(4)).unwrap();
    assert_ne!(schedule.steps[0].algorithm, Algorithm::Direct);
    assert!(schedule.between.bytes >= 1024);
}

#[test]
fn wrong_graphs_are_refused() {
    let refusal = |change: &dyn Fn(&mut Graph)| {
        let mut graph = chain();
        change(&mut graph);
        graph.schedule(&connected(4)).unwrap_err()
    };
    let add = |step: Step| {
        refusal(&move |graph| {
            graph.step(step.clone());
        })
    };
    let allgather = || Step::new(request(Collective::Allgather, 1024));
    assert_eq!(Graph::new(vec![0]).schedule(&connected(4)).unwrap_err(), GraphError::NoSteps);
    let of = |step, cause: &str| GraphError::Definition { step, cause: cause.to_owned() };
    assert_eq!(add(allgather().input("z").output("y")), of(Some(3), "step 3: unknown buffer \"z\""));
    assert_eq!(add(allgather().output("y")), of(Some(3), "step 3 has no buffer for its input of 1024 B"));
    assert_eq!(
        add(allgather().input("part").output("part")),
        of(Some(3), "step 3: its output of 4096 B exceeds buffer \"part\" of 1024 B")
    );
    let mut wrong = request(Collective::Allreduce, 1024);
    wrong.combine = Some(Combine::new(Reduction::Sum, Element::I32));
    assert_eq!(
        add(Step::new(wrong).input("part").output("y")),
        of(Some(3), "step 3: buffer \"part\" has elements of f32, expected i32")
    );
    let mut elsewhere = allgather().input("part").output("y");
    elsewhere.request.group = vec![0, 5];
    assert_eq!(add(elsewhere), of(Some(3), "step 3: node 5 is not in the graph's group"));
    assert_eq!(
        refusal(&|graph| {
            graph.buffer(Buffer::new("x", 1));
        }),
        of(None, "duplicate buffer \"x\"")
    );
    let buffers = |buffers: &'static [(&'static str, u64, Option<u64>)]| {
        refusal(&move |graph| {
            for (name, bytes, address) in buffers {
                let buffer = Buffer::new(*name, *bytes);
                graph.buffer(Buffer { address: *address, ..buffer });
            }
        })
    };
    assert!(matches!(
        buffers(&[("p", 64, Some(64)), ("q", 64, Some(127))]),
        GraphError::BadAddress { address: 127, .. }
    ));
    assert!(matches!(buffers(&[("p", 64, Some((8 << 30) - 63))]), GraphError::BadAddress { .. }));
    assert_eq!(buffers(&[("p", 9 << 30, None)]), of(None, "no memory left for buffer \"p\" of 9663676416 B"));
    let fourth = |graph: &mut Graph| {
        graph.buffer(Buffer::new("p", 1).rebindable()).buffer(Buffer::new("q", 1).rebindable());
    };
    assert_eq!(
        refusal(&fourth),
        of(None, "too many rebindable buffers: \"q\" is the fourth, a launch has three arguments")
    );
    let striped = |graph: &mut Graph| {
        graph.buffer(Buffer::new("p", 1).striped().rebindable());
    };
    assert_eq!(refusal(&striped), of(None, "striped buffer \"p\" cannot be rebindable"));
    let small = |graph: &mut Graph| {
        graph.within(Range { address: 0, bytes: 8191 });
    };
    assert!(refusal(&small).to_string().starts_with("no memory left for buffer "));
    let forced = Request { algorithm: Some(Algorithm::TwoLevel), ..request(Collective::Allgather, 1024) };
    let refused = add(Step::new(forced).input("part").output("y"));
    assert!(
        matches!(&refused, GraphError::Refused { step: 3, source, .. } if source.cause.contains("Dragonfly")),
        "{refused:?}"
    );
}
