//! What the broker knows besides records: topics with their settings and partitions, modules, processors, the cluster's
//! identity, producer id blocks. A deterministic state machine: commands are proposed through one trait, applied to an image, and the image
//! is what everyone reads. On one node the results go to redb; in a cluster the same commands will go through Raft.
//!
//! Nothing here reads a clock, draws a random number or touches a log.

mod backend;
mod command;
mod image;
#[cfg(test)]
mod naive;
mod rows;
mod store;

use std::sync::Arc;

use thiserror::Error;

pub(crate) use command::{Applied, Command, Refusal};
pub(crate) use image::{Image, ModuleImage, ModuleVersionImage, PartitionImage, ProcessorImage, Stage, TopicImage};
pub(crate) use store::RedbMetadata;

/// The one way to change metadata.
///
/// Duties: commands are applied one after another; when `propose` answers, the result is durable and
/// [`image`](Self::image) shows it; a refused command changes nothing; the same commands give the same image everywhere.
pub(crate) trait Metadata: Send + Sync {
    /// Applies a command durably. Blocks for the disk.
    ///
    /// # Errors
    /// When the command is refused, or no change can be made durable.
    fn propose(&self, command: &Command) -> Result<Applied, MetadataError>;

    /// All that holds now.
    fn image(&self) -> Arc<Image>;

    /// Lets go of what is stored and takes no more commands, so that whoever is late does not write where another engine
    /// may have begun. The image stays.
    fn close(&self);
}

/// Why a command was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MetadataError {
    /// The state does not allow it; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be made durable.
    #[error("{reason}")]
    Unavailable {
        /// What happened.
        reason: String,
        /// Whether it may show after a restart.
        possible: bool,
    },
}
