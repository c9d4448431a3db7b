//! Feeds any bytes to everything that reads a module's answers.

#![no_main]

#[path = "../answer.rs"]
mod answer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    answer::answer(bytes);
});
