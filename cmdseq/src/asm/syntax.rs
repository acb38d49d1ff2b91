//! The syntax tree of a source.

use super::diagnostic::Span;
use crate::instruction::Field;
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
    /// `@name`: the index of the instruction after a label.
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
    /// All operators, with sign and precedence.
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
    /// Precedence of `not`: below comparisons.
    pub(super) const NOT: u8 = 3;
    /// Precedence of a minus sign.
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
    /// One of the field's names.
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

pub(super) struct CommunicatorText {
    pub(super) name: Name,
    pub(super) id: Expression,
    pub(super) members: Vec<MembersText>,
}

/// A rank, or a range of ranks.
pub(super) struct MembersText {
    pub(super) first: Expression,
    /// End and step of the range. Boxed, because most members are single ranks.
    pub(super) end: Option<Box<(Expression, Option<Expression>)>>,
}

pub(super) struct TableText {
    pub(super) name: Name,
    pub(super) slot: Expression,
    pub(super) blocks: Vec<BlockText>,
}

/// A block of a table, or one block for each number of a loop.
pub(super) struct BlockText {
    pub(super) bytes: Expression,
    /// Its displacement; `None` if it follows the last block.
    pub(super) at: Option<Expression>,
    /// Boxed, because most blocks are listed one by one.
    pub(super) repeat: Option<Box<RoundText>>,
}

/// The head of a loop.
pub(super) struct RoundText {
    pub(super) name: Name,
    pub(super) from: Expression,
    pub(super) end: Expression,
    pub(super) step: Option<Expression>,
}

pub(super) struct ForText {
    pub(super) head: Box<RoundText>,
    pub(super) body: Vec<Statement>,
}

/// The sequencer's own loop.
pub(super) struct RepeatText {
    pub(super) span: Span,
    pub(super) head: Box<RepeatHead>,
    pub(super) body: Vec<Statement>,
}

pub(super) struct RepeatHead {
    pub(super) count: Expression,
    /// The number added to a launch argument after each round, and the argument.
    pub(super) step: Option<(Expression, Expression)>,
}

pub(super) struct Arm {
    /// `None` for `else`.
    pub(super) condition: Option<Expression>,
    pub(super) span: Span,
    pub(super) body: Vec<Statement>,
}

/// Large parts are boxed: a long source has many statements, and each takes as much memory as the largest.
pub(super) enum Statement {
    Ranks(Expression),
    Const(Name, Expression),
    Buffer(Box<BufferText>),
    Communicator(Box<CommunicatorText>),
    Blocks(Box<TableText>),
    Label(Name),
    Instruction(InstructionText),
    For(ForText),
    Repeat(RepeatText),
    If(Vec<Arm>),
    Include(Vec<Statement>),
    Assert(Expression, String),
}

/// What a statement defines by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defined {
    Constant,
    Buffer,
    Communicator,
    Table,
    Label,
    LoopNumber,
}

impl Statement {
    /// Calls `visit` with each of `statements` and with all statements in them.
    pub(super) fn visit_all<'s>(statements: &'s [Statement], visit: &mut impl FnMut(&'s Statement)) {
        for statement in statements {
            visit(statement);
            match statement {
                Statement::For(ForText { body, .. })
                | Statement::Repeat(RepeatText { body, .. })
                | Statement::Include(body) => Statement::visit_all(body, visit),
                Statement::If(arms) => arms.iter().for_each(|arm| Statement::visit_all(&arm.body, visit)),
                _ => {}
            }
        }
    }

    /// The name that the statement defines.
    pub(super) fn defines(&self) -> Option<(Defined, &Name)> {
        match self {
            Statement::Const(name, _) => Some((Defined::Constant, name)),
            Statement::Buffer(buffer) => Some((Defined::Buffer, &buffer.name)),
            Statement::Communicator(text) => Some((Defined::Communicator, &text.name)),
            Statement::Blocks(text) => Some((Defined::Table, &text.name)),
            Statement::Label(name) => Some((Defined::Label, name)),
            Statement::For(block) => Some((Defined::LoopNumber, &block.head.name)),
            _ => None,
        }
    }

    /// The expressions of the statement itself, without those of the statements in it.
    pub(super) fn expressions(&self) -> Vec<&Expression> {
        match self {
            Statement::Ranks(value) | Statement::Const(_, value) | Statement::Assert(value, _) => vec![value],
            Statement::Buffer(text) => [&text.size].into_iter().chain(&text.at).chain(&text.align).collect(),
            Statement::Communicator(text) => {
                let range = text.members.iter().flat_map(|part| {
                    let end = part.end.as_deref().into_iter().flat_map(|(end, step)| [end].into_iter().chain(step));
                    [&part.first].into_iter().chain(end)
                });
                [&text.id].into_iter().chain(range).collect()
            }
            Statement::Blocks(text) => {
                let block = text.blocks.iter().flat_map(|block| {
                    let round = block.repeat.iter().flat_map(|head| head.expressions());
                    [&block.bytes].into_iter().chain(&block.at).chain(round)
                });
                [&text.slot].into_iter().chain(block).collect()
            }
            Statement::For(block) => block.head.expressions().collect(),
            Statement::Repeat(RepeatText { head, .. }) => {
                let step = head.step.iter().flat_map(|(by, argument)| [by, argument]);
                [&head.count].into_iter().chain(step).collect()
            }
            Statement::If(arms) => arms.iter().filter_map(|arm| arm.condition.as_ref()).collect(),
            Statement::Instruction(text) => {
                text.tag.iter().chain(text.fields.iter().flat_map(|(_, value)| value.expressions())).collect()
            }
            Statement::Label(_) | Statement::Include(_) => Vec::new(),
        }
    }

    /// Where the statement is; `None` for an include.
    pub(super) fn span(&self) -> Option<Span> {
        match self {
            Statement::Ranks(value) | Statement::Assert(value, _) => Some(value.span),
            Statement::Instruction(instruction) => Some(instruction.span),
            Statement::Repeat(block) => Some(block.span),
            Statement::If(arms) => arms.first().map(|arm| arm.span),
            other => other.defines().map(|(_, name)| name.span),
        }
    }
}

impl RoundText {
    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        [&self.from, &self.end].into_iter().chain(&self.step)
    }
}

impl FieldValue {
    fn expressions(&self) -> Vec<&Expression> {
        match self {
            FieldValue::Word(_) => Vec::new(),
            FieldValue::Number(value) => vec![value],
            FieldValue::Operand(operand) => [&operand.value].into_iter().chain(&operand.argument).collect(),
        }
    }
}
