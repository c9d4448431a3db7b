//! The engine from outside, over the simulated disk and the real one.

mod produce_and_fetch;
mod support;
