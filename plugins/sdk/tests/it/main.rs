//! Modules as an author writes them: through this crate's own tests, and held against the broker's side of the contract.

mod broker;
mod modules;
mod traits;
