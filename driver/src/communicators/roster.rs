//! All members of a cluster or communicator, and which rank holds the card of each.

use cmdseq::Capabilities;
use serde::{Deserialize, Serialize};

use crate::card::Card;
use crate::error::{Error, Result};

/// One member of a [`Cluster`](crate::Cluster).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its node in the fabric.
    pub node: u32,
    /// The rank of the process that holds its card.
    pub peer: u32,
    /// Name of the card in that process.
    pub name: String,
}

/// A name and a value that must be the same on all ranks.
pub(crate) type Term = (String, String);

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 32;

/// What a rank states when a cluster or communicator is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Statement {
    /// Cards that are members: node, name and nonce.
    pub(crate) cards: Vec<(u32, String, [u8; NONCE_BYTES])>,
    pub(crate) terms: Vec<Term>,
}

impl Statement {
    /// States `cards` and `terms`, after the versions and capabilities that all must have alike.
    pub(crate) fn of(cards: &[Card], terms: &[(&str, String)]) -> Result<Self> {
        let mut all = vec![("driver version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        if let Some(card) = cards.first() {
            let field = |(name, value): (&str, String)| (name.to_owned(), value);
            all.extend(described(card.capabilities()).into_iter().map(field));
        }
        all.extend(terms.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let each = |card: &Card| {
            let mut nonce = [0; NONCE_BYTES];
            getrandom::fill(&mut nonce).map_err(|error| Error::NoKey(error.into()))?;
            Ok((card.node(), card.name().to_owned(), nonce))
        };
        Ok(Statement { cards: cards.iter().map(each).collect::<Result<_>>()?, terms: all })
    }
}

/// Refuses ranks whose terms differ. The value that most ranks have is right; of equally many, that of the lowest rank.
pub(crate) fn alike(all: &[&[Term]]) -> Result<()> {
    let longest = all.iter().map(|terms| terms.len()).max().unwrap_or(0);
    for index in 0..longest {
        let of = |terms: &&[Term]| terms.get(index).cloned();
        let stated: Vec<Option<Term>> = all.iter().map(of).collect();
        let count = |one: &Option<Term>| stated.iter().filter(|other| *other == one).count();
        // The first of several maxima.
        let Some(first) = stated.iter().rev().max_by_key(|one| count(one)) else { continue };
        let Some(rank) = stated.iter().position(|one| one != first) else { continue };
        let same = stated.iter().position(|one| one == first).unwrap_or(0);
        let shown = |term: &Option<Term>| term.as_ref().map_or("missing".to_owned(), |(_, value)| value.clone());
        let name = stated[rank].as_ref().or(first.as_ref()).map_or("term", |(name, _)| name);
        let what = match stated[rank].as_ref().zip(first.as_ref()) {
            Some(((one, _), (other, _))) if one != other => format!("it states its {one}, and rank {same} its {other}"),
            _ => format!("its {name} is {}, and that of rank {same} is {}", shown(&stated[rank]), shown(first)),
        };
        return Err(Error::Differs { rank: rank as u32, what });
    }
    Ok(())
}

/// Members and their nonces, by rank and then by node.
///
/// # Errors
/// [`Error::Differs`] for the rank whose card is the same node as another's, or that has none.
pub(crate) fn members(statements: &[Statement]) -> Result<(Vec<Member>, Vec<[u8; NONCE_BYTES]>)> {
    let mut members: Vec<Member> = Vec::new();
    let mut nonces = Vec::new();
    for (peer, statement) in (0..).zip(statements) {
        if statement.cards.is_empty() {
            return Err(Error::Differs { rank: peer, what: "it has no card".to_owned() });
        }
        for (node, name, nonce) in &statement.cards {
            if let Some(other) = members.iter().find(|member| member.node == *node) {
                let what = format!(
                    "its card {name} is node {node}, and so is {} of rank {}: two ranks name one card, or cards of two fabrics",
                    other.name, other.peer
                );
                return Err(Error::Differs { rank: peer, what });
            }
            members.push(Member { node: *node, peer, name: name.clone() });
            nonces.push(*nonce);
        }
    }
    Ok((members, nonces))
}

macro_rules! fields {
    ($($field:ident),* $(,)?) => {
        /// What cards of one fabric must have alike, by name.
        pub(crate) fn described(of: &Capabilities) -> Vec<(&'static str, String)> {
            vec![$((stringify!($field), format!("{:?}", of.$field))),*]
        }

        /// Returns in what two cards of one fabric differ that should not.
        pub(crate) fn difference(one: &Capabilities, other: &Capabilities) -> Option<String> {
            $(if one.$field != other.$field {
                return Some(format!("{} is {:?} and {:?}", stringify!($field), one.$field, other.$field));
            })*
            None
        }
    };
}
fields!(
    isa,
    nodes,
    topology,
    clock_khz,
    ports,
    memory_bytes,
    memory_channels,
    stripe_half_bytes,
    queue_depth_max,
    communicators,
    communicator_ranks,
    communicator_generations,
    resident_programs,
    resident_words,
    signals,
    tables,
    windows,
    lanes,
    address_align,
    eager_bytes,
    eager_limit,
    operations,
    element_types,
    reductions,
    reductions_extend,
    extrapolated,
    timing,
);

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(values: &[&str]) -> Vec<Term> {
        let named = |(index, value): (usize, &&str)| (format!("term {index}"), (*value).to_owned());
        values.iter().enumerate().map(named).collect()
    }

    fn refusal(all: &[&[&str]]) -> String {
        let all: Vec<Vec<Term>> = all.iter().map(|values| terms(values)).collect();
        let all: Vec<&[Term]> = all.iter().map(Vec::as_slice).collect();
        alike(&all).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn the_rank_that_differs_from_most_is_named() {
        assert_eq!(refusal(&[&["a", "b"], &["a", "b"]]), "");
        let odd = "Rank 0: its term 1 is x, and that of rank 1 is b";
        assert_eq!(refusal(&[&["a", "x"], &["a", "b"], &["a", "b"]]), odd);
        assert_eq!(refusal(&[&["a"], &["x"]]), "Rank 1: its term 0 is x, and that of rank 0 is a");
        assert_eq!(refusal(&[&["a"], &[]]), "Rank 1: its term 0 is missing, and that of rank 0 is a");
    }

    #[test]
    fn two_ranks_with_one_node_are_refused() {
        let card =
            |node: u32, name: &str| Statement { cards: vec![(node, name.to_owned(), [0; 32])], terms: Vec::new() };
        let (members, _) = members(&[card(3, "a"), card(1, "b")]).unwrap();
        assert_eq!(members.iter().map(|member| (member.node, member.peer)).collect::<Vec<_>>(), [(3, 0), (1, 1)]);
        let error = super::members(&[card(3, "a"), card(1, "b"), card(3, "c")]).unwrap_err().to_string();
        assert!(error.starts_with("Rank 2: its card c is node 3, and so is a of rank 0"), "{error}");
    }
}
