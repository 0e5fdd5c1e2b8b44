#![no_main]
frazil_fuzz::target!(Protobuf);
