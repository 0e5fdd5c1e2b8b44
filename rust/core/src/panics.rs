//! A panic as an error: what is left of a bug once it was caught at the border of a thread.
//!
//! Texts of errors are public (`GET /connectors/…/status` prints them), so the text of a panic is
//! cut where the standard library goes on to quote the data that it tripped over.

use std::any::Any;

use crate::error::SinkError;

/// Returns the fatal error that stands for a panic; `place` is `file:line` where it is known.
pub fn panic_error(payload: &(dyn Any + Send), place: Option<&str>) -> SinkError {
    let message = match payload.downcast_ref::<&'static str>() {
        Some(message) => message,
        None => payload
            .downcast_ref::<String>()
            .map_or("unknown", String::as_str),
    };
    let message = format!("bug in the native sink: {}", without_data(message));
    let error = SinkError::fatal("PANIC", message);
    match place {
        Some(place) => error.with("at", place),
        None => error,
    }
}

fn without_data(message: &str) -> &str {
    const QUOTES: [&str; 5] = [
        " of `",
        " when slicing `",
        "; it is inside ",
        " on an `Err` value: ",
        "\n",
    ];
    let end = QUOTES.iter().filter_map(|mark| message.find(mark)).min();
    end.and_then(|end| message.get(..end)).unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn report(payload: impl Any + Send) -> String {
        panic_error(&payload, None).report()
    }

    #[test]
    fn a_panic_names_cause_and_place_but_no_data() {
        let said = "byte index 1 is not a char boundary; it is inside 'é' of `sécret`".to_owned();
        let error = panic_error(&said, Some("rust/core/src/x.rs:7"));
        assert_eq!(error.kind(), ErrorKind::Fatal);
        assert_eq!(
            error.report(),
            "bug in the native sink: byte index 1 is not a char boundary \
             [PANIC, at=rust/core/src/x.rs:7]"
        );
        let unwrapped = "called `Result::unwrap()` on an `Err` value: Row { v: 7 }".to_owned();
        assert!(!report(unwrapped).contains("Row"));
        assert!(report("index out of bounds: the len is 3").contains("len is 3"));
        assert!(report(7_u8).contains("unknown"));
    }
}
