//! Which catalog is used, and the properties that go to it.

use std::collections::BTreeMap;
use std::fmt;

use super::reader::{Reader, shown};

const PREFIX: &str = "iceberg.catalog.";
const TYPE: &str = "iceberg.catalog.type";
const IMPL: &str = "iceberg.catalog.catalog-impl";
const IO: &str = "iceberg.catalog.io-impl";
const URI: &str = "iceberg.catalog.uri";
const WAREHOUSE: &str = "iceberg.catalog.warehouse";

/// Hadoop's file access, which here is that of local files.
const HADOOP_FILE_IO: &str = "org.apache.iceberg.hadoop.HadoopFileIO";

/// What to do in place of a catalog that is not supported.
const USE_THESE: &str = "set `iceberg.catalog.type` to `rest`, or to `sql` for a SQLite file";

/// The catalogs that Frazil speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogKind {
    /// The Iceberg REST protocol.
    Rest,
    /// The tables of Iceberg's JDBC catalog in a SQLite file.
    Sql,
}

/// A catalog and its properties, which are also the storage's.
#[derive(Clone, PartialEq, Eq)]
pub struct CatalogConfig {
    /// The catalog's name: in the SQL catalog a column of its tables.
    pub name: String,
    /// Which protocol it speaks.
    pub kind: CatalogKind,
    /// Everything below `iceberg.catalog.` but `type`, `catalog-impl` and `io-impl`, which were
    /// understood here. It holds secrets: `Debug` shows the names alone.
    pub properties: BTreeMap<String, String>,
}

impl fmt::Debug for CatalogConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogConfig")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

/// Reads the catalog; `None` when it is not known which one.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<CatalogConfig> {
    let name = reader.word("iceberg.catalog").map(str::to_owned);
    if name.is_none() {
        reader.error("iceberg.catalog", "must not be empty");
    }
    let Some(kind) = read_kind(reader) else {
        // What else is wrong shall be said at once.
        read_warehouse(reader, CatalogKind::Rest);
        return None;
    };
    let mut properties = reader.below(PREFIX);
    for understood in ["type", "catalog-impl", "io-impl"] {
        properties.remove(understood);
    }
    if let Some(uri) = read_uri(reader, kind) {
        properties.insert("uri".to_owned(), uri);
    }
    if let Some(warehouse) = read_warehouse(reader, kind) {
        properties.insert("warehouse".to_owned(), warehouse);
    }
    if reader.has("iceberg.catalog.s3.access-key-id")
        != reader.has("iceberg.catalog.s3.secret-access-key")
    {
        reader.error(
            "iceberg.catalog.s3.access-key-id",
            "needs `iceberg.catalog.s3.secret-access-key` beside it, and the other way round",
        );
    }
    Some(CatalogConfig {
        name: name?,
        kind,
        properties,
    })
}

/// Finds the catalog's kind from `type` or, as the Apache sink has it, from a Java class.
fn read_kind(reader: &mut Reader<'_>) -> Option<CatalogKind> {
    match (reader.word(TYPE), reader.word(IMPL)) {
        (None, None) => {
            let message = format!("no catalog: {USE_THESE}, and set `{URI}`");
            reader.error(TYPE, message);
            None
        }
        (Some(_), Some(_)) => {
            reader.error(IMPL, format!("set either this or `{TYPE}`, not both"));
            None
        }
        (Some(word), None) => match word.to_ascii_lowercase().as_str() {
            "rest" => Some(CatalogKind::Rest),
            "sql" | "jdbc" => Some(CatalogKind::Sql),
            other => {
                let message = format!("{} is not supported{}", shown(TYPE, word), instead(other));
                reader.error(TYPE, message);
                None
            }
        },
        (None, Some(class)) => match class {
            "org.apache.iceberg.rest.RESTCatalog" => Some(CatalogKind::Rest),
            "org.apache.iceberg.jdbc.JdbcCatalog" => Some(CatalogKind::Sql),
            other => {
                let simple = other.rsplit('.').next().unwrap_or_default();
                let family = simple.trim_end_matches("Catalog").to_ascii_lowercase();
                let message = format!(
                    "{} is a Java class that the native sink cannot load{}",
                    shown(IMPL, class),
                    instead(&family)
                );
                reader.error(IMPL, message);
                None
            }
        },
    }
}

/// Says why a family of catalogs is refused, and what to use.
fn instead(family: &str) -> String {
    let reason = match family {
        "hive" => "the Hive metastore protocol is not there yet; put a REST catalog before it",
        "hadoop" => {
            "a Hadoop catalog has no atomic swap, so that two commits could overwrite each other; use \
             a REST or a SQL catalog"
        }
        "glue" | "s3tables" | "dynamodb" => {
            "AWS catalogs need signed requests, which are not there yet; use another REST catalog"
        }
        "nessie" => "use the REST endpoint that Nessie serves, with `iceberg.catalog.type=rest`",
        _ => return format!("; {USE_THESE}"),
    };
    format!(": {reason}; {USE_THESE}")
}

/// Reads and checks the URI without ever showing it: it may hold a password.
fn read_uri(reader: &mut Reader<'_>, kind: CatalogKind) -> Option<String> {
    let Some(uri) = reader.word(URI) else {
        let example = match kind {
            CatalogKind::Rest => "https://host/path",
            CatalogKind::Sql => "sqlite:/path/catalog.db",
        };
        reader.error(
            URI,
            format!("missing: where is the catalog? Such as `{example}`"),
        );
        return None;
    };
    match kind {
        CatalogKind::Rest => {
            let Some((scheme, rest)) = uri.split_once("://") else {
                reader.error(URI, "must begin with `https://` or `http://`");
                return None;
            };
            let scheme = scheme.to_ascii_lowercase();
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if scheme != "https" && scheme != "http" {
                reader.error(URI, "must begin with `https://` or `http://`");
            } else if authority.is_empty() {
                reader.error(URI, "has no host");
            } else if authority.contains('@') {
                reader.error(
                    URI,
                    "has a user name in it, which Connect would show; use \
                     `iceberg.catalog.credential` or `iceberg.catalog.token`",
                );
            }
            Some(uri.trim_end_matches('/').to_owned())
        }
        CatalogKind::Sql => {
            let plain = uri.strip_prefix("jdbc:").unwrap_or(uri);
            match plain.strip_prefix("sqlite:") {
                None => reader.error(
                    URI,
                    "only SQLite is supported, as `sqlite:/path/catalog.db`; for other databases \
                     put a REST catalog before them",
                ),
                Some("") => reader.error(URI, "has no path, as in `sqlite:/path/catalog.db`"),
                Some(_) => {}
            }
            Some(plain.to_owned())
        }
    }
}

/// Reads the warehouse and checks that its storage, and the Java class named for it, can be used.
fn read_warehouse(reader: &mut Reader<'_>, kind: CatalogKind) -> Option<String> {
    let warehouse = reader.word(WAREHOUSE);
    if warehouse.is_none() && kind == CatalogKind::Sql {
        reader.error(
            WAREHOUSE,
            "missing: a SQL catalog needs a root location, such as `file:///path` or `s3://bucket`",
        );
    }
    let scheme = warehouse.and_then(scheme_of);
    if let Some(scheme) = &scheme
        && matches!(
            scheme.as_str(),
            "hdfs" | "viewfs" | "oss" | "cos" | "obs" | "ecs" | "http" | "https"
        )
        && (kind == CatalogKind::Sql || !scheme.starts_with("http"))
    {
        reader.error(
            WAREHOUSE,
            format!("storage `{scheme}:` is not supported; use `s3:`, `gs:`, `abfss:` or `file:`"),
        );
    }
    read_file_io(reader, scheme.as_deref());
    warehouse.map(str::to_owned)
}

/// Checks the Java class of the file access against what the native sink can do.
fn read_file_io(reader: &mut Reader<'_>, scheme: Option<&str>) {
    const CLASSES: &[(&str, &[&str])] = &[
        ("org.apache.iceberg.aws.s3.S3FileIO", &["s3", "s3a", "s3n"]),
        ("org.apache.iceberg.gcp.gcs.GCSFileIO", &["gs"]),
        (
            "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
            &["abfs", "abfss", "wasb", "wasbs"],
        ),
        (HADOOP_FILE_IO, &["file"]),
    ];
    let Some(class) = reader.word(IO) else {
        return;
    };
    if class == "org.apache.iceberg.io.ResolvingFileIO" {
        return;
    }
    let Some((_, schemes)) = CLASSES.iter().find(|(known, _)| *known == class) else {
        let message = format!(
            "{} is a Java class that the native sink cannot load; drop this key: the scheme of the \
             location decides",
            shown(IO, class)
        );
        reader.error(IO, message);
        return;
    };
    if let Some(scheme) = scheme
        && !schemes.contains(&scheme)
    {
        let message = format!(
            "{} stands for `{}:` here, and `{WAREHOUSE}` is a `{scheme}:` location; drop this key",
            shown(IO, class),
            schemes.join(":`, `")
        );
        reader.error(IO, message);
    } else if class == HADOOP_FILE_IO {
        reader.warn(IO, "`HadoopFileIO` stands for local files only");
    }
}

/// Returns the scheme of a location, in lower case; a path or a mere name has none.
fn scheme_of(location: &str) -> Option<String> {
    let (scheme, _) = location.split_once(":/")?;
    let is_scheme = !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then(|| scheme.to_ascii_lowercase())
}
