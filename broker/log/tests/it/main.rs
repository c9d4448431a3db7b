//! The log from outside: one program, a folder for each kind of behaviour.

mod partition;
