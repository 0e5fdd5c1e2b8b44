//! Names that the catalog keeps or makes: the file, columns, directories, metadata files.

use std::path::PathBuf;

use frazil_core::{Result, SinkError};
use iceberg::NamespaceIdent;
use iceberg::spec::TableMetadata;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Takes the path out of `sqlite:/path`, `sqlite:///path` (as URIs have it), `sqlite:////path`
/// (as SQLAlchemy has it), each also behind `jdbc:`.
pub(super) fn sqlite_path(uri: &str) -> Result<PathBuf> {
    let rest = uri.strip_prefix("jdbc:").unwrap_or(uri);
    let Some(path) = rest.strip_prefix("sqlite:") else {
        return Err(SinkError::config(
            "CATALOG_URI_UNSUPPORTED",
            "`iceberg.catalog.uri` of an SQL catalog must look like `sqlite:/path/to/catalog.db`",
        ));
    };
    let absolute = path.starts_with('/');
    let path = path.trim_start_matches('/');
    if !absolute || path.is_empty() || path.contains('?') {
        return Err(SinkError::config(
            "CATALOG_URI_UNSUPPORTED",
            "`iceberg.catalog.uri` must hold the absolute path of a file, without parameters",
        ));
    }
    Ok(PathBuf::from(format!("/{path}")))
}

/// Joins the levels with dots, as the layout has it; a dot within a level would be ambiguous.
pub(super) fn namespace_column(namespace: &NamespaceIdent) -> Result<String> {
    if namespace
        .iter()
        .any(|level| level.contains('.') || level.is_empty())
    {
        return Err(SinkError::config(
            "NAMESPACE_INVALID",
            "a level of the namespace is empty or holds a dot, which SQL catalogs cannot keep",
        )
        .with("namespace", namespace));
    }
    Ok(namespace.join("."))
}

/// Returns a directory name for a name: the name itself if every reader of the table takes it as
/// it stands, else a readable and unique stand-in (`#` and `?` end a path in some clients, `%` and
/// spaces are decoded by some and not by others).
pub(super) fn directory_name(name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.chars().all(is_safe) && !name.starts_with('.') && name.len() <= 128 {
        return name.to_string();
    }
    let readable: String = name
        .chars()
        .map(|c| if is_safe(c) { c } else { '_' })
        .take(64)
        .collect();
    let digest = Sha256::digest(name.as_bytes());
    let hash: String = digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}-{hash}", readable.trim_start_matches('.'))
}

/// Names the metadata file after the one at `previous`: `NNNNN-<uuid>.metadata.json`.
pub(super) fn next_metadata_location(metadata: &TableMetadata, previous: Option<&str>) -> String {
    let directory = metadata
        .properties()
        .get("write.metadata.path")
        .map(|path| path.trim_end_matches('/').to_string())
        .unwrap_or_else(|| format!("{}/metadata", metadata.location()));
    let gzip = metadata
        .properties()
        .get("write.metadata.compression-codec")
        .is_some_and(|codec| codec.eq_ignore_ascii_case("gzip"));
    // Only the crate compresses, and it knows no other directory. Uncompressed is right anywhere.
    let suffix = if gzip && directory.ends_with("/metadata") {
        ".gz"
    } else {
        ""
    };
    let version = previous.map_or(0, |previous| metadata_version(previous) + 1);
    format!(
        "{directory}/{version:05}-{}{suffix}.metadata.json",
        Uuid::now_v7()
    )
}

/// Returns the number at the start of a metadata file's name, or 0 for a foreign name.
fn metadata_version(location: &str) -> u64 {
    let name = location.rsplit('/').next().unwrap_or(location);
    let digits: String = name
        .trim_start_matches('v')
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_the_uri_names_the_same_file() {
        for uri in [
            "sqlite:/a/b.db",
            "jdbc:sqlite:/a/b.db",
            "sqlite:///a/b.db",
            "sqlite:////a/b.db",
        ] {
            assert_eq!(sqlite_path(uri).unwrap(), PathBuf::from("/a/b.db"), "{uri}");
        }
        for uri in [
            "jdbc:postgresql://h/db",
            "sqlite:b.db",
            "sqlite::memory:",
            "sqlite:/a?mode=ro",
            "sqlite:/",
        ] {
            assert_eq!(
                sqlite_path(uri).unwrap_err().code(),
                "CATALOG_URI_UNSUPPORTED",
                "{uri}"
            );
        }
    }

    #[test]
    fn directories_are_readable_safe_and_unique() {
        assert_eq!(directory_name("orders_2-a.b"), "orders_2-a.b");
        let odd: Vec<String> = ["a b", "a%b", "a#b", "ü", "../x", "..", ".a"]
            .map(directory_name)
            .to_vec();
        for name in &odd {
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)),
                "{name}"
            );
            assert!(!name.starts_with('.'), "{name}");
        }
        let unique: std::collections::BTreeSet<&String> = odd.iter().collect();
        assert_eq!(unique.len(), odd.len());
    }

    #[test]
    fn metadata_versions_are_read_from_every_clients_names() {
        for (location, version) in [
            ("s3://b/t/metadata/00012-0f.metadata.json", 12),
            ("/t/metadata/v3.metadata.json", 3),
            ("/t/metadata/00007-x.gz.metadata.json", 7),
            ("/t/metadata/odd.json", 0),
        ] {
            assert_eq!(metadata_version(location), version, "{location}");
        }
    }
}
