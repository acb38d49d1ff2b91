//! Commands that several processes run together, each a rank with a card of its own: how they meet, and end alike.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use cmdseq::text::printable;
use fpga_driver::{Card, Cluster, Peers, PeersError};
use fpga_select::Selector;

use crate::cards::{self, Cards};
use crate::cli::{Cli, Processes};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{self, Interrupt};
use crate::meeting::meet;
use crate::meeting::part::Part;

/// Time limit of an exchange outside of what cards run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest message of another rank that is printed.
const MESSAGE_MAX: usize = 4096;

/// Opens the cards that the command line selects: all of them, or that of this rank once all ranks have met. `terms`, options and
/// their values, must be the same on all ranks. If what was `prepared` before has failed on a rank, no rank opens a card.
pub(crate) fn open<T>(
    cli: &Cli,
    processes: &Processes,
    timeout: Duration,
    interrupt: &Interrupt,
    terms: &[(&str, String)],
    prepared: Result<T>,
) -> Result<(Cards, T)> {
    let (Some(rank), Some(of), Some(address)) = (processes.rank, processes.of, &processes.meet) else {
        let prepared = prepared?;
        return Ok((Cards::selected_within(cli, timeout)?, prepared));
    };
    if rank >= of {
        return Err(Failure::usage(format!("--rank {rank}: expected 0 to {}, because --of is {of}", of - 1)));
    }
    let part = Part { rank, of, address: address.clone(), timeout, stop: interrupt.flag() };
    let mut peers = interrupt.of(meet(&part).map_err(Failure::from))?;
    let prepared = agree_with(&mut *peers, interrupt, prepared)?;
    let (selector, kind, card) = interrupt.of(open_own(&mut *peers, cli, interrupt, timeout))?;
    let (name, node) = (card.name().to_owned(), card.node());
    let cluster = Cluster::join(Ok(vec![card]), peers, terms).map_err(|error| {
        let own = error.is_about(&name, node).then_some(rank);
        Failure::from(error).or_of_rank(own)
    });
    Ok((Cards::joined(cli, selector, kind, interrupt.of(cluster)?), prepared))
}

/// Opens the card of this rank, unless another rank has the same card, or could not open its own.
fn open_own(
    peers: &mut dyn Peers,
    cli: &Cli,
    interrupt: &Interrupt,
    timeout: Duration,
) -> Result<(String, fpga_select::Kind, Card)> {
    let selected = select_own(peers, cli);
    let rank = peers.rank();
    let identity = selected.as_ref().map_or(String::new(), |(_, own)| identity(own, rank));
    let (selector, own) = agree_with(peers, interrupt, selected)?;
    let identities = peers.allgather(identity.as_bytes(), PATIENCE)?;
    let mut ranks: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (rank, identity) in identities.iter().enumerate() {
        if let Some(other) = ranks.insert(identity, rank) {
            let name = printable(&String::from_utf8_lossy(identity));
            let name = name.split_once(' ').map_or(&*name, |(_, name)| name);
            let message =
                format!("rank {rank}: its card {name} is that of rank {other}: each rank needs a card of its own");
            return Err(Failure::refused(message).of_rank(rank as u32));
        }
    }
    let opened = interrupt::ending_at_once(|| {
        let limit = timeout.max(Duration::from_secs(1));
        let selection = own.open_cards(limit)?;
        let (kind, mut card) = (selection.kind, Card::open(cards::take_single(selection)?)?);
        card.set_timeout(limit);
        Ok((kind, card))
    });
    let (kind, card) = agree_with(peers, interrupt, opened)?;
    Ok((selector, kind, card))
}

/// Selects the card of this rank: the whole selector, and that of the card.
fn select_own(peers: &dyn Peers, cli: &Cli) -> Result<(String, Selector)> {
    let (rank, of) = (peers.rank() as usize, peers.size() as usize);
    let text = cards::selector(cli)?;
    let mut each = Selector::parse(&text)?.each();
    match each.len() {
        0 => Err(Failure::refused(format!(
            "--cards {text} selects mock cards of this process: serve them with `fpgactl mock serve`, and select their sockets"
        ))),
        1 => Ok((text, each.swap_remove(0))),
        cards if cards == of => Ok((text, each.swap_remove(rank))),
        cards => Err(Failure::refused(format!(
            "--cards selects {cards} cards: expected {of}, one for each rank, or this rank's"
        ))),
    }
}

/// Identifies the card of `rank` on all hosts: the kernel that runs, and the name of the card in it. A socket that is missing is no
/// other rank's: opening says that it is missing.
fn identity(card: &Selector, rank: u32) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    match card.sockets() {
        [path] => match path.canonicalize() {
            Ok(path) => format!("{boot} vfio-user:{}", path.display()),
            Err(_) => format!("{boot}/{rank} vfio-user:{}", path.display()),
        },
        _ => format!("{boot} {}", card.text()),
    }
}

/// Ends alike on all ranks: with `outcome` if all have succeeded, else with a failure on each. A rank that is interrupted here ends
/// with that.
pub(crate) fn agree<T>(cards: &mut Cards, interrupt: &Interrupt, outcome: Result<T>) -> Result<T> {
    agree_with(cards.cluster.peers(), interrupt, outcome)
}

fn agree_with<T>(peers: &mut dyn Peers, interrupt: &Interrupt, outcome: Result<T>) -> Result<T> {
    if peers.size() == 1 {
        return outcome;
    }
    interrupt.of(tell_all(peers, outcome))
}

fn tell_all<T>(peers: &mut dyn Peers, outcome: Result<T>) -> Result<T> {
    if outcome.as_ref().is_err_and(|failure| failure.exit() == Exit::Interrupted) {
        // The connection ends with the process, wherever the others are.
        return outcome;
    }
    let outcome = outcome.map_err(|failure| failure.of_job(peers.rank()).printable());
    let told = outcome.as_ref().err().map_or(Vec::new(), encode);
    if outcome.is_err() {
        peers.raise();
    }
    let all = match peers.allgather(&told, PATIENCE) {
        Ok(all) => all,
        Err(error) => return outcome.and(Err(error.into())),
    };
    let value = outcome?;
    match (0..).zip(&all).find(|(_, told)| !told.is_empty()) {
        None => Ok(value),
        Some((rank, told)) => Err(decode(rank, told)?),
    }
}

/// A failure for other ranks: the number of its kind, and its message.
fn encode(failure: &Failure) -> Vec<u8> {
    let message: String = failure.message().chars().take(MESSAGE_MAX / 4).collect();
    [&[failure.exit() as u8], message.as_bytes()].concat()
}

/// The failure of `rank`, as the other ranks have it.
fn decode(rank: u32, told: &[u8]) -> Result<Failure> {
    let malformed = || Failure::from(PeersError::Malformed { rank, what: "an outcome".to_owned() });
    let (number, message) = told.split_first().ok_or_else(malformed)?;
    let exit = Exit::of_number(*number).ok_or_else(malformed)?;
    let message = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_MAX).ok_or_else(malformed)?;
    Ok(Failure::new(exit, message).printable().of_rank(rank))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use clap::Parser as _;
    use cmdseq::text::is_harmful;

    use super::*;

    /// Two ranks, of which this one is interrupted while it waits for the other.
    #[derive(Debug)]
    struct Interrupted(std::sync::Arc<AtomicBool>);

    impl Peers for Interrupted {
        fn rank(&self) -> u32 {
            0
        }

        fn size(&self) -> u32 {
            2
        }

        fn allgather(&mut self, _: &[u8], _: Duration) -> std::result::Result<Vec<Vec<u8>>, PeersError> {
            self.0.store(true, Ordering::Relaxed);
            Err(PeersError::Gone { rank: 0, why: "it is told to end".to_owned() })
        }
    }

    #[test]
    fn a_rank_that_is_interrupted_while_it_waits_for_others_says_so() {
        for outcome in [Ok(()), Err(Failure::refused("no"))] {
            let interrupt = Interrupt::default();
            let ended = agree_with(&mut Interrupted(interrupt.flag()), &interrupt, outcome);
            assert_eq!(ended.unwrap_err().exit(), Exit::Interrupted);
        }
    }

    /// Two ranks that tell the same.
    #[derive(Debug)]
    struct Alike;

    impl Peers for Alike {
        fn rank(&self) -> u32 {
            0
        }

        fn size(&self) -> u32 {
            2
        }

        fn allgather(&mut self, data: &[u8], _: Duration) -> std::result::Result<Vec<Vec<u8>>, PeersError> {
            Ok(vec![data.to_vec(); 2])
        }
    }

    #[test]
    fn every_kind_of_failure_is_told() {
        let kinds = [
            Exit::Failed,
            Exit::Usage,
            Exit::Verification,
            Exit::NoCard,
            Exit::NoFile,
            Exit::Timeout,
            Exit::Gone,
            Exit::Refused,
            Exit::Interrupted,
        ];
        for exit in kinds {
            let told = encode(&Failure::new(exit, "why"));
            assert_eq!(decode(1, &told), Ok(Failure::new(exit, "why").of_rank(1)));
        }
        let unknown = (0..=u8::MAX).filter(|number| kinds.iter().all(|exit| *exit as u8 != *number));
        for number in unknown {
            let error = decode(1, &[number]).unwrap_err();
            assert_eq!(error.exit(), Exit::Failed, "{number}");
        }
    }

    /// The rank that fails prints what it tells the others.
    #[test]
    fn a_rank_that_fails_harms_no_terminal() {
        let selector = "vfio-user:/nowhere/\u{1b}[2J\u{202e}.sock";
        let cli = Cli::parse_from(["fpgactl", "list", "--cards", selector]);
        let opened = Selector::parse(selector).unwrap().open_cards(PATIENCE).err().unwrap();
        let failed = select_own(&Alike, &cli).and_then(|_| Err::<(), _>(Failure::from(opened)));
        let failure = agree_with(&mut Alike, &Interrupt::default(), failed).unwrap_err();
        let message = failure.message();
        assert!(!message.contains(is_harmful), "{message:?}");
        assert!(
            message.starts_with("rank 0: ") && message.contains("/nowhere/\u{fffd}[2J\u{fffd}.sock"),
            "{message:?}"
        );
        let told = decode(0, &encode(&failure)).unwrap();
        assert_eq!((told.message(), told.exit()), (message, failure.exit()));
    }

    /// Neither controls a terminal, nor changes the order of what it shows.
    #[test]
    fn what_other_ranks_tell_harms_no_terminal() {
        let told = encode(&Failure::refused("a\u{202e}b\u{1b}\nc"));
        assert_eq!(decode(1, &told).unwrap().message(), "a\u{fffd}b\u{fffd}\nc");

        let cli = Cli::parse_from(["fpgactl", "list", "--cards", "vfio-user:/nowhere/\u{2067}"]);
        let refused = open_own(&mut Alike, &cli, &Interrupt::default(), PATIENCE).err().unwrap();
        let card = "its card vfio-user:/nowhere/\u{fffd} is that of rank 0";
        assert!(refused.message().contains(card), "{}", refused.message());
    }
}
