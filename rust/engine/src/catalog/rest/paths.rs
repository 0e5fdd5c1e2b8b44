//! Addresses of a REST catalog. Every name is encoded: a table `a#b` is never table `a`.

use frazil_core::{Result, SinkError};
use iceberg::{NamespaceIdent, TableIdent};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

/// Everything but RFC 3986's unreserved characters.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A prefix comes encoded from the server and may have slashes.
const PREFIX: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'?')
    .add(b'#')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\');

/// The encoded unit separator between the levels of a namespace.
pub(super) const SEPARATOR: &str = "%1F";

/// Appends an encoded path to the catalog's address.
pub(super) fn append(base: &Url, path: &str) -> Result<Url> {
    let text = format!("{}/{path}", base.as_str().trim_end_matches('/'));
    Url::parse(&text).map_err(|error| {
        SinkError::config(
            "CATALOG_PROPERTY_INVALID",
            "`iceberg.catalog.uri` is no address",
        )
        .caused_by(error)
    })
}

/// Resolves an address that the catalog gave, if it stays on the catalog's host.
pub(super) fn on_same_host(base: &Url, address: &str) -> Option<Url> {
    let url = match address.contains("://") {
        true => Url::parse(address).ok()?,
        false => append(base, address.trim_start_matches('/')).ok()?,
    };
    (url.origin() == base.origin()).then_some(url)
}

fn segment(name: &str) -> Result<String> {
    // Also in encoded form, `.` and `..` are taken for steps in a path.
    if matches!(name, "" | "." | "..") {
        return Err(SinkError::config(
            "NAME_INVALID",
            "a table or namespace cannot be named ``, `.` or `..`",
        ));
    }
    Ok(utf8_percent_encode(name, SEGMENT).to_string())
}

/// `v1/{prefix}`, with what stands behind it.
fn under_prefix(prefix: Option<&str>, rest: &str) -> Result<String> {
    let Some(prefix) = prefix
        .map(|prefix| prefix.trim_matches('/'))
        .filter(|prefix| !prefix.is_empty())
    else {
        return Ok(format!("v1/{rest}"));
    };
    if prefix
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."))
    {
        return Err(SinkError::config(
            "CATALOG_PROPERTY_INVALID",
            "the catalog's prefix is no path",
        ));
    }
    Ok(format!("v1/{}/{rest}", utf8_percent_encode(prefix, PREFIX)))
}

pub(super) fn namespaces(prefix: Option<&str>) -> Result<String> {
    under_prefix(prefix, "namespaces")
}

pub(super) fn namespace(
    prefix: Option<&str>,
    separator: &str,
    ident: &NamespaceIdent,
) -> Result<String> {
    let levels = ident
        .iter()
        .map(|level| segment(level))
        .collect::<Result<Vec<_>>>()?;
    under_prefix(prefix, &format!("namespaces/{}", levels.join(separator)))
}

pub(super) fn tables(
    prefix: Option<&str>,
    separator: &str,
    ident: &NamespaceIdent,
) -> Result<String> {
    Ok(format!("{}/tables", namespace(prefix, separator, ident)?))
}

pub(super) fn table(prefix: Option<&str>, separator: &str, ident: &TableIdent) -> Result<String> {
    let tables = tables(prefix, separator, &ident.namespace)?;
    Ok(format!("{tables}/{}", segment(&ident.name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_levels_separated() {
        let ident = TableIdent::from_strs(["a b", "c/d", "t#1?x=%41ü"]).unwrap();
        assert_eq!(
            table(Some("wh"), SEPARATOR, &ident).unwrap(),
            "v1/wh/namespaces/a%20b%1Fc%2Fd/tables/t%231%3Fx%3D%2541%C3%BC"
        );
        let base = Url::parse("https://h/api/catalog/").unwrap();
        let url = append(&base, &table(None, "%2E", &ident).unwrap()).unwrap();
        assert_eq!(
            url.as_str(),
            "https://h/api/catalog/v1/namespaces/a%20b%2Ec%2Fd/tables/t%231%3Fx%3D%2541%C3%BC"
        );
    }

    #[test]
    fn a_given_address_stays_on_the_host() {
        let base = Url::parse("https://h/api").unwrap();
        let resolved = on_same_host(&base, "v1/ns/credentials").unwrap();
        assert_eq!(resolved.as_str(), "https://h/api/v1/ns/credentials");
        assert!(on_same_host(&base, "https://h/other").is_some());
        for address in ["https://evil/x", "http://h/x", "https://h:1/x"] {
            assert!(on_same_host(&base, address).is_none(), "{address}");
        }
    }

    #[test]
    fn steps_in_paths_are_refused() {
        for name in [".", ".."] {
            let ident = TableIdent::from_strs(["db", name]).unwrap();
            assert_eq!(
                table(None, SEPARATOR, &ident).unwrap_err().code(),
                "NAME_INVALID"
            );
        }
        assert_eq!(
            namespaces(Some("a/../b")).unwrap_err().code(),
            "CATALOG_PROPERTY_INVALID"
        );
        assert_eq!(
            namespaces(Some("arn%3Aaws/x y")).unwrap(),
            "v1/arn%3Aaws/x%20y/namespaces"
        );
    }
}
