//! One value of a profile, and where it is from.

/// Source of a component's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Stated by the source, in this section.
    Source(&'static str),
    /// Fitted to this published row.
    Fitted(&'static str),
    /// Assumed, as it is not published. The reason says so if no published row depends on it.
    Assumed(&'static str),
}

/// One line of a profile, for output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Name of the component.
    pub name: &'static str,
    /// Its value, in `unit`.
    pub value: u64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Source of the value.
    pub basis: Basis,
}
