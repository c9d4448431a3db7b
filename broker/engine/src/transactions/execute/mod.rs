//! Transactions of one request: judged whole, then begun, written and ended on behalf of a client that sends nothing else.
//!
//! What has begun belongs to a task of the broker's: a client that goes away leaves no transaction open.

mod answer;
mod ids;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use levada_coordinator::{
    BodyDigest, EndError, Executing, Now, Outcome, Producer, Progress, TransactionCoordinator, TransactionHandle,
    TransactionStep,
};
use levada_model::{Principal, TopicName, limits};
use tokio::task::JoinSet;
use tokio::time::sleep;

pub(crate) use ids::ExecuteIds;

use super::asking::{Promise, end_reply, execute_reply};
use super::kind::{TransactionKind, TransactionsCoordinator};
use super::terms::{ExecuteRequest, Executed, ExecutedRecord, TransactionError};
use crate::groups::PendingOffsets;
use crate::{AppendFault, Engine, Once, Placed, ProduceError, ProduceRequest, Produced};
use ids::ExecuteId;

/// Pause before an end is asked for again that the coordinator could not take.
const PAUSE: Duration = Duration::from_millis(20);

impl Engine {
    /// A whole transaction at once: stores records in any topics and commits offsets of a group, all or nothing. Dropping
    /// the future takes nothing back.
    ///
    /// # Errors
    /// See [`TransactionError`]; nothing of it can be read then, unless it says that it may have been done.
    pub async fn execute_transaction(
        &self,
        who: &Principal,
        request: ExecuteRequest,
    ) -> Result<Executed, TransactionError> {
        let execution = self.judge(who, request).await?;
        let task = tokio::spawn(execution.run());
        match task.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // Its runtime has ended.
                Err(_) => Err(TransactionError::Closing),
            },
        }
    }

    /// Refuses what can be refused before anything is stored.
    async fn judge(&self, who: &Principal, request: ExecuteRequest) -> Result<Execution, TransactionError> {
        let ExecuteRequest { records, group_offsets, key } = request;
        let group_offsets = group_offsets.filter(|offsets| !offsets.offsets.is_empty());
        if records.is_empty() && group_offsets.is_none() {
            return Err(TransactionError::Empty);
        }
        let count = records.len();
        let mut parts: BTreeMap<TopicName, Part> = BTreeMap::new();
        for (place, new) in records.into_iter().enumerate() {
            let part = parts.entry(new.topic).or_default();
            part.places.push(place);
            part.request.records.push(new.record);
        }
        if let Some(topic) = parts.keys().next().filter(|_| count > limits::REQUEST_RECORDS_MAX) {
            return Err(refused(topic, &[0], ProduceError::TooManyRecords));
        }
        let mut active = Vec::with_capacity(parts.len());
        for (topic, part) in &parts {
            let judged = self.judge_produce(who, topic, &part.request);
            active.push(judged.map_err(|error| refused(topic, &part.places, error))?);
        }
        if key.is_some() {
            let counts = parts.iter().zip(active).map(|((topic, part), active)| (topic, part.places.len(), active));
            let limit = limits::EXECUTE_ANSWER_BYTES_MAX;
            if answer::size_bytes_max(counts) > limit {
                return Err(TransactionError::AnswerTooLarge { limit });
            }
        }
        let group_offsets = match group_offsets {
            Some(offsets) => Some(self.core.judge_pending(who, offsets).await?),
            None => None,
        };
        let topic = self.core.ensure_coordinators::<TransactionKind>().await?;
        let body = key.as_ref().map(|(_, digest)| BodyDigest(*digest));
        let id = self.core.execute_ids.take(who, key.as_ref().map(|(key, _)| &**key)).await;
        let coordinator = self.core.transactions.by_key_in(&topic, id.as_str());
        Ok(Execution { engine: self.clone(), who: who.clone(), coordinator, id, body, parts, count, group_offsets })
    }
}

/// What of a request goes to one topic.
#[derive(Default)]
struct Part {
    /// Places of its records in the request.
    places: Vec<usize>,
    request: ProduceRequest,
}

/// A transaction of one request that was judged.
struct Execution {
    engine: Engine,
    who: Principal,
    coordinator: TransactionsCoordinator,
    id: ExecuteId,
    body: Option<BodyDigest>,
    parts: BTreeMap<TopicName, Part>,
    /// Records in all.
    count: usize,
    group_offsets: Option<PendingOffsets>,
}

impl Execution {
    async fn run(self) -> Result<Executed, TransactionError> {
        match self.begin().await? {
            Executing::Begun(transaction) => self.carry_out(transaction).await,
            Executing::Replayed(bytes) => {
                // It was written by a later version.
                let records = answer::decode(bytes).ok_or(TransactionError::KeyReused)?;
                Ok(Executed { records, duplicate: true })
            }
        }
    }

    async fn begin(&self) -> Result<Executing, TransactionError> {
        let (id, body) = (&self.id, self.body);
        let begun = self.engine.core.ask(&self.coordinator, Promise::Nothing, |machine, now, spare| {
            let step = machine.execute(now, id, limits::EXECUTE_TIMEOUT_MS, body, spare);
            step.map(|answer| execute_reply(body.is_some(), answer))
        });
        begun.await
    }

    async fn carry_out(mut self, transaction: TransactionHandle) -> Result<Executed, TransactionError> {
        let done = match self.write(transaction).await {
            Ok(records) => {
                let committed = self.commit(transaction, &records).await;
                committed.map(|()| Executed { records, duplicate: false })
            }
            Err(error) => Err(error),
        };
        if done.is_err() {
            self.abort(transaction).await;
        }
        done.map_err(lost)
    }

    /// Stores the records of all topics at once, and the offsets.
    async fn write(&mut self, transaction: TransactionHandle) -> Result<Vec<ExecutedRecord>, TransactionError> {
        let mut writes = JoinSet::new();
        for (topic, Part { places, mut request }) in std::mem::take(&mut self.parts) {
            let (engine, who) = (self.engine.clone(), self.who.clone());
            request.once = Once::Transaction { transaction, sequence: None };
            writes.spawn(async move {
                let produced = engine.produce_in_own(&who, &topic, request).await;
                let records = executed(produced, &topic, &places)?;
                Ok(places.into_iter().zip(records).collect())
            });
        }
        if let Some(offsets) = self.group_offsets.take() {
            let core = self.engine.core.clone();
            writes.spawn(async move { core.add_offsets(transaction, offsets).await.map(|()| Vec::new()) });
        }
        let (mut records, mut failed) = (vec![None; self.count], None);
        // Also after one that failed: none may be under way when it is aborted.
        while let Some(written) = writes.join_next().await {
            let written: Result<Vec<_>, _> = written.unwrap_or_else(|error| resume_unwind(error.into_panic()));
            match written {
                Ok(placed) => placed.into_iter().for_each(|(place, record)| records[place] = Some(record)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(records.into_iter().map(|record| record.expect("each went to a topic")).collect()),
        }
    }

    async fn commit(&self, transaction: TransactionHandle, records: &[ExecutedRecord]) -> Result<(), TransactionError> {
        let kept = self.body.map(|body| (body, answer::encode(records)));
        self.end(transaction, |machine, now| match &kept {
            Some((body, bytes)) => machine.commit_execution(now, transaction, *body, bytes.clone()),
            None => machine.end(now, transaction, Outcome::Commit),
        })
        .await
    }

    /// So that nothing of it is ever read, and nobody waits for its time to be over.
    async fn abort(&self, transaction: TransactionHandle) {
        if let Err(error) = self.end(transaction, |machine, now| machine.end(now, transaction, Outcome::Abort)).await {
            tracing::debug!(%transaction, %error, "a transaction of one request is ended by its coordinator");
        }
    }

    /// Ends the transaction. The same end again answers the same, so one that a coordinator has lost, or could not take, is
    /// asked for until it stands, or the transaction's time is over.
    #[expect(clippy::disallowed_methods, reason = "a coordinator that takes nothing now is left alone for a moment")]
    async fn end(
        &self,
        transaction: TransactionHandle,
        end: impl Fn(&mut TransactionCoordinator, Now) -> TransactionStep<Result<Progress<Producer>, EndError>>,
    ) -> Result<(), TransactionError> {
        let end = |machine: &mut TransactionCoordinator, now, _| {
            end(machine, now).map(|answer| end_reply(transaction, answer))
        };
        // Whether a try may have come to something.
        let mut may_stand = false;
        loop {
            let ended = self.engine.core.ask(&self.coordinator, Promise::End, end).await;
            let Err(error) = ended else { return Ok(()) };
            match error {
                TransactionError::Overloaded => {}
                TransactionError::Loading => may_stand = true,
                TransactionError::Unanswered(why) if matches!(*why, TransactionError::Overloaded) => may_stand = true,
                error if may_stand => return Err(error.unanswered()),
                error => return Err(error),
            }
            sleep(PAUSE).await;
        }
    }
}

/// That nobody knows a transaction of one request any more, or that it was aborted to make room for another try, says that
/// its coordinator has lost it meanwhile.
fn lost(error: TransactionError) -> TransactionError {
    let is_lost = |error: &_| matches!(error, TransactionError::NotFound | TransactionError::ProducerFenced);
    let of_append = |fault: &_| matches!(fault, AppendFault::Transaction(error) if is_lost(error));
    match error {
        TransactionError::Append { fault, .. } if of_append(&fault) => TransactionError::Loading,
        TransactionError::Unanswered(why) if is_lost(&why) => TransactionError::Loading,
        error if is_lost(&error) => TransactionError::Loading,
        error => error,
    }
}

/// Where records are, or why the first that is not anywhere is not.
fn executed(
    produced: Result<Produced, ProduceError>,
    topic: &TopicName,
    places: &[usize],
) -> Result<Vec<ExecutedRecord>, TransactionError> {
    let produced = match produced {
        Err(ProduceError::Transaction(error)) => return Err(*error),
        produced => produced.map_err(|error| refused(topic, places, error))?,
    };
    let executed = |placed: Result<Placed, Arc<AppendFault>>| match placed {
        Ok(placed) => Ok(ExecutedRecord { topic: topic.clone(), placed }),
        Err(fault) => Err(TransactionError::Append { topic: topic.clone(), fault }),
    };
    produced.records.into_iter().map(executed).collect()
}

/// Why records of a topic are not taken, with faults at the places that these records have in the request.
fn refused(topic: &TopicName, places: &[usize], error: ProduceError) -> TransactionError {
    let error = match error {
        ProduceError::Records(faults) => {
            ProduceError::Records(faults.into_iter().map(|(place, fault)| (places[place], fault)).collect())
        }
        error => error,
    };
    let place = *places.first().expect("a part has records");
    TransactionError::Produce { topic: topic.clone(), place, error: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use levada_model::{Offset, Record};

    use super::*;
    use crate::{CreateTopic, ExecuteRecord, ProduceRecord, testing};

    fn topic() -> TopicName {
        TopicName::new("t").expect("a name")
    }

    async fn open() -> Engine {
        let engine = testing::open();
        let new = CreateTopic { name: topic(), partitions: 1, config: Default::default() };
        engine.create_topic(&Principal::anonymous(), new).await.expect("created");
        engine
    }

    fn request(body: u8) -> ExecuteRequest {
        let record = Record { value: Some(vec![body].into()), ..Record::default() };
        let record = ProduceRecord { record, ..ProduceRecord::default() };
        let records = vec![ExecuteRecord { topic: topic(), record }];
        ExecuteRequest { records, group_offsets: None, key: Some(("k".to_owned(), [body; 32])) }
    }

    /// One that has begun, and has stored nothing when its coordinator is lost.
    async fn lost_after_its_begin(engine: &Engine, body: u8) -> (Execution, TransactionHandle) {
        let execution = engine.judge(&Principal::anonymous(), request(body)).await.expect("it is taken");
        let Executing::Begun(transaction) = execution.begin().await.expect("it begins") else { panic!("it is new") };
        let coordinator = execution.coordinator.clone();
        let breaks = tokio::spawn(async move {
            coordinator.step(|_, _, _| -> TransactionStep<()> { panic!("a planted bug") }).await
        });
        assert!(breaks.await.expect_err("it panics").is_panic());
        (execution, transaction)
    }

    async fn end_offset(engine: &Engine) -> Offset {
        let described = engine.describe_topic(&Principal::anonymous(), &topic()).expect("it is there");
        described.partitions[0].high_watermark
    }

    #[tokio::test]
    async fn one_whose_coordinator_is_lost_before_anything_is_stored_may_be_asked_for_again() {
        let engine = open().await;
        let (execution, transaction) = lost_after_its_begin(&engine, 1).await;
        let failed = execution.carry_out(transaction).await;
        assert!(matches!(failed, Err(TransactionError::Loading)), "{failed:?}");
        let again = engine.execute_transaction(&Principal::anonymous(), request(1)).await.expect("done");
        assert!(!again.duplicate);
    }

    #[tokio::test]
    async fn what_comes_late_from_before_a_load_is_no_part_of_the_next_one_with_the_key() {
        let engine = open().await;
        // The key's id is known, and has no answer.
        let execution = engine.judge(&Principal::anonymous(), request(1)).await.expect("it is taken");
        let Executing::Begun(first) = execution.begin().await.expect("it begins") else { panic!("it is new") };
        execution.abort(first).await;
        drop(execution);
        let (late, transaction) = lost_after_its_begin(&engine, 1).await;
        let other = engine.judge(&Principal::anonymous(), request(2)).await.expect("it is taken");
        let Executing::Begun(open) = other.begin().await.expect("it begins") else { panic!("it is new") };
        assert_ne!(open, transaction);
        let failed = late.carry_out(transaction).await;
        assert!(matches!(failed, Err(TransactionError::Loading)), "{failed:?}");
        assert_eq!(end_offset(&engine).await, Offset(0), "nothing of it is stored");
        other.carry_out(open).await.expect("done");
    }
}
