//! Offsets inside transactions.

mod explore;
mod rules;
