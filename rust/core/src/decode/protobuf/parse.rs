//! A `.proto` text as a tree: messages, enums and fields, their types still by name.
//!
//! Services, extensions, reserved ranges and most options say nothing about the bytes of a message
//! and are skipped.

use super::lexer::{Word, words};
use super::{descriptor, invalid};
use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};

/// Field numbers have 29 bits.
pub(super) const NUMBER_MAX: u32 = (1 << 29) - 1;

/// A parsed file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) package: String,
    /// Whether it is of the syntax `proto2`, the default.
    pub(super) is_proto2: bool,
    pub(super) imports: Vec<String>,
    pub(super) messages: Vec<Message>,
    pub(super) enums: Vec<Enum>,
}

/// A message type, with those inside of it.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
    pub(super) oneofs: Vec<String>,
    pub(super) messages: Vec<Message>,
    pub(super) enums: Vec<Enum>,
}

#[derive(Debug, Default)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) values: Vec<(String, i32)>,
}

/// The word in front of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    None,
    Optional,
    Required,
    Repeated,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) label: Label,
    /// The type by its name; of a map, that of its values.
    pub(super) of: String,
    /// The type of a map's keys.
    pub(super) key: Option<String>,
    /// The oneof that it is a member of.
    pub(super) oneof: Option<usize>,
    /// The parameters of `confluent.field_meta`.
    pub(super) parameters: Vec<(String, String)>,
}

/// Reads a file, whichever form it has.
pub(super) fn file(text: &str) -> Result<File> {
    match descriptor::bytes(text) {
        Some(bytes) => descriptor::file(&bytes),
        None => parse(text),
    }
}

/// Parses a file.
fn parse(text: &str) -> Result<File> {
    let mut parser = Parser {
        words: words(text)?,
        at: 0,
        left: SCHEMA_FIELDS_MAX,
    };
    let mut file = File {
        is_proto2: true,
        ..File::default()
    };
    while let Some(word) = parser.next() {
        match &word {
            Word::Symbol(';') => {}
            Word::Name(name) => match name.as_str() {
                "syntax" => {
                    parser.symbol('=')?;
                    file.is_proto2 = parser.text()? == "proto2";
                    parser.symbol(';')?;
                }
                "edition" => {
                    file.is_proto2 = false;
                    parser.statement()?;
                }
                "package" => {
                    file.package = parser.name()?;
                    parser.symbol(';')?;
                }
                "import" => {
                    if !parser.take_name("public") {
                        parser.take_name("weak");
                    }
                    let import = parser.text()?;
                    file.imports.push(import);
                    parser.symbol(';')?;
                }
                "message" => file.messages.push(parser.message(1)?),
                "enum" => file.enums.push(parser.enumeration()?),
                "option" | "service" | "extend" => parser.statement()?,
                _ => return Err(invalid("a .proto text has a statement that is not known")),
            },
            _ => return Err(invalid("a .proto text has something that is no statement")),
        }
    }
    Ok(file)
}

struct Parser {
    words: Vec<Word>,
    at: usize,
    /// Fields, types and values that may still come.
    left: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Word> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    fn peek(&self) -> Option<&Word> {
        self.words.get(self.at)
    }

    fn is_symbol(&self, symbol: char) -> bool {
        self.peek() == Some(&Word::Symbol(symbol))
    }

    fn take_symbol(&mut self, symbol: char) -> bool {
        let is_one = self.is_symbol(symbol);
        self.at += usize::from(is_one);
        is_one
    }

    fn take_name(&mut self, name: &str) -> bool {
        let is_one = matches!(self.peek(), Some(Word::Name(word)) if word == name);
        self.at += usize::from(is_one);
        is_one
    }

    fn symbol(&mut self, symbol: char) -> Result<()> {
        match self.take_symbol(symbol) {
            true => Ok(()),
            false => Err(invalid(format!("a .proto text lacks `{symbol}`"))),
        }
    }

    fn name(&mut self) -> Result<String> {
        match self.next() {
            Some(Word::Name(name)) => Ok(name),
            _ => Err(invalid("a .proto text lacks a name")),
        }
    }

    fn text(&mut self) -> Result<String> {
        match self.next() {
            Some(Word::Text(text)) => Ok(text),
            _ => Err(invalid("a .proto text lacks a text in quotes")),
        }
    }

    fn number(&mut self) -> Result<i64> {
        let is_negative = self.take_symbol('-');
        let Some(Word::Number(word)) = self.next() else {
            return Err(invalid("a .proto text lacks a number"));
        };
        let lower = word.to_ascii_lowercase();
        let number = if let Some(digits) = lower.strip_prefix("0x") {
            i64::from_str_radix(digits, 16)
        } else if lower.len() > 1 && lower.starts_with('0') {
            i64::from_str_radix(&lower, 8)
        } else {
            lower.parse()
        };
        let number = number.map_err(|_| invalid("a number of a .proto text is not whole"))?;
        Ok(if is_negative { -number } else { number })
    }

    fn spend(&mut self) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            let message = format!("a .proto text has more than {SCHEMA_FIELDS_MAX} fields");
            SinkError::data("SCHEMA_TOO_LARGE", message)
        })?;
        Ok(())
    }

    /// Skips to the end of a statement: a semicolon, or the end of its block.
    fn statement(&mut self) -> Result<()> {
        let mut depth = 0_usize;
        while let Some(word) = self.next() {
            match word {
                Word::Symbol('{' | '[' | '(') => depth += 1,
                Word::Symbol(closing @ ('}' | ']' | ')')) => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or_else(|| invalid("a .proto text closes what is not open"))?;
                    // `option (x) = {…};` ends with its semicolon, a service with its block.
                    if depth == 0 && closing == '}' {
                        self.take_symbol(';');
                        return Ok(());
                    }
                }
                Word::Symbol(';') if depth == 0 => return Ok(()),
                _ => {}
            }
        }
        Err(invalid("a .proto text ends inside of a statement"))
    }

    fn message(&mut self, depth: usize) -> Result<Message> {
        if depth > NESTING_MAX {
            let message = format!("a .proto text nests deeper than {NESTING_MAX} levels");
            return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
        }
        self.spend()?;
        let mut message = Message {
            name: self.name()?,
            ..Message::default()
        };
        self.symbol('{')?;
        while !self.take_symbol('}') {
            if self.take_symbol(';') {
                continue;
            }
            let Some(Word::Name(word)) = self.peek().cloned() else {
                return Err(invalid("a message of a .proto text has no end"));
            };
            match word.as_str() {
                "message" => {
                    self.at += 1;
                    message.messages.push(self.message(depth + 1)?);
                }
                "enum" => {
                    self.at += 1;
                    message.enums.push(self.enumeration()?);
                }
                "oneof" => {
                    self.at += 1;
                    self.oneof(&mut message)?;
                }
                "option" | "reserved" | "extensions" | "extend" => self.statement()?,
                _ => {
                    let field = self.field(None)?;
                    message.fields.push(field);
                }
            }
        }
        Ok(message)
    }

    fn oneof(&mut self, message: &mut Message) -> Result<()> {
        self.spend()?;
        let name = self.name()?;
        let index = message.oneofs.len();
        message.oneofs.push(name);
        self.symbol('{')?;
        while !self.take_symbol('}') {
            if matches!(self.peek(), Some(Word::Name(word)) if word == "option") {
                self.statement()?;
            } else if !self.take_symbol(';') {
                let field = self.field(Some(index))?;
                message.fields.push(field);
            }
        }
        Ok(())
    }

    fn field(&mut self, oneof: Option<usize>) -> Result<Field> {
        self.spend()?;
        let label = match self.peek() {
            Some(Word::Name(word)) => match word.as_str() {
                "optional" => Label::Optional,
                "required" => Label::Required,
                "repeated" => Label::Repeated,
                _ => Label::None,
            },
            _ => Label::None,
        };
        self.at += usize::from(label != Label::None);
        let mut of = self.name()?;
        let mut key = None;
        if of == "group" {
            let message = "a group of a .proto text has no column type: use a message";
            return Err(SinkError::data("SCHEMA_TYPE_UNSUPPORTED", message));
        }
        if of == "map" && self.take_symbol('<') {
            key = Some(self.name()?);
            self.symbol(',')?;
            of = self.name()?;
            self.symbol('>')?;
        }
        let name = self.name()?;
        self.symbol('=')?;
        let number = u32::try_from(self.number()?).ok();
        let number = number.filter(|number| (1..=NUMBER_MAX).contains(number));
        let number = number.ok_or_else(|| {
            invalid("the number of a field in a .proto text is out of bounds").with("field", &name)
        })?;
        let mut parameters = Vec::new();
        if self.take_symbol('[') {
            self.options(&mut parameters)?;
        }
        self.symbol(';')?;
        Ok(Field {
            name,
            number,
            label,
            of,
            key,
            oneof,
            parameters,
        })
    }

    /// Reads the options of a field, up to their closing bracket. Those of Confluent are
    /// `(confluent.field_meta) = {params: [{key: "scale", value: "2"}, …]}` or
    /// `(confluent.field_meta).params = {key: "scale", value: "2"}`.
    fn options(&mut self, parameters: &mut Vec<(String, String)>) -> Result<()> {
        let mut depth = 1_usize;
        let mut is_meta = false;
        let mut key = None;
        while let Some(word) = self.next() {
            match word {
                Word::Symbol('[' | '{') => depth += 1,
                Word::Symbol(']' | '}') => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                Word::Symbol(',') if depth == 1 => is_meta = false,
                Word::Name(name) if depth == 1 && name.ends_with("field_meta") => is_meta = true,
                Word::Name(name) if is_meta && (name == "key" || name == "value") => {
                    self.take_symbol(':');
                    let Some(Word::Text(text)) = self.peek().cloned() else {
                        continue;
                    };
                    self.at += 1;
                    match (name.as_str(), key.take()) {
                        ("key", _) => key = Some(text),
                        (_, Some(key)) => parameters.push((key, text)),
                        (_, None) => {}
                    }
                }
                _ => {}
            }
        }
        Err(invalid(
            "the options of a field in a .proto text have no end",
        ))
    }

    fn enumeration(&mut self) -> Result<Enum> {
        self.spend()?;
        let mut enumeration = Enum {
            name: self.name()?,
            values: Vec::new(),
        };
        self.symbol('{')?;
        while !self.take_symbol('}') {
            if self.take_symbol(';') {
                continue;
            }
            let follows = self.words.get(self.at + 1);
            if follows != Some(&Word::Symbol('=')) {
                self.statement()?;
                continue;
            }
            self.spend()?;
            let name = self.name()?;
            self.symbol('=')?;
            let number = i32::try_from(self.number()?).map_err(|_| {
                invalid("the number of an enum's value in a .proto text is out of bounds")
            })?;
            if self.take_symbol('[') {
                self.options(&mut Vec::new())?;
            }
            self.symbol(';')?;
            enumeration.values.push((name, number));
        }
        match enumeration.values.is_empty() {
            false => Ok(enumeration),
            true => Err(invalid("an enum of a .proto text has no values")),
        }
    }
}
