//! Feeds any bytes to the batch decoder.

#![no_main]

#[path = "../decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode::decode(bytes));
