//! The simulator.

use std::process::ExitCode;

fn main() -> ExitCode {
    frazil_sim::simulate()
}
