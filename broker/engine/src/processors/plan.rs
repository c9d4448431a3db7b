//! A processor's document as its tasks follow it.

use std::sync::Arc;

use levada_model::{GroupName, Principal, ProcessorName};

use super::pipeline::Pipeline;
use super::terms::ProcessorSpec;
use crate::metadata::ProcessorImage;

/// What all tasks of one document share.
pub(super) struct Plan {
    pub(super) name: ProcessorName,
    /// Where positions are committed.
    pub(super) group: GroupName,
    /// On whose behalf records are read and written.
    pub(super) owner: Principal,
    pub(super) spec: Arc<ProcessorSpec>,
    pub(super) pipeline: Arc<Pipeline>,
}

impl Plan {
    /// # Errors
    /// When the document is one that only another broker would have taken.
    pub(super) fn new(
        name: &ProcessorName,
        image: &ProcessorImage,
    ) -> Result<Self, levada_extension::JsonPointerError> {
        Ok(Self {
            name: name.clone(),
            group: GroupName::of_processor(name),
            owner: image.owner.clone(),
            spec: image.spec.clone(),
            pipeline: Arc::new(Pipeline::new(&image.spec)?),
        })
    }
}
