//! What a REST catalog has: namespaces and tables, page by page.

use std::collections::VecDeque;

use frazil_core::{Result, SinkError};
use iceberg::{NamespaceIdent, TableIdent};
use serde::Deserialize;

use super::session::Session;
use super::{answers, paths};

/// Pages and namespaces that one listing may take: a catalog that never ends its pages is wrong.
const STEPS_MAX: usize = 10_000;

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "next-page-token")]
    next: Option<String>,
    #[serde(default)]
    namespaces: Vec<Vec<String>>,
    #[serde(default)]
    identifiers: Vec<Identifier>,
}

#[derive(Deserialize)]
struct Identifier {
    namespace: Vec<String>,
    name: String,
}

/// Returns the tables of the namespace with these levels and of those below it.
pub(super) async fn tables(session: &Session, below: &[String]) -> Result<Vec<TableIdent>> {
    let mut steps = 0;
    let mut found = Vec::new();
    let mut left: VecDeque<Vec<String>> = [below.to_vec()].into();
    while let Some(levels) = left.pop_front() {
        let parent = NamespaceIdent::from_vec(levels.clone()).ok();
        if let Some(namespace) = &parent {
            for page in pages(session, Listed::Tables(namespace), &mut steps).await? {
                for table in page.identifiers {
                    if let Ok(namespace) = NamespaceIdent::from_vec(table.namespace) {
                        found.push(TableIdent::new(namespace, table.name));
                    }
                }
            }
        }
        for page in pages(session, Listed::Namespaces(parent.as_ref()), &mut steps).await? {
            // Some catalogs know no levels and list everything whatever the parent.
            let inside =
                |child: &Vec<String>| child.len() == levels.len() + 1 && child.starts_with(&levels);
            left.extend(page.namespaces.into_iter().filter(inside));
        }
    }
    Ok(found)
}

#[derive(Clone, Copy)]
enum Listed<'a> {
    Tables(&'a NamespaceIdent),
    Namespaces(Option<&'a NamespaceIdent>),
}

async fn pages(session: &Session, listed: Listed<'_>, steps: &mut usize) -> Result<Vec<Page>> {
    let config = session.config().await?;
    let prefix = config.prefix.as_deref();
    let path = match listed {
        Listed::Tables(namespace) => paths::tables(prefix, &config.separator, namespace)?,
        Listed::Namespaces(_) => paths::namespaces(prefix)?,
    };
    let mut pages = Vec::new();
    let mut token: Option<String> = None;
    loop {
        *steps += 1;
        if *steps > STEPS_MAX {
            return Err(SinkError::config(
                "CATALOG_LISTING_TOO_LONG",
                "the catalog has too many namespaces to look through; name those of this connector \
                 in `iceberg.tables.dynamic-allow`",
            ));
        }
        let mut url = paths::append(&config.base, &path)?;
        if let Listed::Namespaces(Some(parent)) = listed {
            // The separator is that of paths; as a parameter it is encoded once more.
            url.query_pairs_mut()
                .append_pair("parent", &parent.join("\u{1f}"));
        }
        if let Some(token) = &token {
            url.query_pairs_mut().append_pair("pageToken", token);
        }
        let answer = session.get(url, false).await?;
        let page: Page = match answer.status {
            200..=299 => answer.parse("listing")?,
            404 => return Ok(pages),
            _ => return Err(answers::error(&answer)),
        };
        token = page.next.clone().filter(|next| !next.is_empty());
        pages.push(page);
        if token.is_none() {
            return Ok(pages);
        }
    }
}
