//! `frazil-sim`: runs the state machines of Frazil in a simulated world and checks every step.

fn main() {}
