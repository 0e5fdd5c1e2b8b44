//! Partition paths that stay inside their table, whatever the records say.
//!
//! Names and values are encoded as `java.net.URLEncoder` does, so that our directories are those
//! of Iceberg's Java library. No value can produce a separator, a `..` segment, a control
//! character or a path of unbounded length.

use sha2::{Digest, Sha256};

/// Bytes of one `name=value` segment; longer ones end in a hash. File systems stop at 255.
const SEGMENT_BYTES_MAX: usize = 180;
/// Bytes of all segments together; a longer path becomes one hash. S3 keys stop at 1,024.
const PATH_BYTES_MAX: usize = 500;

/// Encodes `text` as `java.net.URLEncoder` does with UTF-8.
pub fn url_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Joins names and values to `a=1/b=x`, encoded and bounded.
pub(super) fn join<'a>(parts: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut path = String::new();
    for (name, value) in parts {
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(&bounded(format!(
            "{}={}",
            url_encode(name),
            url_encode(&value)
        )));
    }
    if path.len() > PATH_BYTES_MAX {
        return format!("partition={}", digest(&path));
    }
    path
}

fn bounded(segment: String) -> String {
    if segment.len() <= SEGMENT_BYTES_MAX {
        return segment;
    }
    let hash = digest(&segment);
    let mut cut = SEGMENT_BYTES_MAX - hash.len() - 1;
    // Never cut inside a `%XX`.
    while let Some(tail) = segment.get(cut.saturating_sub(2)..cut) {
        match tail.rfind('%') {
            Some(at) => cut = cut - tail.len() + at,
            None => break,
        }
    }
    format!("{}~{hash}", segment.get(..cut).unwrap_or_default())
}

fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str, value: &str) -> String {
        join([(name, value.to_string())].into_iter())
    }

    #[test]
    fn values_are_encoded_as_java_does() {
        assert_eq!(path("c", "a b/c=d"), "c=a+b%2Fc%3Dd");
        assert_eq!(path("c", "a?b#c%d&e"), "c=a%3Fb%23c%25d%26e");
        assert_eq!(path("data#1", "val#1"), "data%231=val%231");
        assert_eq!(
            path("c", "Ünïcödé*-_.~"),
            "c=%C3%9Cn%C3%AFc%C3%B6d%C3%A9*-_.%7E"
        );
        assert_eq!(path("c", ""), "c=");
        assert_eq!(path("c", "\0\n\u{7f}"), "c=%00%0A%7F");
    }

    #[test]
    fn no_value_leaves_the_table() {
        for value in [
            "..",
            "../../../../etc",
            "/",
            "//",
            "..\\..",
            ".",
            "\u{202e}../",
        ] {
            for segment in path("c", value).split('/') {
                assert!(segment.starts_with("c="), "{segment}");
                assert!(!segment.contains(['/', '\\']), "{segment}");
            }
            assert_eq!(path("c", value).split('/').count(), 1);
            assert!(!path(value, "x").starts_with(['.', '/']) || path(value, "x").ends_with("=x"));
        }
    }

    #[test]
    fn long_values_are_cut_and_stay_apart() {
        let (one, two) = ("é".repeat(5_000) + "1", "é".repeat(5_000) + "2");
        let (one, two) = (path("c", &one), path("c", &two));
        assert_ne!(one, two);
        for path in [one, two] {
            assert!(path.len() <= SEGMENT_BYTES_MAX, "{}", path.len());
            let (head, _) = path.split_once('~').expect("a hash");
            assert!(head.ends_with("%C3") || head.ends_with("%A9"), "{head}");
        }
        let many = (0..40).map(|_| ("column", "v".repeat(100)));
        assert!(join(many).len() <= PATH_BYTES_MAX);
    }
}
