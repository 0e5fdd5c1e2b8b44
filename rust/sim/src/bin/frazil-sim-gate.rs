//! The mutation gate: rules are switched off one at a time, and the checkers must notice.

use std::process::ExitCode;

fn main() -> ExitCode {
    frazil_sim::gate()
}
