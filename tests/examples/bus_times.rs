//! Prints round trips and doorbell-to-interrupt times of buses side by side: `bus_times SELECTOR…`, mock cards only. Without
//! a selector it compares in-process cards with the same cards on vfio-user sockets.
#![forbid(unsafe_code)]

use std::error::Error;

use fpga_hal::vfio_user::Server;
use fpga_select::{Selector, select};
use fpga_tests::bus_times::{heading, measure};

const RUNS: usize = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let selectors: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", heading());
    for selector in &selectors {
        line(selector)?;
    }
    if selectors.is_empty() {
        line("mock:optweb:2")?;
        let (fabric, cards) = Selector::parse("mock:optweb:2")?.fabric()?;
        let _clock = fabric.start_clock();
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("0.sock");
        let (_, card) = cards.into_iter().next().ok_or("no card")?;
        let _server = Server::bind(&socket, card)?.spawn()?;
        line(&format!("vfio-user:{}", socket.display()))?;
    }
    Ok(())
}

fn line(selector: &str) -> Result<(), Box<dyn Error>> {
    let selection = select(selector)?;
    let function = selection.functions.first().ok_or("no card")?;
    let name = selection.kind.name();
    println!("{:<12}{}", name, measure(function, RUNS));
    Ok(())
}
