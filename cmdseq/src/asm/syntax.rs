//! What a source says, before it is said for a rank.

use super::diagnostic::Span;
use super::fields::Field;
use crate::{AddressSpace, Flags, Layout, Operation};

/// A name and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Span,
}

#[derive(Debug, Clone)]
pub(super) struct Expression {
    pub(super) node: Node,
    pub(super) span: Span,
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    Number(u64),
    Rank,
    Ranks,
    Name(String),
    /// `@name`: index of the instruction behind a label.
    Label(String),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<(Expression, Expression)>),
    Call(Function, Vec<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Negative,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Binary {
    /// All with how they are written and how tightly they bind.
    pub(super) const ALL: [(&'static str, Binary, u8); 18] = [
        ("or", Binary::Or, 1),
        ("and", Binary::And, 2),
        ("==", Binary::Equal, 4),
        ("!=", Binary::Unequal, 4),
        ("<", Binary::Less, 4),
        ("<=", Binary::LessOrEqual, 4),
        (">", Binary::Greater, 4),
        (">=", Binary::GreaterOrEqual, 4),
        ("|", Binary::BitOr, 5),
        ("^", Binary::BitXor, 6),
        ("&", Binary::BitAnd, 7),
        ("<<", Binary::ShiftLeft, 8),
        (">>", Binary::ShiftRight, 8),
        ("+", Binary::Add, 9),
        ("-", Binary::Subtract, 9),
        ("*", Binary::Multiply, 10),
        ("/", Binary::Divide, 10),
        ("%", Binary::Remainder, 10),
    ];
    /// How tightly `not` binds: looser than comparisons.
    pub(super) const NOT: u8 = 3;
    /// How tightly a minus sign binds.
    pub(super) const NEGATIVE: u8 = 11;

    pub(super) fn sign(self) -> &'static str {
        Binary::ALL.iter().find(|one| one.1 == self).map_or("", |one| one.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    /// Length of a buffer.
    Size,
    /// Address of a buffer in card memory.
    Address,
}

impl Function {
    pub(super) const ALL: [(&'static str, Function); 4] =
        [("min", Function::Min), ("max", Function::Max), ("size", Function::Size), ("address", Function::Address)];
}

#[derive(Debug, Clone)]
pub(super) struct OperandText {
    pub(super) space: Option<AddressSpace>,
    pub(super) value: Expression,
    pub(super) layout: Option<Layout>,
    pub(super) argument: Option<Expression>,
    pub(super) span: Span,
}

pub(super) enum FieldValue {
    Number(Expression),
    Operand(OperandText),
    /// One of the field's words.
    Word(Name),
}

pub(super) struct InstructionText {
    pub(super) operation: Operation,
    pub(super) span: Span,
    pub(super) fields: Vec<(&'static Field, FieldValue)>,
    pub(super) tag: Option<Expression>,
    pub(super) flags: Flags,
}

pub(super) struct BufferText {
    pub(super) name: Name,
    pub(super) space: AddressSpace,
    pub(super) layout: Layout,
    pub(super) at: Option<Expression>,
    pub(super) size: Expression,
    pub(super) align: Option<Expression>,
}

/// A rank, or those from one up to before another.
pub(super) struct MembersText {
    pub(super) first: Expression,
    pub(super) end: Option<(Expression, Option<Expression>)>,
}

/// A block of a table, or one for each number of a loop.
pub(super) struct BlockText {
    pub(super) bytes: Expression,
    /// Where it lies; `None` for behind the one before.
    pub(super) at: Option<Expression>,
    pub(super) repeat: Option<RoundText>,
}

/// The head of a loop.
pub(super) struct RoundText {
    pub(super) name: Name,
    pub(super) from: Expression,
    pub(super) end: Expression,
    pub(super) step: Option<Expression>,
}

pub(super) struct ForText {
    pub(super) head: RoundText,
    pub(super) body: Vec<Statement>,
}

/// The sequencer's own loop.
pub(super) struct RepeatText {
    pub(super) span: Span,
    pub(super) head: RepeatHead,
    pub(super) body: Vec<Statement>,
}

pub(super) struct RepeatHead {
    pub(super) count: Expression,
    /// What is added to a launch argument after each round, and to which.
    pub(super) step: Option<(Expression, Expression)>,
}

pub(super) struct Arm {
    /// `None` for `else`.
    pub(super) condition: Option<Expression>,
    pub(super) span: Span,
    pub(super) body: Vec<Statement>,
}

pub(super) enum Statement {
    Ranks(Expression),
    Const(Name, Expression),
    Buffer(BufferText),
    Communicator(Name, Expression, Vec<MembersText>),
    Blocks(Name, Expression, Vec<BlockText>),
    Label(Name),
    Instruction(InstructionText),
    For(ForText),
    Repeat(RepeatText),
    If(Vec<Arm>),
    Include(Vec<Statement>),
    Assert(Expression, String),
}
