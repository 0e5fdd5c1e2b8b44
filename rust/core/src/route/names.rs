//! How a table's name is made of what a record says, and which names are allowed.

use iceberg::TableIdent;

use super::pattern::Pattern;
use super::source::RouteSource;
use crate::config::table::ident_of;

/// Stands for a dot of an inserted text while names are made; no name can have it.
const INNER_DOT: char = '\u{1}';

/// The case of names that records decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NameCase {
    /// Lower case, as the Apache sink does.
    #[default]
    Lower,
    /// Upper case.
    Upper,
    /// As it comes.
    Keep,
}

/// What a dot in an inserted text means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NameDots {
    /// It parts namespaces and table, as in the Apache sink.
    #[default]
    Nested,
    /// It becomes an underscore.
    Replace,
    /// It stays, as a letter of the name.
    Keep,
}

/// A piece of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// This text.
    Literal(String),
    /// What a source says.
    Source(RouteSource),
    /// A group of the pattern that the route text matched.
    Group(String),
}

/// Reads a template such as `raw.${topic}`. Groups are those of `pattern`. The error says what is
/// wrong, without naming the key.
pub fn parse_template(text: &str, pattern: Option<&Pattern>) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            return Err("has a `${` without its `}`".to_owned());
        };
        if !before.is_empty() {
            pieces.push(Piece::Literal(before.to_owned()));
        }
        pieces.push(match RouteSource::parse(name) {
            Some(source) => Piece::Source(source),
            None if pattern.is_some_and(|pattern| !name.is_empty() && pattern.has_group(name)) => {
                Piece::Group(name.to_owned())
            }
            None => {
                return Err(
                    "may have `${topic}`, `${key}`, `${key.<field>}`, `${value.<field>}`, \
                     `${header.<name>}`, and the groups of `iceberg.tables.route-regex` as `${1}` or \
                     `${<group>}`"
                        .to_owned(),
                );
            }
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    match pieces
        .iter()
        .any(|piece| !matches!(piece, Piece::Literal(_)))
    {
        true => Ok(pieces),
        false => Err("names one table only; put that in `iceberg.tables`".to_owned()),
    }
}

/// An entry of the allow-list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    parts: Vec<String>,
    /// Everything below the parts is allowed, else the one table.
    below: bool,
}

/// The tables that records may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Allowed>);

impl AllowList {
    /// Reads `namespace.*` and `namespace.table`. The error says which entry is wrong and how.
    pub fn parse(entries: &[String]) -> Result<AllowList, String> {
        let mut list = Vec::with_capacity(entries.len());
        for entry in entries {
            let parts: Vec<String> = entry.split('.').map(str::to_owned).collect();
            let (below, parts) = match parts.split_last() {
                Some((last, before)) if last == "*" && !before.is_empty() => {
                    (true, before.to_vec())
                }
                _ => (false, parts),
            };
            let sound = parts
                .iter()
                .all(|part| !part.is_empty() && !part.contains('*'));
            if !sound || parts.len() + usize::from(below) < 2 {
                return Err("write each entry as `namespace.table` or `namespace.*`".to_owned());
            }
            list.push(Allowed { parts, below });
        }
        Ok(AllowList(list))
    }

    /// Tells whether the list allows `ident`.
    pub fn has(&self, ident: &TableIdent) -> bool {
        let namespace = ident.namespace().as_ref();
        self.0.iter().any(|allowed| match allowed.below {
            true => namespace.starts_with(&allowed.parts),
            false => match allowed.parts.split_last() {
                Some((table, parts)) => namespace == parts && ident.name() == table,
                None => false,
            },
        })
    }

    /// Returns the namespaces that tables may be in, those below them included.
    pub fn namespaces(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().map(|allowed| match allowed.below {
            true => allowed.parts.as_slice(),
            false => allowed
                .parts
                .split_last()
                .map_or(&[][..], |(_, parts)| parts),
        })
    }
}

/// How records name their tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRules {
    /// The text that has to match [`pattern`](Self::pattern), or that is the name without a
    /// [`template`](Self::template).
    pub source: Option<RouteSource>,
    /// What the text of the source has to match.
    pub pattern: Option<Pattern>,
    /// The pieces of the name; none when the source's text is the name.
    pub template: Option<Vec<Piece>>,
    /// The names' case.
    pub case: NameCase,
    /// The dots of inserted texts.
    pub dots: NameDots,
    /// Where a name without a namespace lies; empty when that is an error.
    pub default_namespace: Vec<String>,
    /// The tables that may be named; `None` for all.
    pub allowed: Option<AllowList>,
}

impl NameRules {
    /// Returns the sources that are looked at.
    pub fn sources(&self) -> impl Iterator<Item = &RouteSource> {
        let pieces = self
            .template
            .iter()
            .flatten()
            .filter_map(|piece| match piece {
                Piece::Source(source) => Some(source),
                Piece::Literal(_) | Piece::Group(_) => None,
            });
        self.source.iter().chain(pieces)
    }

    /// Tells whether records may name `ident`.
    pub fn allows(&self, ident: &TableIdent) -> bool {
        self.allowed.as_ref().is_none_or(|list| list.has(ident))
    }

    /// Returns the levels of the namespace that every name begins with.
    pub(super) fn common_namespace(&self) -> Vec<String> {
        let Some(Piece::Literal(text)) = self.template.iter().flatten().next() else {
            return Vec::new();
        };
        match text.rsplit_once('.') {
            Some((levels, _)) => self.cased(levels).split('.').map(str::to_owned).collect(),
            None => Vec::new(),
        }
    }

    fn cased(&self, text: &str) -> String {
        match self.case {
            NameCase::Lower => text.to_lowercase(),
            NameCase::Upper => text.to_uppercase(),
            NameCase::Keep => text.to_owned(),
        }
    }

    /// Appends a text of the record to the name.
    pub(super) fn insert(&self, text: &str, out: &mut String) {
        let dot = match self.dots {
            NameDots::Nested => '.',
            NameDots::Replace => '_',
            NameDots::Keep => INNER_DOT,
        };
        // A mark that the text brings itself is refused with the name.
        out.extend(text.chars().map(|letter| match letter {
            '.' => dot,
            INNER_DOT => '\u{2}',
            letter => letter,
        }));
    }

    /// Turns a name put together into the name for configuration keys and the table. The error says
    /// what is wrong with it.
    pub(super) fn finish(&self, composed: &str) -> Result<(String, TableIdent), String> {
        let cased = self.cased(composed);
        let whole = |part: &str| part.replace(INNER_DOT, ".");
        let mut parts: Vec<String> = cased.split('.').map(whole).collect();
        if parts.len() == 1 {
            parts.splice(0..0, self.default_namespace.iter().cloned());
        }
        let name = parts.join(".");
        Ok((name, ident_of(parts)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(case: NameCase, dots: NameDots, namespace: &[&str]) -> NameRules {
        NameRules {
            source: Some(RouteSource::Topic),
            pattern: None,
            template: None,
            case,
            dots,
            default_namespace: namespace.iter().map(|part| (*part).to_owned()).collect(),
            allowed: None,
        }
    }

    fn name(
        rules: &NameRules,
        literal: &str,
        text: &str,
    ) -> Result<(String, Vec<String>, String), String> {
        let mut composed = literal.to_owned();
        rules.insert(text, &mut composed);
        let (name, ident) = rules.finish(&composed)?;
        Ok((
            name,
            ident.namespace().as_ref().clone(),
            ident.name().to_owned(),
        ))
    }

    // Complaint: 20
    #[test]
    fn case_dots_and_the_default_namespace_make_the_name() {
        for (rules, literal, text, expected) in [
            (
                rules(NameCase::Lower, NameDots::Nested, &[]),
                "",
                "DB.Orders",
                ("db.orders", &["db"][..], "orders"),
            ),
            (
                rules(NameCase::Keep, NameDots::Nested, &[]),
                "",
                "DB.Orders",
                ("DB.Orders", &["DB"], "Orders"),
            ),
            (
                rules(NameCase::Upper, NameDots::Nested, &["raw"]),
                "",
                "orders",
                ("raw.ORDERS", &["raw"], "ORDERS"),
            ),
            (
                rules(NameCase::Lower, NameDots::Replace, &[]),
                "raw.",
                "shop.Orders",
                ("raw.shop_orders", &["raw"], "shop_orders"),
            ),
            (
                rules(NameCase::Lower, NameDots::Keep, &[]),
                "raw.",
                "shop.Orders",
                ("raw.shop.orders", &["raw"], "shop.orders"),
            ),
            (
                rules(NameCase::Lower, NameDots::Nested, &[]),
                "raw.",
                "shop.Orders",
                ("raw.shop.orders", &["raw", "shop"], "orders"),
            ),
        ] {
            let (name, namespace, table) = name(&rules, literal, text).unwrap();
            assert_eq!(
                (name.as_str(), namespace.as_slice(), table.as_str()),
                (
                    expected.0,
                    &expected
                        .1
                        .iter()
                        .map(|p| (*p).to_owned())
                        .collect::<Vec<_>>()[..],
                    expected.2
                )
            );
        }
    }

    #[test]
    fn names_that_are_none_are_refused() {
        let plain = rules(NameCase::Lower, NameDots::Nested, &[]);
        for text in [
            "orders",
            "",
            "db.",
            ".t",
            "db..t",
            "a.b.c.d.e.f",
            "db.a/b",
            "db. t",
            "db.\u{1}",
            "db.a%2Fb",
        ] {
            assert!(name(&plain, "", text).is_err(), "{text:?}");
        }
        let keep = rules(NameCase::Keep, NameDots::Keep, &[]);
        assert!(
            name(&keep, "db.", "a\u{1}b").is_err(),
            "the mark is no letter of a record"
        );
    }

    #[test]
    fn the_allow_list_has_tables_and_namespaces() {
        let entries = ["raw.*".to_owned(), "db.orders".to_owned()];
        let list = AllowList::parse(&entries).unwrap();
        let ident = |name: &str| TableIdent::from_strs(name.split('.')).unwrap();
        for (name, allowed) in [
            ("raw.x", true),
            ("raw.a.b", true),
            ("rawer.x", false),
            ("db.orders", true),
            ("db.orders.x", false),
            ("db.other", false),
        ] {
            assert_eq!(list.has(&ident(name)), allowed, "{name}");
        }
        for entry in ["*", "orders", "db.a*", "db..*", "*.t", ""] {
            assert!(AllowList::parse(&[entry.to_owned()]).is_err(), "{entry}");
        }
    }

    #[test]
    fn templates_are_literals_and_placeholders() {
        let pattern = Pattern::new(r"(?<db>\w+)\.(\w+)").unwrap();
        assert_eq!(
            parse_template("raw.${topic}_x", None).unwrap(),
            [
                Piece::Literal("raw.".into()),
                Piece::Source(RouteSource::Topic),
                Piece::Literal("_x".into())
            ]
        );
        assert_eq!(
            parse_template("${db}.${2}${header.h.x}", Some(&pattern)).unwrap(),
            [
                Piece::Group("db".into()),
                Piece::Literal(".".into()),
                Piece::Group("2".into()),
                Piece::Source(RouteSource::Header("h.x".into()))
            ]
        );
        for text in [
            "raw.t",
            "raw.${topic",
            "${nope}",
            "${1}",
            "${}",
            "${value.}",
        ] {
            assert!(parse_template(text, None).is_err(), "{text}");
        }
        assert!(parse_template("${3}", Some(&pattern)).is_err());
    }
}
