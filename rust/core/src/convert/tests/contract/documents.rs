//! The contract as people and the conformance suite read it: `docs/types.md` and
//! `tests/conformance/types.json`, both generated here.

use std::fmt::Write;

use expect_test::expect_file;

use super::*;
use crate::schema::contract::{MAPPING_PROPERTY, MAPPING_VERSION};

fn mark(source: &Source, target: &Type) -> &'static str {
    use crate::convert::misfit::Reason;
    match contract::lands(source.meaning, target) {
        Ok(()) => "yes",
        Err(Reason::UnitUnknown) => "unit",
        Err(_) => "no",
    }
}

fn table_markdown() -> String {
    let mut text = String::from("| source | new column |");
    let targets = table_targets();
    let headed = || {
        targets
            .iter()
            .filter_map(|(_, target, heading)| heading.map(|heading| (heading, target)))
    };
    for (heading, _) in headed() {
        write!(text, " {heading} |").unwrap();
    }
    text.push_str("\n|---|---|");
    headed().for_each(|_| text.push_str("---|"));
    text.push('\n');
    for source in sources() {
        let (old, new) = (
            notation(&source.new_type(false)),
            notation(&source.new_type(true)),
        );
        let column = match old == new {
            true => old,
            false => format!("{old}, in version 3 {new}"),
        };
        write!(
            text,
            "| {} | {} |",
            source.name.replace("io.debezium.", "debezium "),
            column
        )
        .unwrap();
        for (_, target) in headed() {
            write!(text, " {} |", mark(&source, target)).unwrap();
        }
        text.push('\n');
    }
    text.replace('<', "&lt;")
}

fn limits_markdown() -> String {
    use Meaning as M;
    let meanings = [
        ("integers", M::Integer),
        ("floats", M::Float),
        ("decimals", M::Decimal),
        ("decimals of variable scale", M::ScaledDecimal),
        ("text", M::Text),
        ("text without a schema", M::BareText),
        ("bytes", M::Bytes),
        ("dates", M::Date),
        ("times", M::Time),
        ("timestamps", M::Timestamp),
        (
            "dates and timestamps of parts (`Structured…`)",
            M::DateParts,
        ),
        ("times of parts (`StructuredTime`)", M::TimeParts),
        ("geometries", M::Geometry),
        ("lists, maps and structs", M::Struct),
    ];
    let mut text = String::from("| values | column | codes |\n|---|---|---|\n");
    for (name, meaning) in meanings {
        let mut lines: Vec<(Vec<&str>, String)> = Vec::new();
        for (_, target, heading) in table_targets() {
            let limits = contract::limits(meaning, &target);
            let (Some(heading), false) = (heading, limits.is_empty()) else {
                continue;
            };
            let codes: Vec<_> = limits
                .iter()
                .map(|limit| format!("`{}`", limit.code()))
                .collect();
            let codes = codes.join(", ");
            match lines.iter_mut().find(|(_, known)| *known == codes) {
                Some((columns, _)) => columns.push(heading),
                None => lines.push((vec![heading], codes)),
            }
        }
        for (columns, codes) in lines {
            writeln!(text, "| {name} | {} | {codes} |", columns.join(", ")).unwrap();
        }
    }
    text
}

fn json() -> String {
    let mut cells = Vec::new();
    for source in sources() {
        for (name, target, _) in table_targets() {
            let limits = contract::limits(source.meaning, &target).iter();
            let limits: Vec<_> = limits.map(|limit| limit.code()).collect();
            let mut cell = serde_json::json!({"source": source.name, "target": name});
            match contract::lands(source.meaning, &target) {
                Ok(()) => {
                    cell["outcome"] = "landed".into();
                    cell["limits"] = limits.into();
                }
                Err(reason) => {
                    cell["outcome"] = "refused".into();
                    cell["code"] = reason.code().into();
                }
            }
            cells.push(cell);
        }
        let new = notation(&source.new_type(false));
        cells.push(serde_json::json!({
            "source": source.name, "target": "new", "outcome": "landed", "type": new,
        }));
    }
    let lines: Vec<_> = cells.iter().map(|cell| format!("    {cell}")).collect();
    format!(
        "{{\n  \"about\": \"Generated from rust/core/src/schema/contract.rs; do not edit.\",\n  \
         \"mapping-version\": {MAPPING_VERSION},\n  \"cells\": [\n{}\n  ]\n}}\n",
        lines.join(",\n")
    )
}

#[test]
fn generated_type_documentation_is_current() {
    let text = include_str!("../types.md.in")
        .replace("{table}", table_markdown().trim_end())
        .replace("{limits}", limits_markdown().trim_end())
        .replace("{property}", MAPPING_PROPERTY)
        .replace("{version}", &MAPPING_VERSION.to_string());
    expect_file!["../../../../../../docs/types.md"].assert_eq(&text);
}

#[test]
fn generated_type_cells_are_current() {
    expect_file!["../../../../../../tests/conformance/types.json"].assert_eq(&json());
}
