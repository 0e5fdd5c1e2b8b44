//! Regular expressions in Java's syntax, matched as Java's `matches()` does: the whole text.
//!
//! What the two dialects write alike and mean differently is translated (`\d`, `\w`, `\s`, `\b`,
//! `.`, `\Q…\E`, POSIX classes, escaped letters such as `\<`); what cannot be said here is refused
//! (look-around, back-references, possessive quantifiers and a few rare classes), so that no pattern
//! matches other texts than Java's would.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use regex::{Captures, Regex, RegexBuilder};

/// Bytes of memory that a compiled pattern may take.
const SIZE_MAX: usize = 1 << 20;
/// What Java's `.` does not match.
const NOT_A_LINE_END: &str = r"[^\n\r\x{85}\x{2028}\x{2029}]";

/// A regular expression that matches whole texts.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl Pattern {
    /// Compiles `text`, a regular expression as Java writes it. The error says what is wrong with
    /// it, without naming a key.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let translated = translate(text)?;
        let regex = RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
            .size_limit(SIZE_MAX)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
                error => format!(
                    "not a regular expression that is understood: {}",
                    why(&error)
                ),
            })?;
        Ok(Pattern {
            text: text.to_owned(),
            regex,
        })
    }

    /// Tells whether all of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the groups of a match of all of `text`.
    pub fn groups<'t>(&self, text: &'t str) -> Option<Captures<'t>> {
        self.regex.captures(text)
    }

    /// Tells whether there is a group called or numbered `name`.
    pub fn has_group(&self, name: &str) -> bool {
        match name.parse::<usize>() {
            Ok(number) => number < self.regex.captures_len(),
            Err(_) => self.regex.capture_names().flatten().any(|own| own == name),
        }
    }
}

/// The last line of the crate's message: the others draw the pattern.
fn why(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    line.trim_start_matches("error:").trim().to_owned()
}

fn translate(text: &str) -> Result<String, String> {
    let mut translator = Translator {
        letters: text.chars().peekable(),
        out: String::with_capacity(text.len() + 16),
        depth: 0,
        dot_matches_all: false,
    };
    translator.run()?;
    Ok(translator.out)
}

struct Translator<'a> {
    letters: Peekable<Chars<'a>>,
    out: String,
    /// How many brackets are open.
    depth: usize,
    dot_matches_all: bool,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut after_quantifier = false;
        while let Some(letter) = self.letters.next() {
            let quantifier = self.depth == 0 && matches!(letter, '*' | '+' | '?' | '}');
            match letter {
                '+' if after_quantifier => {
                    return Err("possessive quantifiers such as `*+` are not supported".to_owned());
                }
                '\\' => self.escape()?,
                '.' if self.depth == 0 && !self.dot_matches_all => {
                    self.out.push_str(NOT_A_LINE_END)
                }
                '(' if self.depth == 0 => self.group()?,
                '[' => self.open()?,
                ']' if self.depth > 0 => {
                    self.depth -= 1;
                    self.out.push(letter);
                }
                // Operators of sets here, letters in Java.
                '~' | '-' if self.depth > 0 && self.letters.peek() == Some(&letter) => {
                    return Err(format!(
                        "`{letter}{letter}` within brackets is not supported"
                    ));
                }
                letter => self.out.push(letter),
            }
            after_quantifier = quantifier;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        if self.letters.peek() == Some(&':') {
            return Err("`[:` is not supported; write `\\p{Alpha}` and the like".to_owned());
        }
        self.depth += 1;
        self.out.push('[');
        if self.letters.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        // A bracket that comes first is a letter in Java's older syntax and an error in its newer one.
        if self.letters.peek() == Some(&']') {
            return Err("brackets without content are not supported; write `\\]`".to_owned());
        }
        Ok(())
    }

    /// After `(`: looks at flags, which change what a dot means.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.letters.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        while let Some(flag) = self.letters.next_if(|letter| letter.is_ascii_alphabetic()) {
            match flag {
                's' => self.dot_matches_all = true,
                'i' | 'm' => {}
                flag => return Err(format!("the flag `{flag}` is not supported")),
            }
            self.out.push(flag);
        }
        match self.letters.peek() {
            Some('=' | '!' | '>') => {
                Err("look-around and atomic groups are not supported".to_owned())
            }
            Some('-') => Err("taking flags away is not supported".to_owned()),
            _ => Ok(()),
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(letter) = self.letters.next() else {
            return Err("a backslash at the end".to_owned());
        };
        let set = match letter {
            'd' => "0-9",
            'w' => "a-zA-Z0-9_",
            's' => r" \t\n\x0B\f\r",
            'D' => "^0-9",
            'W' => "^a-zA-Z0-9_",
            'S' => r"^ \t\n\x0B\f\r",
            'h' => r" \t\x{A0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}",
            _ => return self.other_escape(letter),
        };
        // Nested brackets are a union in both dialects.
        self.out.push('[');
        self.out.push_str(set);
        self.out.push(']');
        Ok(())
    }

    fn other_escape(&mut self, letter: char) -> Result<(), String> {
        match letter {
            'Q' => {
                self.quoted();
                return Ok(());
            }
            'b' | 'B' if self.depth == 0 && self.letters.peek() != Some(&'{') => {
                self.out.push_str(if letter == 'b' {
                    r"(?-u:\b)"
                } else {
                    r"(?-u:\B)"
                });
            }
            'p' | 'P' => return self.property(letter == 'P'),
            't' | 'n' | 'r' | 'f' | 'a' | 'A' | 'z' | 'x' | 'u' => {
                self.out.push('\\');
                self.out.push(letter);
            }
            'e' => self.out.push_str(r"\x1B"),
            letter if letter.is_ascii_alphanumeric() => {
                return Err(format!("`\\{letter}` is not supported"));
            }
            letter => self.literal(letter),
        }
        Ok(())
    }

    fn quoted(&mut self) {
        while let Some(letter) = self.letters.next() {
            if letter == '\\' && self.letters.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(letter);
        }
    }

    fn literal(&mut self, letter: char) {
        self.out
            .push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
    }

    fn property(&mut self, negated: bool) -> Result<(), String> {
        let mut name = String::new();
        match self.letters.next() {
            Some('{') => loop {
                match self.letters.next() {
                    Some('}') => break,
                    Some(letter) => name.push(letter),
                    None => return Err("`\\p{` without its end".to_owned()),
                }
            },
            Some(letter) => name.push(letter),
            None => return Err("`\\p` without a name".to_owned()),
        }
        let posix = [
            "Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print",
            "Blank", "Cntrl", "XDigit", "Space",
        ];
        let hat = if negated { "^" } else { "" };
        if posix.contains(&name.as_str()) {
            let name = name.to_ascii_lowercase();
            self.out.push_str(&format!("[{hat}[:{name}:]]"));
            return Ok(());
        }
        // General categories mean the same in both; other properties of Java have other names.
        let category = name.strip_prefix("Is").unwrap_or(&name);
        if category.is_empty() || category.len() > 2 || !category.chars().all(char::is_alphabetic) {
            return Err(format!("the class `\\p{{{name}}}` is not supported"));
        }
        self.out.push_str(&format!("[{hat}\\p{{{category}}}]"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).expect(pattern).matches(text)
    }

    // Promise: A route pattern matches whole values as in Java: `lis` does not take `list`.
    #[test]
    fn the_whole_text_has_to_match() {
        for (pattern, text, expected) in [
            ("lis", "lis", true),
            ("lis", "list", false),
            ("a|ab", "ab", true),
            (".*", "a\nb", false),
            ("(?s).*", "a\nb", true),
            (".", "\u{2028}", false),
            ("foo$", "foo", true),
            ("foo$", "foo\n", false),
            ("^foo", "foo", true),
            (r"\d+", "123", true),
            (r"\d+", "١٢٣", false),
            (r"[\d_]+", "1_2", true),
            (r"\w+", "größe", false),
            (r"\W", "ö", true),
            (r"[^\w]", "ö", true),
            (r"\Qa.b\E.", "a.bc", true),
            (r"\Qa.b", "a.b", true),
            (r"\p{Alpha}+", "abc", true),
            (r"\p{Alpha}+", "ä", false),
            (r"\p{Lu}", "Ä", true),
            (r"\p{IsL}", "ä", true),
            (r"\P{Digit}", "1", false),
            (r"[\p{Alpha}.]+", "a.b", true),
            (r"\<\ä\-", "<ä-", true),
            ("(?i)Orders", "oRDERS", true),
            ("(?<env>dev|prod)_.+", "dev_x", true),
            ("[a-c&&[^b]]+", "acca", true),
            ("[a-c&&[^b]]+", "abc", false),
            (r"db\.t{2,3}", "db.tt", true),
            ("a+?", "aaa", true),
            (r"\bx\b", "x", true),
            (r"\x41\u0042", "AB", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text:?}");
        }
    }

    #[test]
    fn what_java_would_read_otherwise_is_refused() {
        for pattern in [
            "a++",
            "a*+",
            "a{1,2}+",
            "a?+",
            "(?=a)",
            "(?!a)",
            "(?<=a)b",
            "(?<!a)b",
            "(?>a)",
            r"(a)\1",
            r"\k<x>",
            "[[:alpha:]]",
            "[a--b]",
            "[a~~b]",
            "[]a]",
            "(?x)a b",
            "(?u)a",
            "(?-i)a",
            r"\v",
            r"\R",
            r"\X",
            r"\Z",
            r"\G",
            r"\cA",
            r"\0101",
            r"\p{javaLowerCase}",
            r"\p{InGreek}",
            r"a\",
            "(",
            "[a",
            r"\b{start}",
            r"[\b]",
        ] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn groups_have_names_and_numbers() {
        let pattern = Pattern::new(r"(?<db>\w+)\.(\w+)").unwrap();
        assert!(pattern.has_group("db") && pattern.has_group("2") && !pattern.has_group("3"));
        let groups = pattern.groups("shop.orders").unwrap();
        assert_eq!(&groups["db"], "shop");
        assert_eq!(&groups[2], "orders");
    }
}
