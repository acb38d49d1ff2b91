//! Tokens to statements: one statement a line, blocks closed by `end`.

use super::cursor::{Cursor, DEPTH_MAX, Result};
use super::diagnostic::{FINDINGS_MAX, Files, Finding, Span, did_you_mean};
use super::fields::{self, TAG};
use super::include::{Sources, resolve};
use super::keywords::STATEMENTS;
use super::lexer::{self, Kind, Token};
use super::options::Limits;
use super::syntax::*;
use crate::instruction::{FIELDS, Field, Value};
use crate::{AddressSpace, Flags, Layout, Operation};

/// Parses a file and its includes.
pub(super) struct Parser<'a> {
    sources: &'a mut Sources<'a>,
    limits: &'a Limits,
    pub(super) files: Files,
    pub(super) findings: Vec<Finding>,
    /// Whether parsing ended early, after many errors.
    pub(super) is_partial: bool,
    bytes: usize,
    /// Files being parsed, the outermost first.
    chain: Vec<String>,
}

/// The first line of a block; `None` for what is wrong in it, which has its own finding.
enum Head {
    For(Option<Box<RoundText>>),
    Repeat(Option<Box<RepeatHead>>),
    /// The branches before the last one, and the condition of the last one.
    If(Vec<Arm>, Option<Expression>),
    /// Any block nested too deeply, by its first word.
    TooDeep {
        word: String,
        /// Blocks in it without their `end` so far. They are only counted: there may be as many as lines.
        inner: usize,
    },
}

/// A block without its `end` so far.
struct Open {
    head: Head,
    /// The place of its first word, or of the `else` of the last branch.
    span: Span,
    body: Vec<Statement>,
}

/// The statements of a file so far.
#[derive(Default)]
struct Blocks {
    body: Vec<Statement>,
    /// Blocks in it, the innermost last.
    open: Vec<Open>,
}

impl Blocks {
    /// Adds a statement to the innermost block.
    fn push(&mut self, statement: Statement) {
        self.open.last_mut().map_or(&mut self.body, |block| &mut block.body).push(statement);
    }

    /// Opens a block. With a wrong head it is one all the same.
    fn open<T>(&mut self, span: Span, head: Result<T>, make: impl FnOnce(Option<T>) -> Head) -> Result<()> {
        let (head, outcome) = match head {
            Ok(head) => (Some(head), Ok(())),
            Err(finding) => (None, Err(finding)),
        };
        self.open.push(Open { head: make(head), span, body: Vec::new() });
        outcome
    }

    fn are_in_loop(&self) -> bool {
        self.open.iter().any(|block| matches!(block.head, Head::For(_)))
    }

    fn close(&mut self, span: Span) -> Result<()> {
        if let Some(Open { head: Head::TooDeep { inner: inner @ 1.., .. }, .. }) = self.open.last_mut() {
            *inner -= 1;
            return Ok(());
        }
        let block = self.open.pop().ok_or_else(|| Finding::new(span, "`end` without a block"))?;
        let Open { head, span, mut body } = block;
        // A long source has many blocks: none keeps room for statements that do not come.
        body.shrink_to_fit();
        match head {
            Head::For(Some(head)) => self.push(Statement::For(ForText { head, body })),
            Head::Repeat(Some(head)) => self.push(Statement::Repeat(RepeatText { span, head, body })),
            // The error in its head is reported.
            Head::For(None) | Head::Repeat(None) | Head::TooDeep { .. } => {}
            Head::If(mut arms, condition) => {
                arms.reserve_exact(1);
                arms.push(Arm { condition, span, body });
                arms.shrink_to_fit();
                self.push(Statement::If(arms));
            }
        }
        Ok(())
    }
}

/// Some editors begin a file with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Words that open, continue or close a block.
const BLOCKS: [&str; 5] = ["for", "repeat", "if", "else", "end"];

impl<'a> Parser<'a> {
    pub(super) fn new(sources: &'a mut Sources<'a>, limits: &'a Limits) -> Self {
        let (files, findings, chain) = (Files::default(), Vec::new(), Vec::new());
        Parser { sources, limits, files, findings, is_partial: false, bytes: 0, chain }
    }

    /// Parses a file within `depth` blocks, those around its includes.
    pub(super) fn file(&mut self, path: &str, text: String, depth: usize) -> Vec<Statement> {
        self.bytes += text.len();
        let text = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        let file = self.files.add(path, text);
        self.chain.push(path.to_owned());
        let statements = self.lines(file, depth);
        self.chain.pop();
        statements
    }

    fn lines(&mut self, file: u32, depth: usize) -> Vec<Statement> {
        let text = std::mem::take(&mut self.files.0[file as usize].1);
        let mut blocks = Blocks::default();
        for (number, text) in (1..).zip(text.lines()) {
            if self.findings.len() >= FINDINGS_MAX {
                self.is_partial = true;
                blocks.open.clear();
                break;
            }
            let (tokens, error) = lexer::line(text, file, number);
            let error = match error {
                None => self.line(&tokens, &mut blocks, depth).err(),
                Some(error) => {
                    // A block with a wrong head is one all the same: its `end` is no further error.
                    if first_word(&tokens).is_some_and(|word| BLOCKS.contains(&word)) {
                        let _ = self.line(&tokens, &mut blocks, depth);
                    }
                    Some(error)
                }
            };
            self.findings.extend(error);
        }
        self.files.0[file as usize].1 = text;
        for block in &blocks.open {
            let (what, span) = match &block.head {
                Head::For(_) => ("for", block.span),
                Head::Repeat(_) => ("repeat", block.span),
                // The first branch begins at the `if`, and the last at an `else`.
                Head::If(arms, _) => ("if", arms.first().map_or(block.span, |arm| arm.span)),
                Head::TooDeep { word, .. } => (word.as_str(), block.span),
            };
            self.findings.push(Finding::new(span, format!("`{what}` without `end`")));
        }
        blocks.body
    }

    fn line(&mut self, tokens: &[Token], blocks: &mut Blocks, depth: usize) -> Result<()> {
        let mut cursor = Cursor::new(tokens);
        if is_labelled(tokens) {
            // After a wrong label, the statement counts all the same: it may open a block.
            match label(&mut cursor, blocks) {
                Ok(name) => blocks.push(Statement::Label(name)),
                Err(finding) => self.findings.push(finding),
            }
        }
        let Some(first) = cursor.peek() else { return Ok(()) };
        let span = first.span;
        let Kind::Word(word) = &first.kind else {
            return Err(Finding::new(span, "expected an operation, a label or a keyword"));
        };
        let opens = matches!(word.as_str(), "for" | "repeat" | "if");
        if opens && blocks.open.len() + depth >= DEPTH_MAX {
            if let Some(Open { head: Head::TooDeep { inner, .. }, .. }) = blocks.open.last_mut() {
                *inner += 1;
                return Ok(());
            }
            let finding = Finding::new(span, format!("blocks nested too deeply: at most {DEPTH_MAX} levels"));
            return blocks.open(span, Err::<(), _>(finding), |_| Head::TooDeep { word: word.clone(), inner: 0 });
        }
        cursor.next();
        match word.as_str() {
            "for" => {
                let head = round(&mut cursor).and_then(|head| cursor.finish().map(|()| Box::new(head)));
                blocks.open(span, head, Head::For)
            }
            "repeat" => blocks.open(span, repeat_head(&mut cursor).map(Box::new), Head::Repeat),
            "if" => {
                let condition = cursor.expression().and_then(|condition| cursor.finish().map(|()| condition));
                blocks.open(span, condition, |condition| Head::If(Vec::new(), condition))
            }
            "else" => otherwise(&mut cursor, span, blocks),
            "end" => {
                blocks.close(span)?;
                cursor.finish()
            }
            "include" => {
                let statements = self.include(&mut cursor, span, depth + blocks.open.len())?;
                blocks.push(Statement::Include(statements));
                Ok(())
            }
            "buffer" | "communicator" | "blocks" if blocks.are_in_loop() => {
                let what = if word == "blocks" { "table" } else { word };
                let message = format!("a {what} in a `for` would be defined several times: move it out of the loop");
                Err(Finding::new(span, message))
            }
            _ => {
                let statement = statement(word, span, &mut cursor)?;
                cursor.finish()?;
                blocks.push(statement);
                Ok(())
            }
        }
    }

    fn include(&mut self, cursor: &mut Cursor<'_>, span: Span, depth: usize) -> Result<Vec<Statement>> {
        let Some(Token { kind: Kind::Text(path), span: place }) = cursor.next() else {
            return Err(Finding::new(span, "expected a path in quotes: include \"ring.seq\""));
        };
        cursor.finish()?;
        if depth > DEPTH_MAX {
            // In a block nested too deeply, which is reported: nothing in it is kept.
            return Ok(Vec::new());
        }
        let refuse = |message: String| Finding::new(*place, message);
        let from = self.chain.last().map_or("", String::as_str);
        let path = resolve(from, path).map_err(refuse)?;
        if self.chain.contains(&path) {
            let chain: Vec<&str> = self.chain.iter().map(String::as_str).chain([path.as_str()]).collect();
            return Err(refuse(format!("the file includes itself: {}", chain.join(" includes "))));
        }
        let most = self.limits.include_depth.min(DEPTH_MAX);
        if self.chain.len() > most {
            return Err(refuse(format!("includes nested too deeply: at most {most} levels (limit include_depth)")));
        }
        if self.files.0.len() >= self.limits.files {
            return Err(refuse(format!("too many includes: at most {} files (limit files)", self.limits.files)));
        }
        let text = (self.sources)(&path).map_err(|cause| refuse(format!("cannot read {path}: {cause}")))?;
        if text.len() > self.limits.source_bytes.saturating_sub(self.bytes) {
            let most = self.limits.source_bytes;
            return Err(refuse(format!("with {path}, the source is longer than {most} B (limit source_bytes)")));
        }
        Ok(self.file(&path, text, depth))
    }
}

/// Parses what follows `else`.
fn otherwise(cursor: &mut Cursor<'_>, span: Span, blocks: &mut Blocks) -> Result<()> {
    let (arms, condition, start, body) = match blocks.open.last_mut() {
        Some(Open { head: Head::If(arms, condition), span, body }) => (arms, condition, span, body),
        Some(Open { head: Head::TooDeep { word, inner }, .. }) if word == "if" || *inner > 0 => return Ok(()),
        _ => return Err(Finding::new(span, "`else` without `if`")),
    };
    if condition.is_none() && !arms.is_empty() && arms.iter().all(|arm| arm.condition.is_some()) {
        return Err(Finding::new(span, "`else` after the last `else` of this `if`"));
    }
    body.shrink_to_fit();
    arms.push(Arm { condition: condition.take(), span: *start, body: std::mem::take(body) });
    *start = span;
    if cursor.take_word("if") {
        // An arm with a wrong condition has one all the same.
        *condition = Some(Expression { node: Node::Number(0), span });
        *condition = Some(cursor.expression()?);
    }
    cursor.finish()
}

/// Whether the line begins with a label.
fn is_labelled(tokens: &[Token]) -> bool {
    matches!(tokens, [Token { kind: Kind::Word(_), .. }, Token { kind: Kind::Sign(":"), .. }, ..])
}

/// Returns the first word of the statement of a line.
fn first_word(tokens: &[Token]) -> Option<&str> {
    match tokens.get(if is_labelled(tokens) { 2 } else { 0 })? {
        Token { kind: Kind::Word(word), .. } => Some(word),
        _ => None,
    }
}

fn label(cursor: &mut Cursor<'_>, blocks: &Blocks) -> Result<Name> {
    let name = cursor.name("a label");
    cursor.next();
    let name = name?;
    if blocks.are_in_loop() {
        let message = "a label in a `for` would label several instructions: move it out of the loop";
        return Err(Finding::new(name.span, message));
    }
    Ok(name)
}

/// Parses what follows `for`.
fn round(cursor: &mut Cursor<'_>) -> Result<RoundText> {
    let name = cursor.name("a loop's number")?;
    cursor.expect_word("in", "expected `for NAME in FIRST .. END`, such as `for i in 0 .. ranks`")?;
    let from = cursor.expression()?;
    cursor.expect_sign("..", "expected `for NAME in FIRST .. END`, such as `for i in 0 .. ranks`")?;
    let end = cursor.expression()?;
    let step = if cursor.take_word("step") { Some(cursor.expression()?) } else { None };
    Ok(RoundText { name, from, end, step })
}

fn repeat_head(cursor: &mut Cursor<'_>) -> Result<RepeatHead> {
    let count = cursor.expression()?;
    let mut step = None;
    if cursor.take_word("step") {
        let by = cursor.expression()?;
        cursor.expect_word(
            "argument",
            "expected `repeat COUNT step NUMBER argument INDEX`, such as `repeat 8 step 4KiB argument 0`",
        )?;
        step = Some((by, cursor.expression()?));
    }
    cursor.finish()?;
    Ok(RepeatHead { count, step })
}

fn statement(word: &str, span: Span, cursor: &mut Cursor<'_>) -> Result<Statement> {
    match word {
        "ranks" => Ok(Statement::Ranks(cursor.expression()?)),
        "const" => {
            let name = cursor.name("a constant")?;
            cursor.expect_sign("=", "expected `const NAME = VALUE`")?;
            Ok(Statement::Const(name, cursor.expression()?))
        }
        "buffer" => buffer(cursor).map(|text| Statement::Buffer(Box::new(text))),
        "communicator" => communicator(cursor),
        "blocks" => blocks(cursor),
        "assert" => {
            let condition = cursor.expression()?;
            let form = "expected `assert CONDITION, \"MESSAGE\"`";
            cursor.expect_sign(",", form)?;
            match cursor.next() {
                Some(Token { kind: Kind::Text(message), .. }) => Ok(Statement::Assert(condition, message.clone())),
                _ => Err(cursor.expected(form)),
            }
        }
        _ => match fields::operation(word) {
            Some(operation) => instruction(operation, span, cursor).map(Statement::Instruction),
            None => {
                let names = STATEMENTS.iter().copied().chain(Operation::ALL.iter().map(|one| one.name()));
                let hint = did_you_mean(word, names);
                Err(Finding::new(span, format!("unknown operation `{word}`{hint}")))
            }
        },
    }
}

fn buffer(cursor: &mut Cursor<'_>) -> Result<BufferText> {
    const FORM: &str = "expected a form like `buffer NAME = card size 64KiB` or `buffer NAME = host size 64KiB`";
    let name = cursor.name("a buffer")?;
    cursor.expect_sign("=", FORM)?;
    let Some(space) = cursor.space() else { return Err(cursor.expected(FORM)) };
    let (mut at, mut size, mut align, mut layout) = (None, None, None, Layout::Block);
    while let Some(Token { kind: Kind::Word(word), span }) = cursor.peek() {
        let span = *span;
        cursor.next();
        let place = match word.as_str() {
            "striped" => {
                if space == AddressSpace::Host {
                    return Err(Finding::new(span, "a host buffer cannot be striped: only card memory has stripes"));
                }
                layout = Layout::Striped;
                continue;
            }
            "size" => &mut size,
            "at" | "align" if space == AddressSpace::Host => {
                return Err(Finding::new(span, "a host buffer gets its address at run time"));
            }
            "at" => &mut at,
            "align" => &mut align,
            _ => {
                let hint = did_you_mean(word, ["at", "size", "align", "striped"].into_iter());
                return Err(Finding::new(span, format!("expected `at`, `size`, `align` or `striped`{hint}")));
            }
        };
        if place.is_some() {
            return Err(Finding::new(span, format!("duplicate `{word}`")));
        }
        *place = Some(cursor.expression()?);
    }
    let size = size.ok_or_else(|| Finding::new(name.span, format!("missing `size`: {FORM}")))?;
    Ok(BufferText { name, space, layout, at, size, align })
}

fn communicator(cursor: &mut Cursor<'_>) -> Result<Statement> {
    const FORM: &str = "expected a form like `communicator NAME = 1 of 0, 2, 4 .. ranks`";
    let name = cursor.name("a communicator")?;
    cursor.expect_sign("=", FORM)?;
    let id = cursor.expression()?;
    cursor.expect_word("of", FORM)?;
    let mut members = Vec::new();
    loop {
        let first = cursor.expression()?;
        let mut end = None;
        if cursor.take_sign("..") {
            let last = cursor.expression()?;
            let step = if cursor.take_word("step") { Some(cursor.expression()?) } else { None };
            end = Some(Box::new((last, step)));
        }
        members.push(MembersText { first, end });
        if !cursor.take_sign(",") {
            return Ok(Statement::Communicator(Box::new(CommunicatorText { name, id, members })));
        }
    }
}

fn blocks(cursor: &mut Cursor<'_>) -> Result<Statement> {
    const FORM: &str = "expected a form like `blocks NAME = 0 of 1KiB, 64 at 4KiB, i * 64 for i in 2 .. ranks`";
    let name = cursor.name("a table")?;
    cursor.expect_sign("=", FORM)?;
    let slot = cursor.expression()?;
    cursor.expect_word("of", FORM)?;
    let mut blocks = Vec::new();
    loop {
        let bytes = cursor.expression()?;
        let at = if cursor.take_word("at") { Some(cursor.expression()?) } else { None };
        let repeat = if cursor.take_word("for") { Some(Box::new(round(cursor)?)) } else { None };
        blocks.push(BlockText { bytes, at, repeat });
        if !cursor.take_sign(",") {
            return Ok(Statement::Blocks(Box::new(TableText { name, slot, blocks })));
        }
    }
}

/// Lists the fields and flags of `operation`, for the end of a message.
fn available(operation: Operation) -> String {
    let mut names: Vec<&str> = fields::of(operation).map(|field| field.keyword).collect();
    names.push(TAG);
    let flags: Vec<String> = fields::flags(operation).map(|(name, _)| name).collect();
    format!("available: {}, {}", names.join(", "), flags.join(", "))
}

fn instruction(operation: Operation, span: Span, cursor: &mut Cursor<'_>) -> Result<InstructionText> {
    let mut text = InstructionText { operation, span, fields: Vec::new(), tag: None, flags: Flags::empty() };
    let mut is_first = true;
    while let Some(token) = cursor.peek() {
        if !is_first {
            cursor.expect_sign(",", "expected a comma between fields")?;
        }
        is_first = false;
        part(&mut text, cursor, token.span)?;
    }
    let is_given = |keyword: &str| text.fields.iter().any(|(given, _)| given.keyword == keyword);
    // Without a key, a window is invalid.
    let is_needed =
        |field: &Field| !fields::is_optional(field, operation) || field.keyword == "key" && is_given("window");
    let missing: Vec<String> = fields::of(operation)
        .filter(|field| is_needed(field) && !is_given(field.keyword))
        .map(|field| format!("`{}`", field.keyword))
        .collect();
    if !missing.is_empty() {
        return Err(Finding::new(span, format!("missing {} of `{operation}`", missing.join(" and "))));
    }
    if text.flags.contains(Flags::EAGER | Flags::RENDEZVOUS) {
        return Err(Finding::new(span, "the flags `eager` and `rendezvous` exclude each other"));
    }
    let forms = text.flags.intersection(Flags::FORMS);
    let is_sent = text.flags.intersects(Flags::EAGER | Flags::RENDEZVOUS);
    if !forms.is_empty() && (!forms.bits().is_power_of_two() || is_sent) {
        let why = "the flags `tree`, `doubling`, `halving` and `ring` exclude each other, and `eager` and `rendezvous`";
        return Err(Finding::new(span, why));
    }
    Ok(text)
}

/// Parses one field or flag.
fn part(text: &mut InstructionText, cursor: &mut Cursor<'_>, fallback: Span) -> Result<()> {
    let operation = text.operation;
    let Some(Token { kind: Kind::Word(word), span }) = cursor.next() else {
        return Err(Finding::new(fallback, format!("expected a field of `{operation}` ({})", available(operation))));
    };
    let twice = || Finding::new(*span, format!("duplicate `{word}`"));
    if let Some(flag) = fields::flag(word, operation) {
        if text.flags.contains(flag) {
            return Err(twice());
        }
        text.flags |= flag;
        return Ok(());
    }
    if word == TAG {
        if text.tag.is_some() {
            return Err(twice());
        }
        text.tag = Some(cursor.expression()?);
        return Ok(());
    }
    let Some(field) = FIELDS.iter().find(|field| field.keyword == word) else {
        let flags: Vec<String> = fields::flags(operation).map(|(name, _)| name).collect();
        let fields = fields::of(operation).map(|field| field.keyword);
        let names = fields.chain([TAG]).chain(flags.iter().map(String::as_str));
        let mut hint = did_you_mean(word, names);
        if hint.is_empty() {
            hint = format!(" ({})", available(operation));
        }
        return Err(Finding::new(*span, format!("unknown field `{word}`{hint}")));
    };
    if !field.is_read_by(operation) {
        return Err(Finding::new(*span, format!("`{operation}` has no field `{word}` ({})", available(operation))));
    }
    if text.fields.iter().any(|(given, _)| given.keyword == field.keyword) {
        return Err(twice());
    }
    let value = match &field.value {
        Value::Operand(_) => FieldValue::Operand(cursor.operand()?),
        Value::Number { .. } | Value::Argument { .. } => FieldValue::Number(cursor.expression()?),
        Value::Name { all, .. } => FieldValue::Word(cursor.one_of(field.keyword, &all())?),
    };
    text.fields.push((field, value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keyword would hide an operation of the same name.
    #[test]
    fn operations_are_not_keywords() {
        for operation in Operation::ALL {
            assert!(!STATEMENTS.contains(&operation.name()), "{operation}");
        }
    }

    /// Bytes of `statements` and of the blocks in them.
    fn bytes(statements: &Vec<Statement>) -> usize {
        let blocks = statements.iter().map(|statement| match statement {
            Statement::For(ForText { body, .. }) | Statement::Repeat(RepeatText { body, .. }) => bytes(body),
            Statement::If(arms) => {
                arms.capacity() * size_of::<Arm>() + arms.iter().map(|arm| bytes(&arm.body)).sum::<usize>()
            }
            _ => 0,
        });
        statements.capacity() * size_of::<Statement>() + blocks.sum::<usize>()
    }

    /// The blocks of the longest source, of 8 MiB, take at most 200 MiB.
    #[test]
    fn blocks_take_little_memory() {
        for (head, tail) in [("if 1\n", "end\n"), ("if 1\n", "else\nend\n"), ("for i in 0..1\n", "end\n")] {
            let text = head.repeat(60) + &tail.repeat(60);
            let (limits, length) = (Limits::default(), text.len());
            let mut no_includes = |_: &str| Err(String::new());
            let mut parser = Parser::new(&mut no_includes, &limits);
            let statements = parser.file("main.seq", text, 0);
            assert!(parser.findings.is_empty());
            let found = bytes(&statements);
            assert!(found <= 25 * length, "{found} B for the {length} B of {head:?} {tail:?}");
        }
    }

    /// A field would hide a flag of the same name.
    #[test]
    fn flags_are_not_fields() {
        for (name, _) in fields::flags(Operation::Reduce) {
            assert!(FIELDS.iter().all(|field| field.keyword != name) && name != TAG, "{name}");
        }
    }
}
