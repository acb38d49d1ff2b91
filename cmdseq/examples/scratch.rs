//! Scratch.
use cmdseq::plan::*;
use cmdseq::*;
#[path = "../tests/cards/mod.rs"]
mod cards;
fn main() {
    for (name, mut c) in [("4", cards::connected(4)),("8", cards::connected(8)), ("16", cards::connected(16)), ("4x4", cards::dragonfly(4,4)), ("8x8", cards::dragonfly(8,8)), ("22x44", cards::dragonfly(22,44))] {
        c.lanes = 8;
        for (collective, bytes) in [(Collective::Send, 64<<20),(Collective::Broadcast, 64<<20),(Collective::Reduce,64<<20),(Collective::Allreduce,64<<20),(Collective::Scan,64<<20),(Collective::Scatter,4<<20),(Collective::Gather,4<<20),(Collective::Alltoall,4<<20),(Collective::Allgather,4<<20),(Collective::ReduceScatter,4<<20),(Collective::Allreduce,16<<10)] {
            if name == "22x44" && !matches!(collective, Collective::Broadcast | Collective::Allreduce | Collective::Alltoall) { continue }
            if name == "22x44" && std::env::var("BIG").is_err() { continue }
            let combine = collective.reduces().then_some(Combine::new(Reduction::Sum, Element::F32));
            let mut request = Request { combine, ..Request::new(collective, (0..c.nodes).collect(), bytes) };
            if collective == Collective::Send { request.peer = c.nodes - 1; }
            let begin = std::time::Instant::now();
            match plan(&request, &c) {
                Ok(plan) => {
                    let took = begin.elapsed();
                    let bound = request.lower_bound(&c).unwrap().total_ps();
                    println!("{name} {collective} {bytes} {} {:.3} in {:?}, {} instructions", plan.algorithm, plan.predicted.arrival_ps as f64 / bound as f64, took, plan.programs[0].instructions.len());
                }
                Err(e) => println!("{name} {collective} {e}"),
            }
        }
    }
}
