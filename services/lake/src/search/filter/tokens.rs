//! Checks a filter's tokens before any parser sees them.
//!
//! The SQL parser, Lance's planner and DataFusion's planner recurse once per level of an expression (lance#7510,
//! datafusion#22229, datafusion#22936), and `a + a + a` has as many levels as operators: 948 bytes overflowed a stack
//! of 2 MiB, which ends the process. This check reads the tokens of the parser's own tokenizer from left to right,
//! without recursion, in time and memory linear in the filter's bytes. It refuses filters that are too deep, too long,
//! or cost more than their length shows. It accepts only the grammar that Lance's planner accepts: alternating operands
//! and operators, groups, calls of [allowed](super::functions) functions, casts, lists and subscripts. It refuses
//! everything else and names it, so a construct that a new parser adds does not pass unnoticed.
//!
//! The height of an expression is counted in the tree that the parser builds: an operator or a group adds one, and
//! `AND`s and `OR`s add twice the logarithm of their number (Lance builds balanced trees of them, and a tree of `AND`s
//! may be in one of `OR`s). `IS DISTINCT FROM` takes everything that follows as its right operand, including `AND` and
//! `OR`, so it adds one to the height of its whole group.

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer, Whitespace, Word};

use super::cast_types::{SQL_TYPES, cast_types, is_cast_type, is_decimal};
use super::example::EXAMPLE;
use super::functions::{Arguments, allowed_arguments, why_refused};
use super::group::{Group, GroupKind};
use super::limits::*;
use crate::error::words::quoted;

/// Lance's dialect for filters (`lance-datafusion/src/sql.rs`), which decides how a filter is split into tokens.
#[derive(Debug)]
struct LanceDialect;

impl Dialect for LanceDialect {
    fn is_identifier_start(&self, c: char) -> bool {
        GenericDialect.is_identifier_start(c)
    }

    fn is_identifier_part(&self, c: char) -> bool {
        GenericDialect.is_identifier_part(c)
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        c == '`'
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        GenericDialect.supports_bitwise_shift_operators()
    }

    fn dialect(&self) -> std::any::TypeId {
        GenericDialect.dialect()
    }
}

/// Checks that `filter` may be parsed, planned and evaluated. Returns how often its calls of functions and `LIKE`s read
/// the bytes of the columns, at most: each may read all of them, and the texts that are joined from them. The error says
/// what is wrong with it.
pub(in crate::search) fn check(filter: &str) -> Result<usize, String> {
    if filter.len() > BYTES_MAX {
        return Err(format!("it has {} bytes, and {BYTES_MAX} is the most", filter.len()));
    }
    let mut tokens = Tokenizer::new(&LanceDialect, filter)
        .tokenize()
        .map_err(|error| format!("{}; {EXAMPLE}", error.message))?;
    tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
    if tokens.len() > TOKENS_MAX {
        let count = tokens.len();
        return Err(format!("it has {count} tokens, and {TOKENS_MAX} is the most"));
    }
    TokenChecker::new(tokens).check()
}

/// The state of a check.
struct TokenChecker {
    tokens: Vec<Token>,
    /// The index of the next token.
    at: usize,
    /// The open groups, innermost last.
    groups: Vec<Group>,
    passes: usize,
    calls: usize,
    terms: usize,
    joins: usize,
    pattern_bytes: usize,
}

impl TokenChecker {
    fn new(tokens: Vec<Token>) -> Self {
        let groups = vec![Group::new(GroupKind::Filter, "")];
        Self { tokens, at: 0, groups, passes: 0, calls: 0, terms: 0, joins: 0, pattern_bytes: 0 }
    }

    fn check(mut self) -> Result<usize, String> {
        let mut wants_operand = true;
        while self.at < self.tokens.len() {
            wants_operand = match wants_operand {
                true => self.operand()?,
                false => self.operator()?,
            };
            self.check_counts()?;
        }
        if wants_operand {
            return Err(expected("an expression", None));
        }
        let group = self.groups.pop().filter(|group| group.kind == GroupKind::Filter);
        let mut filter = group.ok_or_else(|| expected("`)` or `]`", None))?;
        filter.end_piece()?;
        check_copies(filter.total_copies())?;
        check_height(filter.total_height())?;
        Ok(self.calls * (1 + self.joins))
    }

    fn check_counts(&self) -> Result<(), String> {
        // Refuses a filter before its end: the operators that all open groups have so far count as nested in each
        // other.
        check_height(self.groups.iter().map(|group| 1 + group.operators + group.distincts).sum())?;
        for (count, max, what) in [
            (self.passes, PASSES_MAX, "operators and calls"),
            (self.calls, CALLS_MAX, "calls of functions and `LIKE`s"),
            (self.terms, TERMS_MAX, "terms joined by `AND` and `OR`"),
            (self.joins, JOINS_MAX, "texts joined by `||` and `concat`"),
            (self.pattern_bytes, PATTERN_BYTES_MAX, "bytes in patterns and texts to search for"),
        ] {
            if count > max {
                return Err(format!(
                    "it has more than {max} {what}; give many values as a list: `column IN (1, 2, 3)`"
                ));
            }
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    /// Returns the word that is `ahead` tokens after the next token, in upper case, or an empty string if there is no
    /// unquoted word.
    fn keyword(&self, ahead: usize) -> String {
        match self.peek(ahead) {
            Some(Token::Word(Word { value, quote_style: None, .. })) => value.to_ascii_uppercase(),
            _ => String::new(),
        }
    }

    fn group(&mut self) -> &mut Group {
        // The outermost group, the filter, is closed only at the end.
        self.groups.last_mut().expect("a group is open")
    }

    /// Skips `count` tokens.
    fn skip(&mut self, count: usize) {
        self.at += count;
    }

    fn add_operator(&mut self) {
        self.passes += 1;
        self.group().operators += 1;
    }

    /// Counts an operator that the optimiser may rewrite as several with copies of the operand.
    fn add_copying_operator(&mut self) {
        self.add_operator();
        self.group().copies += 1;
    }

    /// Reads an operand or a prefix of one. Returns whether an operand has to follow.
    fn operand(&mut self) -> Result<bool, String> {
        if self.closes_empty() {
            self.close()?;
            return Ok(false);
        }
        self.group().is_empty = false;
        match self.peek(0) {
            Some(
                Token::Number(..) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_),
            )
            | Some(Token::HexStringLiteral(_)) => self.skip(1),
            Some(Token::Minus | Token::Plus) => {
                self.add_operator();
                self.skip(1);
                return Ok(true);
            }
            Some(Token::LParen) => return self.open(1, GroupKind::Nested, ""),
            Some(Token::LBracket) => return self.open(1, GroupKind::List, ""),
            Some(Token::Word(word)) if word.quote_style.is_some() => self.skip(1),
            Some(Token::Word(_)) => return self.word_operand(),
            other => return Err(expected("an expression", other)),
        }
        Ok(false)
    }

    /// Returns whether the next token closes an empty group of a kind that may be empty.
    fn closes_empty(&mut self) -> bool {
        let is_closed = matches!(self.peek(0), Some(Token::RParen | Token::RBracket));
        let group = self.group();
        is_closed && group.is_empty && matches!(group.kind, GroupKind::Call(_) | GroupKind::List)
    }

    fn word_operand(&mut self) -> Result<bool, String> {
        let word = self.keyword(0);
        let is_called = matches!(self.peek(1), Some(Token::LParen));
        match word.as_str() {
            "NOT" => {
                self.add_operator();
                self.skip(1);
                Ok(true)
            }
            "AND" | "OR" | "IN" | "IS" | "LIKE" | "ILIKE" | "BETWEEN" | "ESCAPE" | "AS" => {
                Err(expected("an expression", self.peek(0)))
            }
            "CAST" | "TRY_CAST" | "SAFE_CAST" if is_called => {
                self.add_operator();
                self.open(2, GroupKind::Cast, "")
            }
            _ if is_called => self.call(&word.to_ascii_lowercase()),
            "DATE" | "TIMESTAMP" | "DATETIME"
                if matches!(self.peek(1), Some(Token::SingleQuotedString(_))) =>
            {
                self.add_operator();
                self.skip(2);
                Ok(false)
            }
            _ => {
                self.skip(1);
                Ok(false)
            }
        }
    }

    fn call(&mut self, name: &str) -> Result<bool, String> {
        let arguments = allowed_arguments(name).ok_or_else(|| why_refused(name))?;
        self.calls += 1;
        self.add_operator();
        self.joins += usize::from(arguments == Arguments::Joined);
        if !matches!(arguments, Arguments::Count(_, 0 | 1)) {
            self.group().copies += 1;
        }
        self.open(2, GroupKind::Call(arguments), name)
    }

    /// Opens a group that begins with `tokens` tokens.
    fn open(&mut self, tokens: usize, kind: GroupKind, name: &str) -> Result<bool, String> {
        self.skip(tokens);
        self.groups.push(Group::new(kind, name));
        Ok(true)
    }

    /// Closes the innermost group with the next token.
    fn close(&mut self) -> Result<(), String> {
        let is_bracket = matches!(self.peek(0), Some(Token::RBracket));
        let closes = |kind| match kind {
            GroupKind::Filter | GroupKind::Cast => false,
            GroupKind::Nested | GroupKind::Call(_) | GroupKind::In => !is_bracket,
            GroupKind::List | GroupKind::Subscript => is_bracket,
        };
        let closing = if is_bracket { "]" } else { ")" };
        if !closes(self.group().kind) {
            return Err(format!("a `{closing}` closes nothing; {EXAMPLE}"));
        }
        self.skip(1);
        self.end_group()
    }

    fn end_group(&mut self) -> Result<(), String> {
        let mut group = self.groups.pop().expect("a group is open");
        group.end_piece()?;
        if let GroupKind::Call(arguments) = group.kind {
            let count = if group.is_empty { 0 } else { group.commas + 1 };
            check_count(&group.name, arguments, count)?;
        }
        let (height, copies) = (group.total_height(), group.total_copies());
        let parent = self.group();
        parent.inner_height = parent.inner_height.max(height);
        parent.inner_copies = parent.inner_copies.max(copies);
        Ok(())
    }

    /// Reads a token that may follow an operand. Returns whether an operand has to follow.
    fn operator(&mut self) -> Result<bool, String> {
        use Token as T;
        match self.peek(0) {
            Some(T::StringConcat) => {
                self.joins += 1;
                self.add_operator();
                self.skip(1);
                Ok(true)
            }
            Some(T::Eq | T::DoubleEq | T::Neq | T::Lt | T::Gt | T::LtEq | T::GtEq) => {
                self.add_copying_operator();
                self.skip(1);
                Ok(true)
            }
            Some(T::Plus | T::Minus | T::Mul | T::Div | T::Mod | T::ShiftLeft | T::ShiftRight) => {
                self.add_operator();
                self.skip(1);
                Ok(true)
            }
            Some(T::RParen | T::RBracket) => self.close().map(|()| false),
            Some(T::Comma) => self.comma().map(|()| true),
            Some(T::LBracket) => {
                self.add_operator();
                self.open(1, GroupKind::Subscript, "")
            }
            Some(T::Period) if matches!(self.peek(1), Some(T::Word(_))) => {
                if matches!(self.peek(2), Some(T::LParen)) {
                    return Err(expected("an operator", self.peek(2)));
                }
                self.add_operator();
                self.skip(2);
                Ok(false)
            }
            Some(T::DoubleColon) => {
                self.add_operator();
                self.skip(1);
                self.data_type().map(|()| false)
            }
            Some(T::Word(_)) => self.word_operator(),
            other => Err(expected("an operator", other)),
        }
    }

    fn comma(&mut self) -> Result<(), String> {
        self.skip(1);
        self.group().end_piece()?;
        match self.group().kind {
            GroupKind::In | GroupKind::List => {}
            GroupKind::Call(arguments) => {
                self.joins += usize::from(arguments == Arguments::Joined);
                self.group().commas += 1;
                self.check_argument(arguments)?;
            }
            GroupKind::Filter | GroupKind::Nested | GroupKind::Subscript | GroupKind::Cast => {
                return Err(expected("an operator", Some(&Token::Comma)));
            }
        }
        Ok(())
    }

    /// Checks the second argument of a call whose function requires a short text in quotes or a short list.
    fn check_argument(&mut self, arguments: Arguments) -> Result<(), String> {
        let name = self.group().name.clone();
        let is_path = match arguments {
            Arguments::Count(..) | Arguments::Joined => return Ok(()),
            Arguments::List => return self.check_list(&name),
            Arguments::Type => return self.check_type(&name),
            Arguments::Text => false,
            Arguments::Path => true,
        };
        let text = self.pattern(&format!("the second argument of `{name}`"), &[Token::RParen])?;
        let is_plain = |c: char| c.is_alphanumeric() || "_$.[]\"-: ".contains(c);
        if is_path && (!text.chars().all(is_plain) || text.contains("..")) {
            return Err(format!(
                "the path {} of `{name}` may select by names and positions only, like `$.a[0].b`",
                quoted(&text)
            ));
        }
        Ok(())
    }

    /// Checks that the second argument names a type that is not nested, whose values are about as long as the values
    /// that are cast.
    fn check_type(&mut self, name: &str) -> Result<(), String> {
        let text = self.pattern(&format!("the type of `{name}`"), &[Token::RParen])?;
        match is_cast_type(&text) {
            true => Ok(()),
            false => Err(format!(
                "`{name}` to {} is not offered; cast to {}",
                quoted(&text),
                cast_types()
            )),
        }
    }

    /// Checks that the call ends with a list of a few values.
    fn check_list(&self, name: &str) -> Result<(), String> {
        let is_value = |token: &Token| match token {
            Token::Number(..) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => true,
            Token::Word(word) => {
                ["TRUE", "FALSE", "NULL"].iter().any(|it| word.value.eq_ignore_ascii_case(it))
            }
            token => matches!(token, Token::Minus | Token::Comma),
        };
        let next = &self.tokens[self.at..];
        let inside = match next.split_first() {
            Some((Token::LBracket, after)) => after.split(|token| *token == Token::RBracket).next(),
            _ => None,
        };
        let ends = |inside: &&[Token]| {
            let then = next.get(inside.len() + 1..inside.len() + 3);
            inside.iter().all(is_value) && then == Some(&[Token::RBracket, Token::RParen])
        };
        let Some(inside) = inside.filter(ends) else {
            return Err(format!(
                "the second argument of `{name}` has to be a list of values, like `['a', 'b']`"
            ));
        };
        let items = 1 + inside.iter().filter(|token| **token == Token::Comma).count();
        match items > LIST_ITEMS_MAX {
            true => Err(format!(
                "the list of `{name}` has {items} values, and {LIST_ITEMS_MAX} is the most"
            )),
            false => Ok(()),
        }
    }

    /// Returns the text of the next token, and counts its bytes. Does not skip the token.
    ///
    /// The token has to be a text in quotes, followed by `AND`, `OR`, `ESCAPE` or `IS`, by one of `then`, or by the
    /// filter's end. If it is not, the error names it as `what`.
    fn pattern(&mut self, what: &str, then: &[Token]) -> Result<String, String> {
        let text = match self.peek(0) {
            Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text.clone(),
            _ => return Err(format!("{what} has to be a text in quotes")),
        };
        let is_end = match self.peek(1) {
            Some(Token::Word(_)) => {
                ["AND", "OR", "ESCAPE", "IS"].contains(&self.keyword(1).as_str())
            }
            Some(token) => then.contains(token),
            None => true,
        };
        if !is_end {
            return Err(format!("{what} has to be a text in quotes and nothing else"));
        }
        self.pattern_bytes += text.len();
        Ok(text)
    }

    fn word_operator(&mut self) -> Result<bool, String> {
        match self.keyword(0).as_str() {
            "AND" if self.group().betweens > 0 => {
                self.group().betweens -= 1;
                self.skip(1);
                Ok(true)
            }
            "AND" | "OR" => {
                (self.terms, self.passes) = (self.terms + 1, self.passes + 1);
                self.skip(1);
                let group = self.group();
                group.terms += 1;
                group.end_piece().map(|()| true)
            }
            "IS" => self.read_is(),
            "NOT" if self.keyword(1) == "NULL" => {
                self.add_operator();
                self.skip(2);
                Ok(false)
            }
            "NOT" => {
                self.add_operator();
                self.skip(1);
                self.set_operator()
            }
            "AS" if self.group().kind == GroupKind::Cast => {
                self.skip(1);
                self.data_type()?;
                if self.peek(0) != Some(&Token::RParen) {
                    return Err(expected("`)`", self.peek(0)));
                }
                self.skip(1);
                self.end_group().map(|()| false)
            }
            _ => self.set_operator(),
        }
    }

    /// Reads `IS [NOT] NULL` and the like.
    fn read_is(&mut self) -> Result<bool, String> {
        self.add_operator();
        self.skip(1);
        if self.keyword(0) == "NOT" {
            self.skip(1);
        }
        match self.keyword(0).as_str() {
            "NULL" | "TRUE" | "FALSE" => {
                self.skip(1);
                Ok(false)
            }
            "DISTINCT" if self.keyword(1) == "FROM" => {
                self.skip(2);
                self.group().distincts += 1;
                Ok(true)
            }
            _ => Err(expected("`NULL`, `TRUE`, `FALSE` or `DISTINCT FROM`", self.peek(0))),
        }
    }

    /// Reads `IN`, `LIKE`, `ILIKE` or `BETWEEN`; a `NOT` before it was already read. Returns whether an operand has to
    /// follow.
    fn set_operator(&mut self) -> Result<bool, String> {
        match self.keyword(0).as_str() {
            "IN" => {
                if self.peek(1) != Some(&Token::LParen) {
                    return Err(expected("`(`", self.peek(1)));
                }
                self.add_copying_operator();
                self.open(2, GroupKind::In, "")
            }
            "LIKE" | "ILIKE" => {
                self.add_operator();
                self.calls += 1;
                self.skip(1);
                self.pattern("the pattern of `LIKE`", &[Token::RParen, Token::Comma])?;
                self.skip(1);
                if self.keyword(0) == "ESCAPE" {
                    if !matches!(self.peek(1), Some(Token::SingleQuotedString(_))) {
                        return Err(expected("a text in quotes", self.peek(1)));
                    }
                    self.skip(2);
                }
                Ok(false)
            }
            "BETWEEN" => {
                self.add_copying_operator();
                self.group().betweens += 1;
                self.skip(1);
                Ok(true)
            }
            _ => Err(expected("an operator", self.peek(0))),
        }
    }

    /// Reads the type of a cast.
    fn data_type(&mut self) -> Result<(), String> {
        let name = self.keyword(0).to_ascii_lowercase();
        if !SQL_TYPES.contains(&name.as_str()) {
            return Err(expected(
                &format!("one of the types {}", SQL_TYPES.join(", ")),
                self.peek(0),
            ));
        }
        self.skip(1);
        if name.ends_with("int") || name == "integer" {
            self.skip(usize::from(self.keyword(0) == "UNSIGNED"));
        }
        match name.as_str() {
            "decimal" => self.decimal_digits(),
            "timestamp" | "datetime" if self.peek(0) == Some(&Token::LParen) => {
                match (self.peek(1), self.peek(2)) {
                    (Some(Token::Number(..)), Some(Token::RParen)) => {
                        self.skip(3);
                        Ok(())
                    }
                    (other, _) => Err(expected("0, 3, 6 or 9 and a `)`", other)),
                }
            }
            _ => Ok(()),
        }
    }

    /// Reads the precision and scale of a decimal. They are checked here, because Lance passes their last eight bits on
    /// to Arrow unchecked.
    fn decimal_digits(&mut self) -> Result<(), String> {
        let number = |token: Option<&Token>| match token {
            Some(Token::Number(digits, _)) => digits.parse::<u8>().ok(),
            _ => None,
        };
        let signs = [self.peek(0), self.peek(2), self.peek(4)];
        let are_signs = signs == [Some(&Token::LParen), Some(&Token::Comma), Some(&Token::RParen)];
        match (number(self.peek(1)), number(self.peek(3))) {
            (Some(digits), Some(scale)) if are_signs && is_decimal(digits, scale) => {
                self.skip(5);
                Ok(())
            }
            _ => Err(format!(
                "a decimal is written like `decimal(10, 2)`, with 1 to {DECIMAL_DIGITS_MAX} digits"
            )),
        }
    }
}

fn check_count(name: &str, arguments: Arguments, count: usize) -> Result<(), String> {
    let (least, most) = match arguments {
        Arguments::Count(least, most) => (least, most),
        Arguments::Joined => (1, JOINS_MAX),
        Arguments::Text | Arguments::List | Arguments::Path | Arguments::Type => (2, 2),
    };
    match (least..=most).contains(&count) {
        true => Ok(()),
        false if least == most => Err(format!("`{name}` takes {least} arguments, not {count}")),
        false => Err(format!("`{name}` takes {least} to {most} arguments, not {count}")),
    }
}

/// Returns an error in the words of SQL parsers, which users know.
fn expected(what: &str, found: Option<&Token>) -> String {
    let found = match found {
        None => "its end".to_owned(),
        Some(Token::Whitespace(Whitespace::Space)) => "a space".to_owned(),
        Some(token) => match token.to_string() {
            text if text.len() < 24 && !text.contains(char::is_control) => text,
            text => quoted(&text),
        },
    };
    format!("expected {what}, found {found}; {EXAMPLE}")
}
