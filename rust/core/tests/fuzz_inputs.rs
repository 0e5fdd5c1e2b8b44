//! Runs every input of `fuzz/inputs` once more: what the fuzzers begin with, and what they found.
#![expect(clippy::disallowed_methods, reason = "inputs are files")]

use std::path::Path;

use frazil_core::fuzz::Target;

// Promise: Malformed bytes of every format, schema and frame end in an error of their record: no panic, no wrong value, nothing lost; each input that a fuzzer found is tried again by every test run
#[test]
fn inputs_of_the_fuzzers_are_read_or_refused() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/inputs");
    for target in Target::ALL {
        let folder = inputs.join(target.name());
        let mut tried = 0;
        for entry in std::fs::read_dir(&folder).expect("a folder of inputs") {
            let path = entry.expect("an input").path();
            let input = std::fs::read(&path).expect("an input");
            println!("{}", path.display());
            target.run(&input);
            tried += 1;
        }
        assert!(tried >= 5, "{}: {tried} inputs", target.name());
    }
}
