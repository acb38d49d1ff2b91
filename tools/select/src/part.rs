//! The functions that a mock card has.

/// A function of a mock card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// The card itself: its accelerator, with a sequencer.
    #[default]
    Card,
    /// The control function of an Intel card.
    Control,
    /// The host exerciser of an OFS shell.
    Exerciser,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Card, Part::Control, Part::Exerciser];

    /// Returns what follows the node of a card in its selector, and in the name of its socket.
    pub const fn suffix(self) -> &'static str {
        match self {
            Part::Card => "",
            Part::Control => ".control",
            Part::Exerciser => ".he-lb",
        }
    }

    /// Returns the part that a name ends with, and what is before it.
    pub(crate) fn strip(name: &str) -> (Part, &str) {
        let others = [Part::Control, Part::Exerciser].into_iter();
        let stripped = others.filter_map(|part| Some((part, name.strip_suffix(part.suffix())?))).next();
        stripped.unwrap_or((Part::Card, name))
    }
}
