//! Names of Tabular's sink and of Hadoop's file access: read under our name, or refused by name.

use super::KeyType::{Boolean, Password, String};
use super::{Group, Key};

const S3A: &str = "Frazil does not use Hadoop's S3A; the storage's keys are below \
                   `iceberg.catalog.s3.`";
const SCHEME: &str = "the scheme of `iceberg.catalog.s3.endpoint`, `https:` or `http:`, decides";
const PROVIDER: &str = "the native sink cannot load a Java class; use \
                        `iceberg.catalog.s3.access-key-id` and its kin, vended credentials or the \
                        environment's default credentials";
const ENCRYPTION: &str = "use `iceberg.catalog.s3.sse.type` and `iceberg.catalog.s3.sse.key`";
const AZURE: &str = "Frazil does not use Hadoop's Azure driver; use `iceberg.catalog.adls.account-key`, \
                     `adls.sas-token` or `adls.client-secret` below `iceberg.catalog.`";
const GOOGLE: &str = "Frazil does not use Hadoop's Google driver; use `iceberg.catalog.gcs.service.path` \
                      or `gcs.oauth2.token` below `iceberg.catalog.`";
const FILES: &str = "Frazil does not use Hadoop's file systems; write whole locations, with their \
                     scheme, and the storage's keys below `iceberg.catalog.`";

/// Older names.
pub(super) const LEGACY: Group = Group {
    title: "Other names",
    intro: "Names of Tabular's sink and of Hadoop's file access. Those with a new name are read as \
            if they were written so, with a warning; the others are refused, since ignoring them \
            would change where data goes.",
    keys: &[
        Key::legacy(
            "iceberg.table.write-props.*",
            String,
            "iceberg.tables.write-props.*",
            "A property of the table as this writer sees it, as the code of Tabular's sink has it.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.s3a.access.key",
            String,
            "iceberg.catalog.s3.access-key-id",
            "The id of a static S3 key.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.s3a.secret.key",
            Password,
            "iceberg.catalog.s3.secret-access-key",
            "The secret of a static S3 key.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.s3a.session.token",
            Password,
            "iceberg.catalog.s3.session-token",
            "The session token of a temporary S3 key.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.s3a.endpoint",
            String,
            "iceberg.catalog.s3.endpoint",
            "The address of an S3-compatible store.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.s3a.endpoint.region",
            String,
            "iceberg.catalog.s3.region",
            "The AWS region, for S3 alone.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.s3a.path.style.access",
            Boolean,
            "iceberg.catalog.s3.path-style-access",
            "Put the bucket into the path, not into the host name.",
        ),
        Key::legacy(
            "iceberg.hadoop.fs.gs.auth.service.account.json.keyfile",
            String,
            "iceberg.catalog.gcs.service.path",
            "The file with a Google service account's key.",
        ),
        Key::legacy(
            "iceberg.hadoop.google.cloud.auth.service.account.json.keyfile",
            String,
            "iceberg.catalog.gcs.service.path",
            "The file with a Google service account's key.",
        ),
        Key::inert(
            "iceberg.hadoop.fs.s3a.impl",
            String,
            "The location's scheme decides how files are written.",
        ),
        Key::foreign(
            "iceberg.hadoop.fs.s3a.aws.credentials.provider",
            Password,
            PROVIDER,
        ),
        Key::foreign(
            "iceberg.hadoop.fs.s3a.connection.ssl.enabled",
            String,
            SCHEME,
        ),
        Key::foreign(
            "iceberg.hadoop.fs.s3a.server-side-encryption-algorithm",
            String,
            ENCRYPTION,
        ),
        Key::foreign(
            "iceberg.hadoop.fs.s3a.encryption.algorithm",
            String,
            ENCRYPTION,
        ),
        Key::foreign("iceberg.hadoop.fs.s3a.*", String, S3A),
        Key::foreign("iceberg.hadoop.fs.azure.*", String, AZURE),
        Key::foreign("iceberg.hadoop.fs.gs.*", String, GOOGLE),
        Key::foreign("iceberg.hadoop.fs.*", String, FILES),
    ],
};

/// Returns the name under which `name` is read, if that is another.
pub(crate) fn renamed(name: &str) -> Option<std::string::String> {
    LEGACY.keys.iter().find_map(|key| {
        let meant = key.renamed()?;
        match key.name.strip_suffix('*') {
            None => (name == key.name).then(|| meant.to_owned()),
            Some(prefix) => {
                let rest = name.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
                Some(format!(
                    "{}{rest}",
                    meant.strip_suffix('*').unwrap_or(meant)
                ))
            }
        }
    })
}
