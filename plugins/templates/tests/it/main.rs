//! Projects as they are written: that they are whole, that what they say of the SDK is true, and that they build.

mod build;
mod written;
