#![no_main]
frazil_fuzz::target!(JsonSchema);
