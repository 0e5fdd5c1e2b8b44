#![no_main]
frazil_fuzz::target!(Json);
