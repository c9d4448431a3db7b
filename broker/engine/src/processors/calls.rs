//! The calls of operators.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use levada_extension::{ModuleDigest, TopicPartition};
use levada_model::{GroupName, ModuleRef, Operation, Principal, ProcessorName, Resource, TransactionalId, limits};
use tokio::time::{sleep, timeout};

use super::positions::{self, Position, PositionError};
use super::runner::Control;
use super::terms::{
    Guarantee, ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec, ProcessorState,
    ProcessorTask,
};
use crate::engine::Core;
use crate::metadata::{Applied, Command, MetadataError, ProcessorImage, Refusal};
use crate::partition::{blocking, to_the_end};
use crate::{Engine, FetchError, From, GroupError, TopicError, TransactionError};

/// How long who changes a processor waits until its tasks have followed.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause before a group is asked again whose coordinator is busy.
const PAUSE: Duration = Duration::from_millis(20);

impl Engine {
    /// Puts a processor, which begins to run; another document takes over at a batch boundary, where the one before
    /// stands. Answers when it has, with the positions of a new one committed, and whether it is new. The same document again
    /// has one that stands still over a record try again.
    ///
    /// As with all calls that change a processor, dropping the future takes nothing back.
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
        let mut asked = self.core.check_processor(who, &spec).await?;
        let (core, who, name) = (self.core.clone(), who.clone(), name.clone());
        carried_out(async move {
            let changing = core.processors.changing(&name).await;
            let spec = Arc::new(spec);
            let command = Command::PutProcessor { name: name.clone(), owner: who.clone(), spec: spec.clone() };
            let (image, is_new) = loop {
                match core.propose_processor(command.clone(), asked).await? {
                    Some(put) => break put,
                    // Another version of a module is active since.
                    None => asked = core.check_processor(&who, &spec).await?,
                }
            };
            let control = core.processors.run(&core, &name, image.paused);
            let word = control.tell(true);
            drop(changing);
            let core = followed(core, &control, word).await?;
            Ok((core.processor_info(&name, &image).await?, is_new))
        })
        .await
    }

    /// A page of the processors, by name, and whether there are more; those that `who` may not see are left out. It begins
    /// behind a name.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn processors(
        &self,
        who: &Principal,
        after: Option<&ProcessorName>,
        limit: usize,
    ) -> Result<(Vec<ProcessorInfo>, bool), ProcessorError> {
        self.core.refuse_closing()?;
        let image = self.core.metadata.image();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let is_seen = |name| self.core.authorize(who, Operation::Describe, Resource::Processor(name)).is_ok();
        let behind = image.processors.range((begin, Bound::Unbounded));
        let mut seen = behind.filter(|(name, _)| is_seen(name));
        let mut infos = Vec::new();
        for (name, image) in seen.by_ref().take(limit) {
            infos.push(self.core.processor_info(name, image).await?);
        }
        Ok((infos, seen.next().is_some()))
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
        self.core.processor_image(name)?;
        let (core, name) = (self.core.clone(), name.clone());
        carried_out(async move {
            let changing = core.processors.changing(&name).await;
            let command = Command::PauseProcessor { name: name.clone(), paused };
            let (image, _) = core.propose_processor(command, Vec::new()).await?.expect("nothing was asked");
            let control = core.processors.run(&core, &name, paused);
            let word = control.tell(!paused);
            drop(changing);
            let core = followed(core, &control, word).await?;
            core.processor_info(&name, &image).await
        })
        .await
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
        self.core.processor_image(name)?;
        let (core, name) = (self.core.clone(), name.clone());
        carried_out(async move {
            let _changing = core.processors.changing(&name).await;
            let image = core.processor_image(&name)?;
            if core.processors.run(&core, &name, image.paused).state() == ProcessorState::Running {
                return Err(ProcessorError::Running);
            }
            core.reset_positions(&name, &image, reset).await
        })
        .await
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
        self.core.processor_image(name)?;
        let (core, name) = (self.core.clone(), name.clone());
        carried_out(async move {
            let _changing = core.processors.changing(&name).await;
            core.propose_processor(Command::DeleteProcessor { name: name.clone() }, Vec::new()).await?;
            let core = match core.processors.get(&name) {
                Some(control) => followed(core, &control, control.tell(false)).await?,
                None => core,
            };
            let positions = if keep_state { Ok(()) } else { core.delete_positions(&name).await };
            core.processors.forget(&name);
            positions
        })
        .await
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

/// Does a change to its end, whether or not whoever asked for it still waits.
///
/// # Errors
/// Those of the change, and [`ProcessorError::Busy`] where it takes longer than [`ANSWER_MAX`].
async fn carried_out<T: Send + 'static>(
    change: impl Future<Output = Result<T, ProcessorError>> + Send + 'static,
) -> Result<T, ProcessorError> {
    match timeout(ANSWER_MAX, to_the_end(change)).await {
        Ok(result) => result,
        Err(_) => {
            let reason = format!("its tasks have not followed within {} s; they will", ANSWER_MAX.as_secs());
            Err(ProcessorError::Busy { reason, possible: true })
        }
    }
}

/// Waits until a word is followed, and holds nothing of the engine meanwhile.
async fn followed(core: Arc<Core>, control: &Control, word: u64) -> Result<Arc<Core>, ProcessorError> {
    let engine = Arc::downgrade(&core);
    drop(core);
    control.followed(word).await;
    engine.upgrade().ok_or(ProcessorError::Closing)
}

impl Core {
    fn refuse_closing(&self) -> Result<(), ProcessorError> {
        if self.is_closing() { Err(ProcessorError::Closing) } else { Ok(()) }
    }

    fn processor_image(&self, name: &ProcessorName) -> Result<Arc<ProcessorImage>, ProcessorError> {
        let image = self.metadata.image();
        image.processors.get(name).cloned().ok_or_else(|| ProcessorError::NotFound(name.clone()))
    }

    /// Changes the metadata, if the names of modules mean what was asked; else none. Answers the processor as it is then,
    /// and whether it is new.
    async fn propose_processor(
        self: &Arc<Self>,
        command: Command,
        asked: Vec<(ModuleRef, ModuleDigest)>,
    ) -> Result<Option<(Arc<ProcessorImage>, bool)>, ProcessorError> {
        let core = self.clone();
        blocking(move || {
            let _changes = core.begin_change().map_err(|error| match error {
                TopicError::Fenced { reason, possible } => ProcessorError::Fenced { reason, possible },
                _ => ProcessorError::Closing,
            })?;
            if !core.modules.are_meant(&asked) {
                return Ok(None);
            }
            match core.metadata.propose(&command) {
                Ok(Applied::Processor(image, is_new)) => Ok(Some((image, is_new))),
                Ok(other) => unreachable!("a change of a processor answers with the processor, not {other:?}"),
                Err(MetadataError::Refused(refusal)) => Err(refused(refusal)),
                Err(MetadataError::Unavailable { reason, possible }) => {
                    Err(ProcessorError::Fenced { reason: core.directory.fence(&reason).to_string(), possible })
                }
            }
        })
        .await
    }

    /// A processor as users see it; without tasks while its positions are being loaded.
    async fn processor_info(
        self: &Arc<Self>,
        name: &ProcessorName,
        image: &ProcessorImage,
    ) -> Result<ProcessorInfo, ProcessorError> {
        let tasks = match self.processor_tasks(name, image).await {
            Err(ProcessorError::Busy { reason, .. }) => {
                tracing::debug!(processor = %name, %reason, "its positions are not known now");
                Vec::new()
            }
            tasks => tasks?,
        };
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

    /// Deletes the positions of one that was deleted.
    #[expect(
        clippy::disallowed_methods,
        reason = "a pause is meant: a coordinator that is loading tells nobody when it is done"
    )]
    async fn delete_positions(self: &Arc<Self>, name: &ProcessorName) -> Result<(), ProcessorError> {
        loop {
            match self.delete_group(&GroupName::of_processor(name)).await {
                Ok(()) | Err(GroupError::NotFound(_)) => return Ok(()),
                Err(GroupError::Closing) => return Err(ProcessorError::Closing),
                Err(GroupError::Storage(error)) => return Err(ProcessorError::Storage(error)),
                Err(GroupError::Fenced { reason, .. }) => {
                    return Err(ProcessorError::Fenced { reason, possible: true });
                }
                Err(error) => {
                    tracing::debug!(processor = %name, %error, "its positions are deleted later");
                    sleep(PAUSE).await;
                }
            }
        }
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
                let place = (topic.id(), partition.index());
                let (counts, waiting) = control.as_ref().map(|control| control.progress_of(place)).unwrap_or_default();
                tasks.push(ProcessorTask {
                    topic: topic.name().clone(),
                    partition: partition.index(),
                    position: position.next,
                    lag: partition.last_stable_offset().0.saturating_sub(position.next.0),
                    stream_time: position.stream_time,
                    skipped: counts.skipped,
                    lost: counts.lost,
                    errors: counts.errors,
                    records_in: counts.records_in,
                    records_out: counts.records_out,
                    waiting,
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
            let committed = self.commit_own(&GroupName::of_processor(name), commits).await;
            committed.map_err(|error| ProcessorError::possible(error.into()))?;
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
            error => Self::busy(error),
        }
    }
}

impl std::convert::From<TransactionError> for ProcessorError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Closing => Self::Closing,
            TransactionError::Storage(error) => Self::Storage(error),
            TransactionError::Fenced { reason, possible } => Self::Fenced { reason, possible },
            error => Self::busy(error),
        }
    }
}

impl std::convert::From<PositionError> for ProcessorError {
    fn from(error: PositionError) -> Self {
        match error {
            PositionError::Group(error) => error.into(),
            PositionError::Fetch(FetchError::Closing) => Self::Closing,
            PositionError::Fetch(FetchError::Storage(error)) => Self::Storage(error),
            PositionError::Fetch(error) => Self::busy(error),
        }
    }
}
