//! What neither rustfmt nor clippy checks: sizes, words, error codes, files that nothing uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::Failure;
use crate::files::{TextFile, read_all};
use crate::source;

const MODULE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// A test may hold a table of cases.
const TEST_LINES_MAX: usize = 120;
const JNI_LINES_MAX: usize = 500;

/// Words that must not be in the repository. Cut in two, so that this file may be in it.
const BANNED: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it"),
    (concat!("unimpl", "emented!("), "finish it"),
    (concat!("FIX", "ME"), "fix it or file an issue"),
    (concat!("X", "XX:"), "fix it or file an issue"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("sha", "red/"), "not part of this repository"),
];

/// Returns one line per complaint.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let files = read_all()?;
    let mut complaints = Vec::new();
    sizes(&files, &mut complaints);
    words(&files, &mut complaints);
    error_codes(&files, &mut complaints);
    dead_modules(&files, &mut complaints);
    dead_files(&files, &mut complaints);
    Ok(complaints)
}

fn sizes(files: &[TextFile], complaints: &mut Vec<String>) {
    let mut jni = 0;
    for file in files.iter().filter(|file| file.is_source()) {
        let lines = file.text.lines().count();
        if lines > MODULE_LINES_MAX {
            complaints.push(format!(
                "{}: {lines} lines, {MODULE_LINES_MAX} at most",
                file.path
            ));
        }
        if file.path.starts_with("rust/jni/src/") {
            jni += lines;
        }
        if !file.path.ends_with(".rs") {
            continue;
        }
        let product = without_tests(&file.text).lines().count();
        let test_file = file.name().ends_with("tests.rs") || file.path.contains("/tests/");
        for function in source::functions(&file.text) {
            let most = if test_file || function.line > product {
                TEST_LINES_MAX
            } else {
                FUNCTION_LINES_MAX
            };
            if function.lines > most {
                complaints.push(format!(
                    "{}:{}: `{}` has {} lines, {most} at most",
                    file.path, function.line, function.name, function.lines
                ));
            }
        }
    }
    if jni > JNI_LINES_MAX {
        complaints.push(format!("rust/jni: {jni} lines, {JNI_LINES_MAX} at most"));
    }
}

fn words(files: &[TextFile], complaints: &mut Vec<String>) {
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            for (word, remedy) in BANNED {
                if line.contains(word) {
                    complaints.push(format!("{}:{}: `{word}`: {remedy}", file.path, number + 1));
                }
            }
        }
    }
}

/// Compares the codes that code gives to `SinkError` with the rows of the documentation.
fn error_codes(files: &[TextFile], complaints: &mut Vec<String>) {
    let mut used: BTreeMap<&str, &str> = BTreeMap::new();
    let mut literals: BTreeSet<&str> = BTreeSet::new();
    let product = [
        "rust/core/src/",
        "rust/engine/src/",
        "rust/jni/src/",
        "rust/cli/src/",
    ];
    for file in files {
        let ours = product.iter().any(|folder| file.path.starts_with(folder))
            && !file.path.contains("/tests/")
            && !file.name().ends_with("tests.rs");
        if ours && file.path.ends_with(".rs") {
            let code = without_tests(&file.text);
            for found in constructed_codes(code) {
                used.entry(found).or_insert(&file.path);
            }
            literals.extend(code.split('"').filter(|piece| is_code(piece)));
        } else if file.path.starts_with("java/src/main/") {
            // A code stands in brackets at the end of a message there.
            let words = file
                .text
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            literals.extend(words.filter(|word| is_code(word)));
        }
    }
    let documented: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path == "docs/errors.md")
        .flat_map(|file| file.text.lines())
        .filter_map(documented_code)
        .collect();
    for (code, path) in &used {
        if !documented.contains(code) {
            complaints.push(format!("{path}: `{code}` has no row in docs/errors.md"));
        }
    }
    for code in documented.difference(&literals) {
        complaints.push(format!("docs/errors.md: no code gives `{code}`"));
    }
}

/// Cuts the unit tests off, which stand at the end of a file and make errors of their own.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

fn is_code(text: &str) -> bool {
    text.len() > 2
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Finds the literals in `SinkError::kind("CODE", …)` and `SinkError::new(kind, "CODE", …)`.
fn constructed_codes(text: &str) -> Vec<&str> {
    let mut codes = Vec::new();
    for call in text.split("SinkError::").skip(1) {
        let Some((function, arguments)) = call.split_once('(') else {
            continue;
        };
        let first = match function {
            "retriable" | "data" | "config" | "fatal" => arguments,
            "new" => arguments.split_once(',').map_or("", |(_, rest)| rest),
            _ => continue,
        };
        let literal = first.trim_start().strip_prefix('"');
        if let Some(code) = literal.and_then(|rest| rest.split('"').next()) {
            codes.push(code);
        }
    }
    codes
}

/// Returns the code of a table row such as `` | `CODE` | Data | … | ``.
fn documented_code(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split('|').next()?;
    let code = cell.trim().trim_matches('`');
    is_code(code).then_some(code)
}

/// Finds Rust files that no `mod` names.
fn dead_modules(files: &[TextFile], complaints: &mut Vec<String>) {
    for file in files {
        let Some((_, module)) = file.path.split_once("/src/") else {
            continue;
        };
        let Some(module) = module.strip_suffix(".rs") else {
            continue;
        };
        if !file.path.starts_with("rust/") || ["lib", "main"].contains(&module) {
            continue;
        }
        let name = module.rsplit('/').next().unwrap_or(module);
        if name == "mod" || module.starts_with("bin/") {
            continue;
        }
        let root = file.path.split("/src/").next().unwrap_or_default();
        let declaration = format!("mod {name};");
        let by_path = format!("{}\"]", file.name());
        let named = files
            .iter()
            .filter(|other| other.path.starts_with(root) && other.path.ends_with(".rs"))
            .any(|other| {
                other.text.lines().map(str::trim).any(|line| {
                    line.ends_with(&declaration)
                        || (line.starts_with("#[path") && line.ends_with(&by_path))
                })
            });
        if !named {
            complaints.push(format!("{}: no `{declaration}` names it", file.path));
        }
    }
}

/// Finds connector configurations that no test runs, and documents that no other links to.
fn dead_files(files: &[TextFile], complaints: &mut Vec<String>) {
    for file in files {
        let name = file.name();
        let (wanted, users): (bool, &str) = if file.path.starts_with("connector-config/") {
            (name.ends_with(".json"), "tests/")
        } else if file.path.starts_with("docs/")
            && !file.path.starts_with("docs/adr/")
            && !file.path.starts_with("docs/errors.d/")
        {
            (name.ends_with(".md"), "")
        } else {
            continue;
        };
        let named = files.iter().any(|other| {
            let reader = other.path.ends_with(".md") || other.path.ends_with(".py");
            other.path != file.path
                && reader
                && other.path.starts_with(users)
                && other.text.contains(name)
        });
        if wanted && !named {
            let place = if users.is_empty() { "document" } else { "test" };
            complaints.push(format!("{}: no {place} names it", file.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn codes_and_rows_must_match_both_ways() {
        let files = [
            file(
                "rust/core/src/a.rs",
                "SinkError::data(\n    \"TOO_LONG\", m); SinkError::new(ErrorKind::Data, \"BAD\", m)",
            ),
            file(
                "docs/errors.md",
                "| `TOO_LONG` | Data |\n| `GONE` | Data |\n",
            ),
        ];
        let mut complaints = Vec::new();
        error_codes(&files, &mut complaints);
        assert_eq!(
            complaints,
            [
                "rust/core/src/a.rs: `BAD` has no row in docs/errors.md",
                "docs/errors.md: no code gives `GONE`"
            ]
        );
    }

    #[test]
    fn long_functions_and_banned_words_are_named() {
        let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES_MAX));
        let word = concat!("// FIX", "ME later\n");
        let files = [file("rust/core/src/a.rs", &long), file("x.md", word)];
        let mut complaints = Vec::new();
        sizes(&files, &mut complaints);
        words(&files, &mut complaints);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("`f` has 72 lines"));
    }

    #[test]
    fn a_module_that_nothing_names_is_dead() {
        let files = [
            file("rust/core/src/lib.rs", "pub mod a;\n"),
            file("rust/core/src/a.rs", ""),
            file("rust/core/src/b.rs", ""),
        ];
        let mut complaints = Vec::new();
        dead_modules(&files, &mut complaints);
        assert_eq!(complaints, ["rust/core/src/b.rs: no `mod b;` names it"]);
    }
}
