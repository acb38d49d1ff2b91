//! Reads the tokens of one line: names, operands and expressions.

use super::diagnostic::{Finding, Span, did_you_mean};
use super::keywords::is_reserved;
use super::lexer::{Kind, Token};
use super::syntax::*;
use crate::{AddressSpace, Layout};

/// Levels of nested blocks, also across files, of nested files, and of nested parentheses: recursion goes no deeper.
pub(super) const DEPTH_MAX: usize = 64;
/// Values in one expression; each `-` or `not` before a value, pair of parentheses and function counts as one more.
const PARTS_MAX: usize = 256;

pub(super) type Result<T> = std::result::Result<T, Finding>;

/// Tokens of a line, from the first to the last.
pub(super) struct Cursor<'t> {
    pub(super) tokens: &'t [Token],
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) parts: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(tokens: &'t [Token]) -> Self {
        Cursor { tokens, at: 0, depth: 0, parts: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn next(&mut self) -> Option<&'t Token> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    /// Returns the place of the next token, or the end of the line.
    pub(super) fn place(&self) -> Span {
        match (self.peek(), self.tokens.last()) {
            (Some(token), _) => token.span,
            (None, Some(last)) => Span { column: last.span.column + last.span.width, width: 1, ..last.span },
            (None, None) => Span::default(),
        }
    }

    pub(super) fn expected(&mut self, form: &str) -> Finding {
        Finding::new(self.place(), form)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| matches!(&token.kind, Kind::Word(found) if found == word))
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        self.at += usize::from(is);
        is
    }

    pub(super) fn take_sign(&mut self, sign: &str) -> bool {
        let is = self.peek().is_some_and(|token| matches!(token.kind, Kind::Sign(found) if found == sign));
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect_word(&mut self, word: &str, form: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(form)) }
    }

    pub(super) fn expect_sign(&mut self, sign: &str, form: &str) -> Result<()> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.expected(form)) }
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(token) => Err(Finding::new(token.span, "expected the end of the line: a line has one statement")),
        }
    }

    pub(super) fn name(&mut self, what: &str) -> Result<Name> {
        let span = self.place();
        let Some(Token { kind: Kind::Word(text), .. }) = self.next() else {
            return Err(Finding::new(span, format!("expected the name of {what}")));
        };
        if is_reserved(text) {
            return Err(Finding::new(span, format!("`{text}` is reserved: choose another name for {what}")));
        }
        Ok(Name { text: text.clone(), span })
    }

    /// Reads one of the names of a field; these may be keywords elsewhere.
    pub(super) fn one_of(&mut self, field: &str, words: &[&'static str]) -> Result<Name> {
        let span = self.place();
        match self.next() {
            Some(Token { kind: Kind::Word(text), .. }) if words.contains(&text.as_str()) => {
                Ok(Name { text: text.clone(), span })
            }
            Some(Token { kind: Kind::Word(text), .. }) => {
                let mut hint = did_you_mean(text, words.iter().copied());
                if hint.is_empty() {
                    hint = format!(" (available: {})", words.join(", "));
                }
                Err(Finding::new(span, format!("unknown {field} `{text}`{hint}")))
            }
            _ => Err(Finding::new(span, format!("expected one of the names of `{field}`: {}", words.join(", ")))),
        }
    }

    /// Reads `card` or `host`, if it is next.
    pub(super) fn space(&mut self) -> Option<AddressSpace> {
        [AddressSpace::Card, AddressSpace::Host].into_iter().find(|space| self.take_word(space.name()))
    }

    pub(super) fn operand(&mut self) -> Result<OperandText> {
        let (start, space) = (self.place(), self.space());
        let value = self.expression()?;
        let (mut layout, mut argument) = (None, None);
        loop {
            if self.take_word("striped") {
                layout = Some(Layout::Striped);
            } else if self.take_word("unstriped") {
                layout = Some(Layout::Block);
            } else if argument.is_none() && self.take_word("argument") {
                argument = Some(self.expression()?);
            } else {
                break;
            }
        }
        let end = self.tokens[..self.at].last().map_or(start, |token| token.span);
        Ok(OperandText { space, value, layout, argument, span: start.to(end) })
    }

    pub(super) fn expression(&mut self) -> Result<Expression> {
        self.parts = 0;
        self.depth = 0;
        self.binary(0)
    }

    /// Reads an expression of operators of at least this precedence.
    pub(super) fn binary(&mut self, precedence: u8) -> Result<Expression> {
        // The expression itself is no level.
        if self.depth > DEPTH_MAX {
            let message =
                format!("expression nested too deeply: at most {DEPTH_MAX} levels; name a part of it with `const`");
            return Err(self.expected(&message));
        }
        self.depth += 1;
        let mut left = self.unary()?;
        while let Some((operator, binds)) = self.operator().filter(|(_, binds)| *binds >= precedence) {
            self.next();
            let right = self.binary(binds + 1)?;
            let span = left.span.to(right.span);
            left = Expression { node: Node::Binary(operator, Box::new((left, right))), span };
        }
        self.depth -= 1;
        Ok(left)
    }

    pub(super) fn operator(&self) -> Option<(Binary, u8)> {
        let found = match &self.peek()?.kind {
            Kind::Word(word) => word.as_str(),
            Kind::Sign(sign) => sign,
            _ => return None,
        };
        Binary::ALL.iter().find(|one| one.0 == found).map(|one| (one.1, one.2))
    }

    pub(super) fn unary(&mut self) -> Result<Expression> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            let message = format!("expression too long: at most {PARTS_MAX} values; name a part of it with `const`");
            return Err(self.expected(&message));
        }
        let start = self.place();
        let unary = |unary, operand: Expression| {
            let span = start.to(operand.span);
            Expression { node: Node::Unary(unary, Box::new(operand)), span }
        };
        if self.take_sign("-") {
            return Ok(unary(Unary::Negative, self.binary(Binary::NEGATIVE)?));
        }
        if self.take_word("not") {
            return Ok(unary(Unary::Not, self.binary(Binary::NOT)?));
        }
        self.primary(start)
    }

    pub(super) fn primary(&mut self, start: Span) -> Result<Expression> {
        const FORM: &str = "expected a value: a number, a name, `rank`, `ranks`, or an expression of these";
        let Some(token) = self.peek() else { return Err(self.expected(FORM)) };
        self.next();
        let node = match &token.kind {
            Kind::Number(value) => Node::Number(*value),
            Kind::Sign("(") => {
                let inner = self.binary(0)?;
                let end = self.place();
                self.expect_sign(")", "expected `)`")?;
                return Ok(Expression { node: inner.node, span: start.to(end) });
            }
            Kind::Sign("@") => {
                let name = self.name("a label")?;
                return Ok(Expression { node: Node::Label(name.text), span: start.to(name.span) });
            }
            Kind::Word(word) if word == "rank" => Node::Rank,
            Kind::Word(word) if word == "ranks" => Node::Ranks,
            Kind::Word(word) if is_reserved(word) => return Err(Finding::new(start, FORM)),
            Kind::Word(word) if self.take_sign("(") => {
                let Some((_, function)) = Function::ALL.into_iter().find(|(name, _)| name == word) else {
                    let names = Function::ALL.iter().map(|(name, _)| *name);
                    let hint = did_you_mean(word, names);
                    let message = format!("there is no function `{word}`; there are min, max, size and address{hint}");
                    return Err(Finding::new(start, message));
                };
                let mut arguments = vec![self.binary(0)?];
                while self.take_sign(",") {
                    arguments.push(self.binary(0)?);
                }
                let end = self.place();
                self.expect_sign(")", "expected `)`")?;
                let is_one = matches!(function, Function::Size | Function::Address);
                if is_one != (arguments.len() == 1) {
                    let wanted = if is_one { "one value" } else { "at least two values" };
                    return Err(Finding::new(start.to(end), format!("`{word}` takes {wanted}")));
                }
                return Ok(Expression { node: Node::Call(function, arguments), span: start.to(end) });
            }
            Kind::Word(word) => Node::Name(word.clone()),
            Kind::Text(_) | Kind::Sign(_) => return Err(Finding::new(start, FORM)),
        };
        Ok(Expression { node, span: token.span })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::asm::lexer;

    fn parsed(text: &str) -> std::result::Result<(), String> {
        let (tokens, _) = lexer::line(text, 0, 1);
        Cursor::new(&tokens).expression().map(drop).map_err(|finding| finding.message)
    }

    #[test]
    fn limits_of_an_expression_are_named() {
        let deep = format!("expression nested too deeply: at most {DEPTH_MAX} levels; name a part of it with `const`");
        let levels: [fn(usize) -> String; 4] = [
            |levels| format!("{}1{}", "(".repeat(levels), ")".repeat(levels)),
            |levels| format!("{}1{}", "min(1, ".repeat(levels), ")".repeat(levels)),
            |levels| format!("{}1", "-".repeat(levels)),
            |levels| format!("{}1", "not ".repeat(levels)),
        ];
        for text in levels {
            assert_eq!(parsed(&text(DEPTH_MAX)), Ok(()));
            assert_eq!(parsed(&text(DEPTH_MAX + 1)), Err(deep.clone()));
        }
        let long = format!("expression too long: at most {PARTS_MAX} values; name a part of it with `const`");
        let sum = |values: usize| format!("1{}", " + 1".repeat(values - 1));
        assert_eq!(parsed(&sum(PARTS_MAX)), Ok(()));
        assert_eq!(parsed(&sum(PARTS_MAX + 1)), Err(long.clone()));
        for two in ["(1)", "-1", "size(b)"] {
            let sum = |count: usize| vec![two; count].join(" + ");
            assert_eq!(parsed(&sum(PARTS_MAX / 2)), Ok(()), "{two}");
            assert_eq!(parsed(&sum(PARTS_MAX / 2 + 1)), Err(long.clone()), "{two}");
        }
    }

    #[test]
    fn limits_of_an_expression_are_documented() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/seq.md");
        let document = std::fs::read_to_string(path).unwrap();
        let words: Vec<&str> = document.split_whitespace().collect();
        let limits = format!("blocks and expressions nested at most {DEPTH_MAX} deep");
        assert!(words.join(" ").contains(&limits), "{limits}");
        let limits = format!("at most {PARTS_MAX} values in an expression");
        assert!(words.join(" ").contains(&limits), "{limits}");
    }
}
