//! The rules of the repository as tests: which crate may know which, and that every file and folder says what it is for.

mod architecture;
