//! The calls of operators.

use levada_model::{Principal, ProcessorName};

use super::terms::{ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec, ProcessorTask};
use crate::{Engine, From};

impl Engine {
    /// Puts a processor, which begins to run; another document takes over at a batch boundary, where the one before
    /// stands. Answers whether it is new.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn put_processor(
        &self,
        who: &Principal,
        name: &ProcessorName,
        spec: ProcessorSpec,
    ) -> Result<(ProcessorInfo, bool), ProcessorError> {
        let _ = (who, name, spec);
        todo!()
    }

    /// All processors by name.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn processors(&self, who: &Principal) -> Result<Vec<ProcessorInfo>, ProcessorError> {
        let _ = who;
        todo!()
    }

    /// One processor.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn processor(&self, who: &Principal, name: &ProcessorName) -> Result<ProcessorInfo, ProcessorError> {
        let _ = (who, name);
        todo!()
    }

    /// Has it stand still at the next batch boundary, and answers when it does; or go on.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn pause_processor(
        &self,
        who: &Principal,
        name: &ProcessorName,
        paused: bool,
    ) -> Result<ProcessorInfo, ProcessorError> {
        let _ = (who, name, paused);
        todo!()
    }

    /// Sets the positions of one that stands still. Answers them.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn reset_processor(
        &self,
        who: &Principal,
        name: &ProcessorName,
        reset: ProcessorReset,
    ) -> Result<Vec<ProcessorTask>, ProcessorError> {
        let _ = (who, name, reset);
        todo!()
    }

    /// Deletes it with its positions (or not, with `keep_state`).
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn delete_processor(
        &self,
        who: &Principal,
        name: &ProcessorName,
        keep_state: bool,
    ) -> Result<(), ProcessorError> {
        let _ = (who, name, keep_state);
        todo!()
    }

    /// Runs a document over stored records and stores nothing.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn dry_run_processor(
        &self,
        who: &Principal,
        spec: ProcessorSpec,
        from: From,
        max_records: usize,
    ) -> Result<ProcessorDryRun, ProcessorError> {
        let _ = (who, spec, from, max_records);
        todo!()
    }
}
