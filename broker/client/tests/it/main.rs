//! The client against a server that answers by a script, so that every failure can be had. Against the real server it is
//! tested by the command line's and the server's own tests.

mod calls;
mod follow;
mod groups;
mod producer;
mod script;
mod transactions;
