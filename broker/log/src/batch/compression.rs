//! The five compressions of a batch's records, with Kafka's framing of snappy, each bounded when it unpacks.

use thiserror::Error;

/// Why records could not be packed or unpacked.
#[derive(Debug, Error)]
pub enum CompressionError {
    /// The stream is damaged.
    #[error("{codec} stream is damaged: {detail}")]
    Damaged {
        /// The codec.
        codec: &'static str,
        /// What the codec says.
        detail: String,
    },
    /// It unpacks to more than the limit, or asks for a larger window.
    #[error("{codec} stream unpacks to more than {limit_bytes} bytes")]
    TooLarge {
        /// The codec.
        codec: &'static str,
        /// The limit in force.
        limit_bytes: usize,
    },
}
