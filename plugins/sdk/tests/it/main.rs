//! Modules as an author writes them, natively, through this crate's own tests. They are the guests that the host's tests run as
//! WebAssembly, where they are held against the broker's side of the contract.

#[path = "../../../../runtime/fixtures/guests/examples/bare.rs"]
mod bare;
#[path = "../../../../runtime/fixtures/guests/examples/everything.rs"]
mod everything;
#[path = "../../../../runtime/fixtures/guests/examples/rewrite.rs"]
mod rewrite;
mod traits;
