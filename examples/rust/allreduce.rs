//! An allreduce on all cards of a selector: sum of 1024 floats of each rank.
//! Run: `cargo run -p fpga-collective --example allreduce -- mock:optweb:8`.

use std::time::Duration;

use fpga_collective::{Cards, Request};

const COUNT: usize = 1024;

// Not private, for the test that runs it.
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let selector = std::env::args().nth(1).filter(|word| word.contains(':'));
    let mut cards = Cards::open(selector.as_deref().unwrap_or("mock:optweb:4"))?;
    let ranks = cards.count();

    // Planned once, stored on the cards, launched as often as you like.
    let bytes = (COUNT * size_of::<f32>()) as u64;
    let reduction = Some("sum");
    let sum = cards.plan(&Request {
        operation: "allreduce",
        reduction,
        element: Some("f32"),
        bytes,
        ..Request::default()
    })?;
    let plan = cards.describe(sum)?;
    println!("{} of {ranks} cards by {}, predicted {:.3} us", plan.operation, plan.algorithm, plan.predicted_us);

    for rank in 0..ranks {
        let input: Vec<u8> = (0..COUNT).flat_map(|i| (rank as f32 + i as f32).to_le_bytes()).collect();
        cards.write_input(sum, rank, 0, &input)?;
    }
    cards.launch(sum)?;
    // This thread may do other work here: the cards go on by themselves.
    let times = cards.wait(sum, Duration::from_secs(10))?;

    let mut output = vec![0; COUNT * size_of::<f32>()];
    for rank in 0..ranks {
        cards.read_output(sum, rank, 0, &mut output)?;
        for (i, sum) in output.as_chunks().0.iter().enumerate() {
            let expected = (ranks * (ranks - 1) / 2) as f32 + (ranks as usize * i) as f32;
            if f32::from_le_bytes(*sum) != expected {
                return Err(format!("rank {rank}: element {i} is not {expected}").into());
            }
        }
    }
    println!("all {COUNT} sums are right; the last byte arrived after {:.3} us", times.arrival_us);
    Ok(())
}
