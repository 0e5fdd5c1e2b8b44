#![no_main]
frazil_fuzz::target!(JsonEnvelope);
