//! The inputs of `fuzz/inputs` with changes at random, on every test run; and that the checks check.
//!
//! No fuzzer: nothing tells which changes are worth more. But it runs wherever the tests run.
//! `FRAZIL_FUZZ_SECONDS` makes it go on for so long with each target, and `FRAZIL_FUZZ_SEED` otherwise.

#![expect(
    clippy::disallowed_methods,
    reason = "inputs are files, and it takes a time"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

/// How often each input is changed on a usual run.
const CHANGES: usize = 25;
/// The longest input that is made.
const BYTES_MAX: usize = 4_096;
/// What stands in places that matter.
const PIECES: [&[u8]; 12] = [
    b"\0\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"[[[[[[[[",
    b"{\"a\":",
    b"null",
    b"-1e999",
    b"123456789012345678901234567890",
    b"\\ud800",
    b"\"type\":\"record\"",
    b"repeated ",
];

/// Xorshift: the same numbers on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    /// Changes an input in one to four places.
    fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, u8::try_from(self.below(256)).unwrap()),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                3 if at < bytes.len() => bytes[at] = u8::try_from(self.below(256)).unwrap(),
                4 if at < bytes.len() => {
                    drop(bytes.drain(at..at + 1 + self.below((bytes.len() - at).min(8))))
                }
                5 => {
                    let piece = PIECES[self.below(PIECES.len())];
                    bytes.splice(at..at, piece.iter().copied());
                }
                6 => {
                    let from = self.below(other.len() + 1);
                    let to = from + self.below(other.len() - from + 1);
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                _ => {
                    let to = at + self.below(bytes.len() - at + 1);
                    let piece = bytes[at..to].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
            bytes.truncate(BYTES_MAX);
        }
        bytes
    }
}

/// Shows the input that breaks a promise.
struct Shown<'i>(Target, &'i [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{}: {hex}", self.0.name());
        }
    }
}

fn inputs(target: Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/inputs");
    let mut files: Vec<_> = std::fs::read_dir(folder.join(target.name()))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|number| number.parse().unwrap())
}

fn changed(target: Target) {
    let inputs = inputs(target);
    let seconds = number("FRAZIL_FUZZ_SECONDS").map(Duration::from_secs);
    let seed = number("FRAZIL_FUZZ_SEED").unwrap_or_default();
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ seed);
    let (started, mut slowest, mut tried) = (Instant::now(), Duration::ZERO, 0);
    loop {
        for input in &inputs {
            for _ in 0..CHANGES {
                let other = &inputs[random.below(inputs.len())];
                let bytes = random.change(input, other);
                let shown = Shown(target, &bytes);
                let begun = Instant::now();
                target.run(&bytes);
                slowest = slowest.max(begun.elapsed());
                drop(shown);
                tried += 1;
            }
        }
        if seconds.is_none_or(|seconds| started.elapsed() >= seconds) {
            println!(
                "{}: {tried} inputs, the slowest took {slowest:?}",
                target.name()
            );
            return;
        }
    }
}

#[test]
fn changed_json() {
    changed(Target::Json);
}

#[test]
fn changed_json_envelope() {
    changed(Target::JsonEnvelope);
}

#[test]
fn changed_avro() {
    changed(Target::Avro);
}

#[test]
fn changed_protobuf() {
    changed(Target::Protobuf);
}

#[test]
fn changed_json_schema() {
    changed(Target::JsonSchema);
}

#[test]
fn changed_framing() {
    changed(Target::Framing);
}

#[test]
fn changed_wire() {
    changed(Target::Wire);
}

#[test]
fn changed_schema() {
    changed(Target::Schema);
}

#[test]
fn each_target_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Target::ALL.into_iter().map(Target::name).collect();
    assert_eq!(names.len(), Target::ALL.len());
}

#[test]
fn pieces_stand_behind_their_lengths() {
    assert_eq!(pieces(&[1, 7, 0, 2, 8, 9]), [&[7u8][..], &[], &[8, 9]]);
    assert_eq!(pieces(&[255, 7, 0, 2]), [&[7u8, 0, 2][..]]);
    assert_eq!(pieces(&[9, 1]), [&[1u8][..]]);
}

#[test]
#[should_panic(expected = "INTERNAL")]
fn an_error_of_ours_is_noticed() {
    check(&SinkError::internal("x"));
}

// What is compared is compared: another number than `serde_json` reads is noticed.
#[test]
#[should_panic(expected = "another value")]
fn a_wrong_value_is_noticed() {
    compare::check(Cell::Int64(2), (Some(b"1"), None));
}
