//! What may leave in an error message: bounded, printable, without anything that looks like a secret.

use frazil_core::secret::is_secret_key;

/// Characters of foreign text that an error message may carry.
const TEXT_CHARS_MAX: usize = 500;

/// Parts of names that other systems write without the dashes that the rule for keys looks for.
const SECRET_PARTS: [&str; 3] = ["signature", "accesskey", "accountkey"];

/// Returns `text` of another system, fit for an error message: without values of secret-looking
/// keys and user info of URLs, without control characters, cut to 500 characters.
pub(crate) fn foreign(text: &str) -> String {
    let text = xml_code_and_message(text).unwrap_or_else(|| text.to_string());
    let mut clean = without_user_info(&without_secrets(&text));
    if let Some((end, _)) = clean.char_indices().nth(TEXT_CHARS_MAX) {
        clean.truncate(end);
        clean.push('…');
    }
    clean
}

/// An S3 or Azure error body carries key ids and host ids: only its code and message are kept.
fn xml_code_and_message(text: &str) -> Option<String> {
    let start = text.find("<?xml").or_else(|| text.find("<Error>"))?;
    let element = |name: &str| {
        let open = format!("<{name}>");
        let from = text.find(&open)? + open.len();
        let length = text.get(from..)?.find('<')?;
        text.get(from..from + length)
    };
    let code = element("Code").unwrap_or("unknown code");
    let message = element("Message").unwrap_or("");
    // No colon: `SignatureDoesNotMatch: The …` would look like a key and its value.
    Some(format!("{}{code} ({message})", text.get(..start)?))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    matches!(lower.as_str(), "sig" | "sas" | "key")
        || is_secret_key(name)
        || SECRET_PARTS.iter().any(|part| lower.contains(part))
}

fn is_value_end(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '&' | ',' | ';' | '"' | '\'' | '}' | ']' | ')' | '<' | '>'
        )
}

fn without_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut name = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let c = if c.is_control() { ' ' } else { c };
        out.push(c);
        if is_name_char(c) {
            name.push(c);
            continue;
        }
        if c == ' ' && matches!(name.to_ascii_lowercase().as_str(), "bearer" | "basic") {
            mask_value(&mut chars, &mut out);
        }
        // A quote may stand between a JSON key and its colon.
        if matches!(c, '"' | '\'') && chars.peek() == Some(&':') {
            continue;
        }
        if matches!(c, '=' | ':') && is_secret_name(&name) {
            mask_value(&mut chars, &mut out);
        }
        name.clear();
    }
    out
}

/// Skips spaces, quotes and an authentication scheme, then replaces one value by `***`.
fn mask_value(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    loop {
        while chars.next_if(|c| matches!(c, ' ' | '"' | '\'')).is_some() {}
        let mut value = String::new();
        while let Some(c) = chars.next_if(|c| !is_value_end(*c)) {
            value.push(c);
        }
        if !matches!(value.to_ascii_lowercase().as_str(), "bearer" | "basic") {
            if !value.is_empty() {
                out.push_str("***");
            }
            return;
        }
    }
}

fn without_user_info(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once("://") {
        out.push_str(head);
        out.push_str("://");
        let authority_end = tail
            .find(|c: char| matches!(c, '/' | '?' | '#') || is_value_end(c))
            .unwrap_or(tail.len());
        let (authority, after) = tail.split_at(authority_end);
        match authority.rsplit_once('@') {
            // `abfss://container@account…` has no password and stays readable.
            Some((user, host)) if user.contains(':') => {
                out.push_str("***@");
                out.push_str(host);
            }
            _ => out.push_str(authority),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_every_notation_are_masked() {
        for (text, clean) in [
            (
                "GET http://h/x?sig=abc%2F&se=1",
                "GET http://h/x?sig=***&se=1",
            ),
            (
                "s3.secret-access-key=hunter2 bad",
                "s3.secret-access-key=*** bad",
            ),
            (
                r#"{"client_secret":"hunter2","a":1}"#,
                r#"{"client_secret":***","a":1}"#,
            ),
            ("Authorization: Bearer abc.def ghi", "Authorization:*** ghi"),
            ("sent bearer abc.def", "sent bearer ***"),
            ("at https://me:hunter2@host/p", "at https://***@host/p"),
            (
                "abfss://c@account.dfs.core.windows.net/t",
                "abfss://c@account.dfs.core.windows.net/t",
            ),
            ("table db.t: not found", "table db.t: not found"),
        ] {
            assert_eq!(foreign(text), clean);
        }
    }

    #[test]
    fn an_s3_body_keeps_code_and_message_only() {
        let body = "403: <?xml version=\"1.0\"?><Error><Code>InvalidAccessKeyId</Code>\
                    <Message>no such key id</Message><AWSAccessKeyId>AKIAX</AWSAccessKeyId></Error>";
        assert_eq!(foreign(body), "403: InvalidAccessKeyId (no such key id)");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = foreign(&"€".repeat(2_000));
        assert_eq!(text.chars().count(), TEXT_CHARS_MAX + 1);
    }
}
