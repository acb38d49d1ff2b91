//! What an allreduce of 1 KiB on four mock cards costs the host, with its data: `allreduce_loop COUNT` prints the median in ns.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use fpga_collective::{Cards, CollectiveId, Request, Result};

const BYTES: usize = 1024;
const RANKS: usize = 4;

fn allreduce(cards: &mut Cards, id: CollectiveId, input: &[u8], output: &mut [u8]) -> Result<()> {
    for (rank, data) in input.chunks(BYTES).enumerate() {
        cards.write_input(id, rank as u32, 0, data)?;
    }
    cards.launch(id)?;
    cards.wait(id, Duration::from_secs(10))?;
    for (rank, data) in output.chunks_mut(BYTES).enumerate() {
        cards.read_output(id, rank as u32, 0, data)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let count: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2000);
    let mut cards = Cards::open("mock:optweb:4")?;
    let id = cards.plan(&Request {
        operation: "allreduce",
        reduction: Some("sum"),
        element: Some("f32"),
        bytes: BYTES as u64,
        ..Request::default()
    })?;
    let input = 1f32.to_le_bytes().repeat(RANKS * BYTES / 4);
    let mut output = vec![0; input.len()];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        allreduce(&mut cards, id, &input, &mut output)?;
        times.push(began.elapsed().as_nanos());
    }
    assert!(output == 4f32.to_le_bytes().repeat(RANKS * BYTES / 4), "the result is wrong");
    times.sort_unstable();
    println!("{}", times[count / 2]);
    Ok(())
}
