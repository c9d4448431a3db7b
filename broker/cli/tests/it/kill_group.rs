//! kill -9 of the server and of members of a group, again and again, also in the middle of rebalances: no record that was
//! acknowledged is missed, none that was committed is delivered again, and no committed offset goes back.
//!
//! A member is killed by dropping it wherever it stands: its connection breaks, and it says nothing more.
//! `LEVADA_SOAK=N` makes the loop N times as long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use levada_api::{ErrorCode, JoinGroup, Placement};
use levada_client::{AcksWord, Client, ClientError, GroupConsumer, GroupFetched, GroupQuery, NewRecord};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::program::Server;

const KILLS: u64 = 10;
const MEMBERS: usize = 3;
const PARTITIONS: u32 = 4;
/// Records between two kills; they come in small pages, so that a kill falls at many places.
const ROUND_RECORDS: u64 = 60;
const PAGE_RECORDS: u64 = 3;
const SESSION_MS: u64 = 1_000;
/// Rebalances come as fast as they can.
const FLAGS: &[&str] = &["--group-initial-rebalance-delay-ms", "5", "--maintenance-interval-ms", "20"];
/// Longest wait for something that must come; only a broken program meets it.
const PATIENCE: Duration = Duration::from_secs(120);

/// What everyone knows, and what was seen that must not be.
#[derive(Default)]
struct Ledger {
    /// Acknowledged records, by place.
    stored: BTreeMap<(u32, u64), String>,
    delivered: BTreeMap<(u32, u64), String>,
    /// What certainly is committed: it was acknowledged, or seen.
    committed: BTreeMap<u32, u64>,
    repeats: u64,
    faults: Vec<String>,
}

impl Ledger {
    fn is_all_read(&self) -> bool {
        let mut next: BTreeMap<u32, u64> = BTreeMap::new();
        next.extend(self.stored.keys().map(|(partition, offset)| (*partition, offset + 1)));
        next == self.committed
    }

    /// Takes in a committed offset that was told by somebody who was asked when `known` was certain.
    fn told(&mut self, known: &BTreeMap<u32, u64>, partition: u32, offset: u64, who: &str) {
        if known.get(&partition).is_some_and(|known| offset < *known) {
            self.faults.push(format!("{who}: {partition} has gone back to {offset}; {known:?} was certain"));
        }
        let newest = self.committed.entry(partition).or_default();
        *newest = offset.max(*newest);
    }

    /// Takes in what a fetch gave that began when `known` was certain.
    fn given(&mut self, known: &BTreeMap<u32, u64>, fetched: &GroupFetched) {
        for record in &fetched.records {
            let place = (record.record.partition, record.record.offset);
            if known.get(&place.0).is_some_and(|known| place.1 < *known) {
                self.faults.push(format!("{place:?} was delivered again; {known:?} was committed"));
            }
            let value = String::from_utf8(record.record.value.clone().expect("a value").to_vec()).expect("text");
            match self.delivered.insert(place, value.clone()) {
                Some(before) if before != value => self.faults.push(format!("{place:?} was {before}, and is {value}")),
                Some(_) => self.repeats += 1,
                None => (),
            }
        }
        if !fetched.resets.is_empty() || !fetched.gaps.is_empty() {
            self.faults.push(format!("nothing was lost, and yet: {:?} {:?}", fetched.resets, fetched.gaps));
        }
    }
}

/// What the tasks share.
#[derive(Clone)]
struct Shared {
    client: Client,
    ledger: Arc<Mutex<Ledger>>,
    /// One for each answer to a member.
    answers: Arc<Semaphore>,
}

impl Shared {
    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no panic")
    }

    fn known(&self) -> BTreeMap<u32, u64> {
        self.ledger().committed.clone()
    }

    fn fault(&self, what: &str, error: &ClientError) {
        self.ledger().faults.push(format!("{what}: {error}"));
    }

    /// A member at work, until it is dropped.
    async fn consume(self, instance_id: Option<String>) {
        let mut join = JoinGroup::new(vec!["t".into()]);
        (join.session_timeout_ms, join.rebalance_timeout_ms) = (SESSION_MS, SESSION_MS);
        join.instance_id = instance_id;
        let mut consumer = self.client.group_consumer("g", join);
        let query = GroupQuery { max_records: Some(PAGE_RECORDS), ..GroupQuery::wait(200) };
        loop {
            let known = self.known();
            match consumer.next(&query).await {
                Ok(fetched) => {
                    self.ledger().given(&known, &fetched);
                    self.answers.add_permits(1);
                    if !fetched.records.is_empty() {
                        self.commit(&mut consumer).await;
                    }
                }
                // The server was killed before the first answer.
                Err(error) if error.is_retryable() => tokio::task::yield_now().await,
                Err(error) => return self.fault("a fetch", &error),
            }
        }
    }

    async fn commit(&self, consumer: &mut GroupConsumer) {
        let known = self.known();
        match consumer.commit().await {
            Ok(committed) => {
                let mut ledger = self.ledger();
                for place in committed.committed {
                    ledger.told(&known, place.partition, place.offset, "a commit's answer");
                }
            }
            Err(error) if error.is_retryable() => (),
            Err(error) => {
                let code = error.problem().map(|problem| problem.code);
                if !matches!(code, Some(ErrorCode::UnknownMember | ErrorCode::IllegalGeneration)) {
                    self.fault("a commit", &error);
                }
            }
        }
    }

    /// Stores a round's records, one by one, each tried until it is answered.
    async fn produce(self, round: u64) {
        for n in 0..ROUND_RECORDS {
            let value = format!("{round}-{n}");
            let partition = u32::try_from(n).expect("small") % PARTITIONS;
            let record = NewRecord { partition: Some(partition), ..NewRecord::text(value.clone()) };
            let answer = self
                .client
                .produce_with_retries("t", &[record], AcksWord::All, &value, PATIENCE)
                .await
                .expect("stored");
            let Placement::Placed(placed) = &answer.records[0] else { panic!("{answer:?}") };
            let place = (partition, placed.offset.expect("acks=all tells it"));
            assert_eq!(self.ledger().stored.insert(place, value), None, "{place:?}");
        }
    }

    /// Looks at the committed offsets as an operator does.
    async fn look(&self) {
        let known = self.known();
        match self.client.group_offsets("g").await {
            Ok(offsets) => {
                let mut ledger = self.ledger();
                for (partition, known) in &known {
                    if !offsets.iter().any(|offset| offset.partition == *partition) {
                        ledger.faults.push(format!("nothing is committed of {partition}; {known} was certain"));
                    }
                }
                for offset in offsets {
                    ledger.told(&known, offset.partition, offset.committed, "the group's offsets");
                }
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ErrorCode::GroupNotFound) => {
                assert!(known.is_empty(), "the group was there: {known:?}");
            }
            Err(error) => self.fault("a look", &error),
        }
    }

    fn check(&self) {
        let ledger = self.ledger();
        assert_eq!(ledger.faults, [""; 0]);
    }
}

/// The members, oldest first. The first place belongs to one that keeps its name.
struct Crowd {
    shared: Shared,
    tasks: JoinSet<()>,
    members: [Option<AbortHandle>; MEMBERS],
}

impl Crowd {
    fn start(&mut self, place: usize) {
        let instance_id = (place == 0).then(|| "named".to_owned());
        let member = self.tasks.spawn(self.shared.clone().consume(instance_id));
        if let Some(before) = self.members[place].replace(member) {
            before.abort();
        }
    }

    fn kill(&mut self, place: usize) {
        self.members[place].take().into_iter().for_each(|member| member.abort());
    }
}

fn soak() -> u64 {
    std::env::var("LEVADA_SOAK").ok().map_or(1, |times| times.parse().expect("LEVADA_SOAK is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_is_missed_and_no_committed_offset_goes_back_under_kill_9_of_server_and_members() {
    let dir = TempDir::new().expect("a temporary directory");
    let mut server = Server::on(dir.path(), FLAGS);
    let port = server.port();
    server.levada(&["topic", "create", "t", "--partitions", "4", "--config", "segment.bytes=8192"]).ok();
    let client = Client::new(&server.url).expect("a good address");
    let shared = Shared { client, ledger: Arc::default(), answers: Arc::new(Semaphore::new(0)) };
    let mut crowd = Crowd { shared: shared.clone(), tasks: JoinSet::new(), members: Default::default() };
    (0..MEMBERS).for_each(|place| crowd.start(place));
    for kill in 1..=KILLS * soak() {
        shared.answers.forget_permits(usize::MAX);
        let producing = tokio::spawn(shared.clone().produce(kill));
        // From one answer to a dozen, so that kills fall at different moments of a rebalance.
        let enough = u32::try_from(1 + kill * 7 % 13).expect("small");
        shared.answers.acquire_many(enough).await.expect("it is never closed").forget();
        let place = usize::try_from(kill * 5 % 3).expect("small");
        match kill % 4 {
            // The server dies while the others take over from a member that is gone, or hand over to a new one.
            0 => crowd.kill(place),
            1 => crowd.start(place),
            2 => (),
            _ => {
                crowd.kill(place);
                crowd.start((place + 1) % MEMBERS);
            }
        }
        shared.look().await;
        server.running.signal(rustix::process::Signal::KILL);
        drop(server);
        server = Server::on_port(dir.path(), port, FLAGS);
        shared.look().await;
        for place in 0..MEMBERS {
            if crowd.members[place].is_none() {
                crowd.start(place);
            }
        }
        producing.await.expect("all is stored");
        shared.check();
    }
    let start = Instant::now();
    while !shared.ledger().is_all_read() {
        assert!(start.elapsed() < PATIENCE, "not all is read: {:?}", shared.known());
        shared.look().await;
        shared.check();
    }
    {
        let ledger = shared.ledger();
        assert_eq!(ledger.stored.len() as u64, KILLS * soak() * ROUND_RECORDS);
        assert_eq!(ledger.delivered, ledger.stored, "everything that was acknowledged was delivered, as it was");
        let limit = ledger.stored.len() as u64;
        assert!(ledger.repeats < limit, "at least once is not twice as a rule: {} of {limit}", ledger.repeats);
    }
    crowd.tasks.shutdown().await;
    let (status, _) = server.terminate();
    assert!(status.success());
}
