#![no_main]
frazil_fuzz::target!(Schema);
