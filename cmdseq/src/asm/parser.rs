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
    sources: &'a mut dyn Sources,
    limits: &'a Limits,
    pub(super) files: Files,
    pub(super) findings: Vec<Finding>,
    /// Whether parsing ended early, after many errors.
    pub(super) is_partial: bool,
    bytes: usize,
    /// Files being parsed, the outermost first.
    chain: Vec<String>,
}

/// A block without its `end` so far.
enum Open {
    For(Option<Box<RoundText>>, Span),
    Repeat(Option<Box<RepeatHead>>, Span),
    /// The branches before the last one, and the condition and place of the last one.
    If(Vec<Arm>, Option<Expression>, Span),
    /// Any block nested too deeply, by its first word.
    TooDeep {
        word: String,
        span: Span,
        /// Blocks in it without their `end` so far. They are only counted: there may be as many as lines.
        inner: usize,
    },
}

/// Some editors begin a file with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Words that open, continue or close a block.
const BLOCKS: [&str; 5] = ["for", "repeat", "if", "else", "end"];

impl<'a> Parser<'a> {
    pub(super) fn new(sources: &'a mut dyn Sources, limits: &'a Limits) -> Self {
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
        let mut bodies: Vec<Vec<Statement>> = vec![Vec::new()];
        let mut open: Vec<Open> = Vec::new();
        for (number, text) in (1..).zip(text.lines()) {
            if self.findings.len() >= FINDINGS_MAX {
                self.is_partial = true;
                open.clear();
                break;
            }
            let (tokens, error) = lexer::line(text, file, number);
            let error = match error {
                None => self.line(&tokens, &mut bodies, &mut open, depth).err(),
                Some(error) => {
                    // A block with a wrong head is one all the same: its `end` is no further error.
                    if first_word(&tokens).is_some_and(|word| BLOCKS.contains(&word)) {
                        let _ = self.line(&tokens, &mut bodies, &mut open, depth);
                    }
                    Some(error)
                }
            };
            self.findings.extend(error);
        }
        self.files.0[file as usize].1 = text;
        for block in &open {
            let (what, span) = match block {
                Open::For(_, span) => ("for", *span),
                Open::Repeat(_, span) => ("repeat", *span),
                // The first branch begins at the `if`, and the last at an `else`.
                Open::If(arms, _, last) => ("if", arms.first().map_or(*last, |arm| arm.span)),
                Open::TooDeep { word, span, .. } => (word.as_str(), *span),
            };
            self.findings.push(Finding::new(span, format!("`{what}` without `end`")));
        }
        bodies.swap_remove(0)
    }

    fn line(
        &mut self,
        tokens: &[Token],
        bodies: &mut Vec<Vec<Statement>>,
        open: &mut Vec<Open>,
        depth: usize,
    ) -> Result<()> {
        let mut cursor = Cursor::new(tokens);
        if is_labelled(tokens) {
            // After a wrong label, the statement counts all the same: it may open a block.
            match label(&mut cursor, open) {
                Ok(name) => push(bodies, Statement::Label(name)),
                Err(finding) => self.findings.push(finding),
            }
        }
        let Some(first) = cursor.peek() else { return Ok(()) };
        let span = first.span;
        let Kind::Word(word) = &first.kind else {
            return Err(Finding::new(span, "expected an operation, a label or a keyword"));
        };
        let opens = matches!(word.as_str(), "for" | "repeat" | "if");
        if opens && open.len() + depth >= DEPTH_MAX {
            if let Some(Open::TooDeep { inner, .. }) = open.last_mut() {
                *inner += 1;
                return Ok(());
            }
            bodies.push(Vec::new());
            open.push(Open::TooDeep { word: word.clone(), span, inner: 0 });
            return Err(Finding::new(span, format!("blocks nested too deeply: at most {DEPTH_MAX} levels")));
        }
        cursor.next();
        match word.as_str() {
            "for" => {
                let head = round(&mut cursor).and_then(|head| cursor.finish().map(|()| head));
                bodies.push(Vec::new());
                let (head, error) = split(head.map(Box::new));
                open.push(Open::For(head, span));
                error.map_or(Ok(()), Err)
            }
            "repeat" => {
                let head = repeat_head(&mut cursor);
                bodies.push(Vec::new());
                let (head, error) = split(head.map(Box::new));
                open.push(Open::Repeat(head, span));
                error.map_or(Ok(()), Err)
            }
            "if" => {
                let condition = cursor.expression().and_then(|condition| cursor.finish().map(|()| condition));
                bodies.push(Vec::new());
                let (condition, error) = split(condition);
                open.push(Open::If(Vec::new(), condition, span));
                error.map_or(Ok(()), Err)
            }
            "else" => self.otherwise(&mut cursor, span, bodies, open),
            "end" => {
                close(span, bodies, open)?;
                cursor.finish()
            }
            "include" => {
                let statements = self.include(&mut cursor, span, depth + open.len())?;
                push(bodies, Statement::Include(statements));
                Ok(())
            }
            "buffer" | "communicator" | "blocks" if open.iter().any(|block| matches!(block, Open::For(..))) => {
                let what = if word == "blocks" { "table" } else { word };
                let message = format!("a {what} in a `for` would be defined several times: move it out of the loop");
                Err(Finding::new(span, message))
            }
            _ => {
                let statement = statement(word, span, &mut cursor)?;
                cursor.finish()?;
                push(bodies, statement);
                Ok(())
            }
        }
    }

    fn otherwise(
        &mut self,
        cursor: &mut Cursor<'_>,
        span: Span,
        bodies: &mut Vec<Vec<Statement>>,
        open: &mut [Open],
    ) -> Result<()> {
        let (arms, condition, start) = match open.last_mut() {
            Some(Open::If(arms, condition, start)) => (arms, condition, start),
            Some(Open::TooDeep { word, inner, .. }) if word == "if" || *inner > 0 => return Ok(()),
            _ => return Err(Finding::new(span, "`else` without `if`")),
        };
        let mut body = std::mem::take(last(bodies));
        if condition.is_none() && !arms.is_empty() && arms.iter().all(|arm| arm.condition.is_some()) {
            *last(bodies) = body;
            return Err(Finding::new(span, "`else` after the last `else` of this `if`"));
        }
        body.shrink_to_fit();
        arms.push(Arm { condition: condition.take(), span: *start, body });
        *start = span;
        if cursor.take_word("if") {
            let (found, error) = split(cursor.expression());
            // The error is reported; the arm has a condition all the same.
            *condition = Some(found.unwrap_or(Expression { node: Node::Number(0), span }));
            if let Some(error) = error {
                return Err(error);
            }
        }
        cursor.finish()
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
        let text = self.sources.read(&path).map_err(|cause| refuse(format!("cannot read {path}: {cause}")))?;
        if text.len() > self.limits.source_bytes.saturating_sub(self.bytes) {
            let most = self.limits.source_bytes;
            return Err(refuse(format!("with {path}, the source is longer than {most} B (limit source_bytes)")));
        }
        Ok(self.file(&path, text, depth))
    }
}

fn split<T>(outcome: Result<T>) -> (Option<T>, Option<Finding>) {
    match outcome {
        Ok(value) => (Some(value), None),
        Err(finding) => (None, Some(finding)),
    }
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

fn label(cursor: &mut Cursor<'_>, open: &[Open]) -> Result<Name> {
    let name = cursor.name("a label");
    cursor.next();
    let name = name?;
    if open.iter().any(|block| matches!(block, Open::For(..))) {
        let message = "a label in a `for` would label several instructions: move it out of the loop";
        return Err(Finding::new(name.span, message));
    }
    Ok(name)
}

/// The innermost open block; there always is one.
fn last(bodies: &mut Vec<Vec<Statement>>) -> &mut Vec<Statement> {
    if bodies.is_empty() {
        bodies.push(Vec::new());
    }
    let at = bodies.len() - 1;
    &mut bodies[at]
}

fn push(bodies: &mut Vec<Vec<Statement>>, statement: Statement) {
    last(bodies).push(statement);
}

fn close(span: Span, bodies: &mut Vec<Vec<Statement>>, open: &mut Vec<Open>) -> Result<()> {
    if let Some(Open::TooDeep { inner: inner @ 1.., .. }) = open.last_mut() {
        *inner -= 1;
        return Ok(());
    }
    let block = open.pop().ok_or_else(|| Finding::new(span, "`end` without a block"))?;
    let mut body = bodies.pop().unwrap_or_default();
    // A long source has many blocks: none keeps room for statements that do not come.
    body.shrink_to_fit();
    match block {
        Open::For(Some(head), _) => push(bodies, Statement::For(ForText { head, body })),
        Open::Repeat(Some(head), span) => push(bodies, Statement::Repeat(RepeatText { span, head, body })),
        // The error in its head is reported.
        Open::For(None, _) | Open::Repeat(None, _) | Open::TooDeep { .. } => {}
        Open::If(mut arms, condition, span) => {
            arms.reserve_exact(1);
            arms.push(Arm { condition, span, body });
            arms.shrink_to_fit();
            push(bodies, Statement::If(arms));
        }
    }
    Ok(())
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
    let space = if cursor.take_word("card") {
        AddressSpace::Card
    } else if cursor.take_word("host") {
        AddressSpace::Host
    } else {
        return Err(cursor.expected(FORM));
    };
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
    let is_given = |field: &Field| text.fields.iter().any(|(given, _)| given.keyword == field.keyword);
    let missing: Vec<String> = fields::of(operation)
        .filter(|field| !fields::is_optional(field, operation) && !is_given(field))
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
