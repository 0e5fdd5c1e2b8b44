//! Just enough understanding of Rust source: which characters are code, and where functions end.

/// Returns the source with the insides of comments, strings and characters blanked; line ends stay.
pub(crate) fn code_only(source: &str) -> String {
    let characters: Vec<char> = source.chars().collect();
    let at = |index: usize| characters.get(index).copied().unwrap_or('\0');
    let mut code = String::with_capacity(source.len());
    let mut index = 0;
    while index < characters.len() {
        let end = match at(index) {
            '/' if at(index + 1) == '/' => line_comment(&characters, index),
            '/' if at(index + 1) == '*' => block_comment(&characters, index),
            '"' => string(&characters, index),
            'r' if !word(at(index.wrapping_sub(1))) && raw_hashes(&characters, index).is_some() => {
                raw_string(&characters, index)
            }
            '\'' => character(&characters, index),
            other => {
                code.push(other);
                index += 1;
                continue;
            }
        };
        for skipped in characters.get(index..end).unwrap_or_default() {
            code.push(if *skipped == '\n' { '\n' } else { ' ' });
        }
        index = end.max(index + 1);
    }
    code
}

fn word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn line_comment(characters: &[char], start: usize) -> usize {
    let rest = characters.get(start..).unwrap_or_default();
    start + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
}

fn block_comment(characters: &[char], start: usize) -> usize {
    let (mut depth, mut index) = (0usize, start);
    while index < characters.len() {
        match (characters.get(index), characters.get(index + 1)) {
            (Some('/'), Some('*')) => {
                depth += 1;
                index += 2;
            }
            (Some('*'), Some('/')) => {
                depth -= 1;
                index += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => index += 1,
        }
    }
    index
}

fn string(characters: &[char], start: usize) -> usize {
    let mut index = start + 1;
    while let Some(character) = characters.get(index) {
        match character {
            '\\' => index += 2,
            '"' => return index + 1,
            _ => index += 1,
        }
    }
    index
}

/// Returns the number of `#` of a raw string that starts here.
fn raw_hashes(characters: &[char], start: usize) -> Option<usize> {
    let rest = characters.get(start + 1..)?;
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(hashes)
}

fn raw_string(characters: &[char], start: usize) -> usize {
    let hashes = raw_hashes(characters, start).unwrap_or(0);
    let mut index = start + hashes + 2;
    while index < characters.len() {
        let closing = characters.get(index + 1..index + 1 + hashes);
        if characters.get(index) == Some(&'"')
            && closing.is_some_and(|tail| tail.iter().all(|c| *c == '#'))
        {
            return index + 1 + hashes;
        }
        index += 1;
    }
    index
}

/// Skips a character literal; a lifetime is one quote and stays short.
fn character(characters: &[char], start: usize) -> usize {
    if characters.get(start + 1) == Some(&'\\') {
        let rest = characters.get(start + 3..).unwrap_or_default();
        return start + 4 + rest.iter().position(|c| *c == '\'').unwrap_or(0);
    }
    if characters.get(start + 2) == Some(&'\'') {
        return start + 3;
    }
    start + 1
}

/// A function: its name, its first line (from 1) and how many lines it has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// Finds all functions that have a body.
pub(crate) fn functions(source: &str) -> Vec<Function> {
    let code = code_only(source);
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = declared(line) else { continue };
        if let Some(count) = body_lines(lines.get(index..).unwrap_or_default()) {
            found.push(Function {
                name,
                line: index + 1,
                lines: count,
            });
        }
    }
    found
}

/// Returns the name of the function that a line declares.
pub(crate) fn declared(line: &str) -> Option<String> {
    let (before, after) = line.split_once("fn ")?;
    let qualifiers = ["pub", "async", "unsafe", "const", "extern", "default"];
    let plain = before
        .split(|c: char| !word(c))
        .filter(|part| !part.is_empty())
        .all(|part| qualifiers.contains(&part) || ["crate", "super", "self", "in"].contains(&part));
    let name: String = after.chars().take_while(|c| word(*c)).collect();
    (plain && !name.is_empty() && !before.contains('|')).then_some(name)
}

/// Counts the lines up to the brace that closes the body, or none for a declaration.
fn body_lines(lines: &[&str]) -> Option<usize> {
    let mut depth = 0usize;
    for (index, line) in lines.iter().enumerate() {
        for character in line.chars() {
            match character {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(index + 1);
                    }
                }
                ';' if depth == 0 && !line.contains('[') => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_not_code() {
        let code =
            code_only("let a = \"{ \\\" }\"; // }\nlet b = r#\"{\"#; /* { /* } */ */ '{' 'a");
        assert!(!code.contains(['{', '}']), "{code}");
        assert_eq!(code.lines().count(), 2);
        assert!(code.contains("let b ="));
    }

    #[test]
    fn functions_are_found_with_their_length() {
        let source = "trait T {\n    fn none(&self);\n}\npub(crate) fn one(\n    a: u8,\n) -> u8 {\n    a\n}\n";
        assert_eq!(
            functions(source),
            [Function {
                name: "one".to_owned(),
                line: 4,
                lines: 5
            }]
        );
    }
}
