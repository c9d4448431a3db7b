//! placeholder
#[derive(Debug)]
pub(crate) struct Metrics;
impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }
}
