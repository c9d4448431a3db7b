//! The calls of operators.

use std::sync::Arc;

use levada_extension::TopicPartition;
use levada_model::{GroupName, Operation, Principal, ProcessorName, Resource, TransactionalId, limits};

use super::positions::{self, Position, PositionError};
use super::terms::{
    Guarantee, ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec, ProcessorState,
    ProcessorTask,
};
use crate::engine::Core;
use crate::metadata::{Applied, Command, MetadataError, ProcessorImage, Refusal};
use crate::partition::blocking;
use crate::{Engine, FetchError, From, GroupError, TopicError, TransactionError};

impl Engine {
    /// Puts a processor, which begins to run; another document takes over at a batch boundary, where the one before
    /// stands. Answers whether it is new. The same document again has one that stands still over a record try again.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn put_processor(
        &self,
        who: &Principal,
        name: &ProcessorName,
        spec: ProcessorSpec,
    ) -> Result<(ProcessorInfo, bool), ProcessorError> {
        let is_new = !self.core.metadata.image().processors.contains_key(name);
        let operation = if is_new { Operation::Create } else { Operation::Alter };
        self.core.authorize(who, operation, Resource::Processor(name))?;
        self.core.refuse_closing()?;
        self.core.check_processor(who, &spec).await?;
        let before = self.core.processors.get(name);
        let _changing = match &before {
            Some(control) => Some(control.changing.lock().await),
            None => None,
        };
        let command = Command::PutProcessor { name: name.clone(), owner: who.clone(), spec: Arc::new(spec) };
        let (image, is_new) = self.core.propose_processor(command).await?;
        self.core.processors.run(&self.core, name, image.paused).tell(true);
        Ok((self.core.processor_info(name, &image).await?, is_new))
    }

    /// All processors by name; those that `who` may not see are left out.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn processors(&self, who: &Principal) -> Result<Vec<ProcessorInfo>, ProcessorError> {
        self.core.refuse_closing()?;
        let mut infos = Vec::new();
        for (name, image) in &self.core.metadata.image().processors {
            if self.core.authorize(who, Operation::Describe, Resource::Processor(name)).is_ok() {
                infos.push(self.core.processor_info(name, image).await?);
            }
        }
        Ok(infos)
    }

    /// One processor.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn processor(&self, who: &Principal, name: &ProcessorName) -> Result<ProcessorInfo, ProcessorError> {
        self.core.authorize(who, Operation::Describe, Resource::Processor(name))?;
        self.core.refuse_closing()?;
        let image = self.core.processor_image(name)?;
        self.core.processor_info(name, &image).await
    }

    /// Has it stand still at the next batch boundary, and answers when it does; or go on, also over what it stood still.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn pause_processor(
        &self,
        who: &Principal,
        name: &ProcessorName,
        paused: bool,
    ) -> Result<ProcessorInfo, ProcessorError> {
        self.core.authorize(who, Operation::Alter, Resource::Processor(name))?;
        self.core.refuse_closing()?;
        let control = self.core.processors.run(&self.core, name, self.core.processor_image(name)?.paused);
        let _changing = control.changing.lock().await;
        let command = Command::PauseProcessor { name: name.clone(), paused };
        let (image, _) = self.core.propose_processor(command).await?;
        control.followed(control.tell(!paused)).await;
        self.core.processor_info(name, &image).await
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
        self.core.authorize(who, Operation::Alter, Resource::Processor(name))?;
        self.core.refuse_closing()?;
        let image = self.core.processor_image(name)?;
        let control = self.core.processors.run(&self.core, name, image.paused);
        let _changing = control.changing.lock().await;
        if control.state() == ProcessorState::Running {
            return Err(ProcessorError::Running);
        }
        let image = self.core.processor_image(name)?;
        self.core.reset_positions(name, &image, reset).await
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
        self.core.authorize(who, Operation::Delete, Resource::Processor(name))?;
        self.core.refuse_closing()?;
        let control = self.core.processors.run(&self.core, name, self.core.processor_image(name)?.paused);
        let _changing = control.changing.lock().await;
        self.core.propose_processor(Command::DeleteProcessor { name: name.clone() }).await?;
        control.followed(control.tell(false)).await;
        self.core.processors.forget(name);
        if keep_state {
            return Ok(());
        }
        match self.core.delete_group(&GroupName::of_processor(name)).await {
            Ok(()) | Err(GroupError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
        self.core.refuse_closing()?;
        self.core.check_processor(who, &spec).await?;
        self.try_processor(who, &spec, from, max_records).await
    }
}

impl Core {
    fn refuse_closing(&self) -> Result<(), ProcessorError> {
        if self.is_closing() { Err(ProcessorError::Closing) } else { Ok(()) }
    }

    fn processor_image(&self, name: &ProcessorName) -> Result<Arc<ProcessorImage>, ProcessorError> {
        let image = self.metadata.image();
        image.processors.get(name).cloned().ok_or_else(|| ProcessorError::NotFound(name.clone()))
    }

    /// Changes the metadata; answers the processor as it is then, and whether it is new.
    async fn propose_processor(
        self: &Arc<Self>,
        command: Command,
    ) -> Result<(Arc<ProcessorImage>, bool), ProcessorError> {
        let core = self.clone();
        blocking(move || {
            let _changes = core.begin_change().map_err(|error| match error {
                TopicError::Fenced { reason, possible } => ProcessorError::Fenced { reason, possible },
                _ => ProcessorError::Closing,
            })?;
            match core.metadata.propose(&command) {
                Ok(Applied::Processor(image, is_new)) => Ok((image, is_new)),
                Ok(other) => unreachable!("a change of a processor answers with the processor, not {other:?}"),
                Err(MetadataError::Refused(refusal)) => Err(refused(refusal)),
                Err(MetadataError::Unavailable { reason, possible }) => {
                    Err(ProcessorError::Fenced { reason: core.directory.fence(&reason).to_string(), possible })
                }
            }
        })
        .await
    }

    /// A processor as users see it.
    async fn processor_info(
        self: &Arc<Self>,
        name: &ProcessorName,
        image: &ProcessorImage,
    ) -> Result<ProcessorInfo, ProcessorError> {
        let tasks = self.processor_tasks(name, image).await?;
        let state = match self.processors.get(name) {
            Some(control) => control.state(),
            None if image.paused => ProcessorState::Paused,
            None => ProcessorState::Running,
        };
        Ok(ProcessorInfo {
            name: name.clone(),
            owner: image.owner.clone(),
            version: image.version,
            document: image.spec.document.clone(),
            state,
            tasks,
        })
    }

    /// Its tasks by source and partition. One that has committed nothing stands at the log start.
    async fn processor_tasks(
        self: &Arc<Self>,
        name: &ProcessorName,
        image: &ProcessorImage,
    ) -> Result<Vec<ProcessorTask>, ProcessorError> {
        let committed = self.own_offsets(&GroupName::of_processor(name)).await?;
        let control = self.processors.get(name);
        let mut tasks = Vec::new();
        for topic in image.spec.sources.iter().filter_map(|source| self.catalog.get(&source.topic)) {
            for partition in topic.state_full().partitions() {
                let at = TopicPartition { topic: topic.id(), partition: partition.index() };
                let position = committed.get(&at).map(Position::of);
                let position = position.unwrap_or(Position { next: partition.log_start(), stream_time: None });
                let counts = control.as_ref().map(|control| control.counts((topic.id(), partition.index())));
                let counts = counts.unwrap_or_default();
                tasks.push(ProcessorTask {
                    topic: topic.name().clone(),
                    partition: partition.index(),
                    position: position.next,
                    lag: partition.last_stable_offset().0.saturating_sub(position.next.0),
                    stream_time: position.stream_time,
                    skipped: counts.skipped,
                    errors: counts.errors,
                    records_in: counts.records_in,
                    records_out: counts.records_out,
                });
            }
        }
        Ok(tasks)
    }

    /// Sets positions, after what tasks may have left open is aborted.
    async fn reset_positions(
        self: &Arc<Self>,
        name: &ProcessorName,
        image: &ProcessorImage,
        reset: ProcessorReset,
    ) -> Result<Vec<ProcessorTask>, ProcessorError> {
        let mut tasks = self.processor_tasks(name, image).await?;
        let mut commits = Vec::new();
        for task in &mut tasks {
            let topic = self.catalog.get(&task.topic);
            let partition = topic.as_ref().and_then(|topic| topic.state().partition(task.partition).cloned());
            let (Some(topic), Some(partition)) = (topic, partition) else { continue };
            let next = positions::resolve(self, &topic, &partition, reset.start).await.map_err(PositionError::from)?;
            (task.position, task.stream_time) = (next, None);
            task.lag = partition.last_stable_offset().0.saturating_sub(next.0);
            commits.push(Position { next, stream_time: None }.commit(self, &topic, &partition));
            if !reset.dry_run && image.spec.guarantee == Guarantee::ExactlyOnce {
                let id = TransactionalId::of_processor(name, topic.id(), partition.index());
                self.start_producer(&id, limits::PROCESSOR_TRANSACTION_TIMEOUT_MS).await?;
            }
        }
        if !reset.dry_run && !commits.is_empty() {
            self.commit_own(&GroupName::of_processor(name), commits).await?;
        }
        Ok(tasks)
    }
}

fn refused(refusal: Refusal) -> ProcessorError {
    match refusal {
        Refusal::NoProcessor(name) => ProcessorError::NotFound(name),
        Refusal::TooManyProcessors => ProcessorError::TooMany { limit: limits::PROCESSORS_MAX },
        // It was there when the document was checked.
        refusal @ Refusal::MissingModule { .. } => {
            ProcessorError::Document(vec![("/steps".to_owned(), refusal.to_string())])
        }
        refusal => unreachable!("it is of topics or modules: {refusal}"),
    }
}

impl std::convert::From<GroupError> for ProcessorError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Closing => Self::Closing,
            GroupError::Storage(error) => Self::Storage(error),
            GroupError::Fenced { reason, possible } => Self::Fenced { reason, possible },
            error => Self::Busy(error.to_string()),
        }
    }
}

impl std::convert::From<TransactionError> for ProcessorError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Closing => Self::Closing,
            TransactionError::Storage(error) => Self::Storage(error),
            TransactionError::Fenced { reason, possible } => Self::Fenced { reason, possible },
            error => Self::Busy(error.to_string()),
        }
    }
}

impl std::convert::From<PositionError> for ProcessorError {
    fn from(error: PositionError) -> Self {
        match error {
            PositionError::Group(error) => error.into(),
            PositionError::Fetch(FetchError::Closing) => Self::Closing,
            PositionError::Fetch(FetchError::Storage(error)) => Self::Storage(error),
            PositionError::Fetch(error) => Self::Busy(error.to_string()),
        }
    }
}
