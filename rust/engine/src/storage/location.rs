//! Where a file is: scheme, bucket and key of an absolute location.

use std::fmt;

use frazil_core::{Result, SinkError};
use object_store::path::Path;

/// The kinds of storage that a location can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scheme {
    File,
    Memory,
    S3,
    Gcs,
    Azure,
}

/// A parsed absolute location.
///
/// Locations are plain text, as Iceberg's Java library writes them: `%20` in one is three
/// characters of a file name, not a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location<'a> {
    pub(crate) scheme: Scheme,
    /// The bucket, or `container@account.host` on Azure; empty for files.
    pub(crate) authority: &'a str,
    /// Everything in front of the key, with its slash.
    pub(crate) root: &'a str,
    key: &'a str,
}

impl<'a> Location<'a> {
    /// Parses an absolute location such as `s3://bucket/db/t` or `/warehouse/db/t`.
    pub(crate) fn parse(text: &'a str) -> Result<Self> {
        if text.starts_with('/') {
            return Ok(Self::file(text, 1));
        }
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| invalid(text, "a scheme such as `s3:` or a leading `/` is missing"))?;
        let scheme_lower = scheme.to_ascii_lowercase();
        if scheme_lower == "file" {
            return Self::parse_file(text, rest);
        }
        let scheme = match scheme_lower.as_str() {
            "s3" | "s3a" | "s3n" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "abfs" | "abfss" | "wasb" | "wasbs" => Scheme::Azure,
            "memory" => Scheme::Memory,
            _ => return Err(unsupported(text)),
        };
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| invalid(text, "`//` must follow the scheme"))?;
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.is_empty() {
            return Err(invalid(text, "the bucket is missing"));
        }
        Ok(Location {
            scheme,
            authority,
            root: text.get(..text.len() - key.len()).unwrap_or(text),
            key,
        })
    }

    fn parse_file(text: &'a str, rest: &'a str) -> Result<Self> {
        let path = match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
            None => rest,
        };
        if !path.starts_with('/') {
            return Err(invalid(
                text,
                "a `file:` location needs an absolute path and no host",
            ));
        }
        Ok(Self::file(text, text.len() - path.len() + 1))
    }

    fn file(text: &'a str, key_start: usize) -> Self {
        let (root, key) = text.split_at(key_start);
        Location {
            scheme: Scheme::File,
            authority: "",
            root,
            key,
        }
    }

    /// Returns the key as the store's path.
    pub(crate) fn path(&self) -> Result<Path> {
        let collapsed;
        let key = if self.scheme == Scheme::File && self.key.contains("//") {
            // Only file systems read `a//b` as `a/b`; in a bucket it is another key.
            let parts: Vec<&str> = self
                .key
                .split('/')
                .filter(|part| !part.is_empty())
                .collect();
            collapsed = parts.join("/");
            &collapsed
        } else {
            self.key
        };
        Path::parse(key).map_err(|error| {
            invalid(&self.to_string(), "the path has a part that no store takes").caused_by(error)
        })
    }
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.root, self.key)
    }
}

fn invalid(location: &str, reason: &str) -> SinkError {
    SinkError::config(
        "STORAGE_LOCATION_INVALID",
        format!("invalid storage location: {reason}"),
    )
    .with("location", crate::redact::foreign(location))
}

fn unsupported(location: &str) -> SinkError {
    SinkError::config(
        "STORAGE_SCHEME_UNSUPPORTED",
        "the location's scheme is not supported: use `file:`, `s3:`, `gs:` or `abfss:`",
    )
    .with("location", crate::redact::foreign(location))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_a_file_is_the_same_file() {
        for text in [
            "/a b/c%20d",
            "file:/a b/c%20d",
            "file:///a b/c%20d",
            "file://localhost/a b/c%20d",
            "file:///a b//c%20d/",
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!(location.scheme, Scheme::File);
            assert_eq!(location.path().unwrap().as_ref(), "a b/c%20d", "{text}");
        }
    }

    #[test]
    fn a_bucket_location_is_cut_into_bucket_and_key() {
        let location = Location::parse("s3a://wh/db/t?1#2").unwrap();
        assert_eq!((location.scheme, location.authority), (Scheme::S3, "wh"));
        assert_eq!(location.path().unwrap().as_ref(), "db/t?1#2");
        assert_eq!(location.root, "s3a://wh/");
        let whole = Location::parse("gs://wh").unwrap();
        assert_eq!(
            (whole.root, whole.path().unwrap().as_ref()),
            ("gs://wh", "")
        );
    }

    #[test]
    fn what_is_no_location_is_refused() {
        for (text, code) in [
            ("db/t", "STORAGE_LOCATION_INVALID"),
            ("s3:/wh/t", "STORAGE_LOCATION_INVALID"),
            ("s3:///t", "STORAGE_LOCATION_INVALID"),
            ("file://host/t", "STORAGE_LOCATION_INVALID"),
            ("hdfs://nn/t", "STORAGE_SCHEME_UNSUPPORTED"),
        ] {
            assert_eq!(Location::parse(text).unwrap_err().code(), code, "{text}");
        }
        for text in ["/a/../b", "s3://wh/a//b", "s3://wh/./b"] {
            let error = Location::parse(text).unwrap().path().unwrap_err();
            assert_eq!(error.code(), "STORAGE_LOCATION_INVALID", "{text}");
        }
    }
}
