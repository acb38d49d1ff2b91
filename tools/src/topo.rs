//! `fpgactl topo`: shows how the cards are linked.

use std::fmt::Write as _;

use cmdseq::Topology;
use fpga_select::{Part, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cards::{self, Cards};
use crate::cli::{Cli, Topo};
use crate::exit::{Failure, Result};
use crate::output;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    topology: &'static str,
    cards: u32,
    links_per_card: u32,
    extrapolated: bool,
    groups: Vec<Vec<u32>>,
    links: Vec<[u32; 2]>,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Sizes {
    schema: &'static str,
    links_per_card: u32,
    rows: Vec<DragonflySize>,
}

/// Size of a Dragonfly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub(crate) struct DragonflySize {
    /// Number of groups.
    pub(crate) groups: u32,
    /// Cards per group.
    pub(crate) group_size: u32,
    /// Total number of cards.
    pub(crate) cards: u32,
    /// Whether the size follows the paper's recommendation: k >= 3(g - 1).
    pub(crate) recommended: bool,
}

/// Larger fabrics are printed by group, without single links.
const NEIGHBOURS_SHOWN_UP_TO: u32 = 16;

pub(crate) fn run(cli: &Cli, arguments: &Topo) -> Result<()> {
    match arguments.dragonfly {
        Some(links) => sizes(cli.json, links),
        None => fabric(cli),
    }
}

/// Returns the sizes of Dragonflies whose cards have `links` links: at least two groups of two cards.
pub(crate) fn dragonflies(links: u32) -> Vec<DragonflySize> {
    let size = |groups| {
        let cards = Topology::dragonfly_nodes(groups, links)?;
        let group_size = cards / groups;
        (group_size >= 2).then_some(DragonflySize { groups, group_size, cards, recommended: links >= 3 * (groups - 1) })
    };
    (2..=links).filter_map(size).collect()
}

fn sizes(as_json: bool, links: u32) -> Result<()> {
    let rows = dragonflies(links);
    if as_json {
        return output::json(&Sizes { schema: "fpgactl.topo-dragonfly/1", links_per_card: links, rows });
    }
    let shown = rows.iter().map(|row| {
        let note = if row.recommended { "recommended (k >= 3(g - 1))" } else { "" };
        [row.groups.to_string(), row.group_size.to_string(), row.cards.to_string(), note.to_owned()]
    });
    let table = output::headed(["GROUPS", "CARDS PER GROUP", "CARDS", ""], shown);
    output::text(&format!("Dragonfly of cards with k = {links} links: g(k - g + 2) cards\n\n{table}"))
}

fn fabric(cli: &Cli) -> Result<()> {
    let selected = cards::selector(cli)?;
    let selector = Selector::parse(&selected)?;
    if selector.part() != Part::Card {
        return Err(Failure::usage(format!("{selected} selects other functions of cards: select the cards")));
    }
    // A mock fabric's topology is known without opening cards.
    let (topology, nodes, links_per_card, extrapolated, mock) = match selector.profile() {
        Some(profile) => (profile.topology, profile.nodes, profile.ports(), profile.is_extrapolated(), true),
        None => {
            let cards = Cards::selected(cli)?;
            let of = cards.capabilities();
            (of.topology, of.nodes, of.ports, of.extrapolated, cards.are_mock())
        }
    };
    let groups = topology.rows();
    let size = nodes / groups;
    let linked = |a: u32, b: u32| topology.linked(a, b, nodes);
    let printed = Printed {
        schema: "fpgactl.topo/1",
        selector: &selected,
        kind: selector.kind().name(),
        mock,
        topology: topology.name(),
        cards: nodes,
        links_per_card,
        extrapolated,
        groups: (0..groups).map(|group| (group * size..(group + 1) * size).collect()).collect(),
        links: (0..nodes).flat_map(|a| (a + 1..nodes).filter(move |b| linked(a, *b)).map(move |b| [a, b])).collect(),
    };
    output::print(cli.json, &printed, || text(&printed))
}

fn text(printed: &Printed<'_>) -> String {
    let Printed { selector, topology, cards, links_per_card, extrapolated, groups, links, .. } = printed;
    let kind = cards::kind(printed.kind, printed.mock);
    let mut text = format!(
        "{selector} ({kind}): {cards} cards, {topology}, {} links between cards, {links_per_card} ports per card\n",
        links.len()
    );
    if *extrapolated {
        text += "extrapolated: larger than the published system\n";
    }
    if *cards <= NEIGHBOURS_SHOWN_UP_TO {
        let heading = if *topology == "torus" { "ROW" } else { "GROUP" };
        let mut rows = Vec::new();
        for (group, members) in groups.iter().enumerate() {
            for card in members {
                let other = |link: &[u32; 2]| match link {
                    [a, b] if a == card => Some(b.to_string()),
                    [a, b] if b == card => Some(a.to_string()),
                    _ => None,
                };
                let others: Vec<String> = links.iter().filter_map(other).collect();
                rows.push([card.to_string(), group.to_string(), others.join(" ")]);
            }
        }
        return text + "\n" + &output::headed(["CARD", heading, "LINKED TO"], rows);
    }
    for (group, members) in groups.iter().enumerate() {
        if let (Some(first), Some(last)) = (members.first(), members.last()) {
            let name = if *topology == "torus" { "row" } else { "group" };
            let _ = writeln!(text, "{name} {group}: cards {first} to {last}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sizes_are_among_them() {
        let of = |groups, links| dragonflies(links).into_iter().find(|size| size.groups == groups).unwrap();
        assert_eq!(of(4, 6), DragonflySize { groups: 4, group_size: 4, cards: 16, recommended: false });
        assert_eq!(of(22, 64), DragonflySize { groups: 22, group_size: 44, cards: 968, recommended: true });
    }
}
