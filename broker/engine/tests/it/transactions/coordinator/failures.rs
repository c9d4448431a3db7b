//! A disk that fails, a queue that is full, requests that vanish: what was answered holds, and nothing hangs.

use levada_engine::{From, OffsetCommit};
use levada_log::CrashPlan;
use levada_model::limits;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::gate::Gate;
use crate::support::{LONG, create, poll_times, produce, until};

#[tokio::test]
async fn a_failed_disk_answers_all_who_wait_and_takes_nothing_more() {
    // Of the coordinator's log, and of a partition that is to have a marker.
    for of in ["__transaction_state", "t"] {
        let (bench, disk) = Bench::sim();
        let gate = Gate::before(disk.clone());
        let engine = bench.with(gate.clone()).open();
        create(&engine, "t", 1, &[]).await;
        let producer = start(&engine, "a").await;
        let transaction = begin(&engine, producer).await;
        send(&engine, transaction, "t", &["x"]).await;
        let folder = engine.describe_topic(&me(), &name(of)).expect("a topic").id.to_string();
        gate.shut_within(&folder);
        let mut ending = JoinSet::new();
        for _ in 0..3 {
            let engine = engine.clone();
            ending.spawn(async move { end(&engine, transaction, COMMIT).await });
        }
        gate.until_waiting(1).await;
        disk.fail_sync(true);
        gate.open();
        while let Some(ended) = timeout(LONG, ending.join_next()).await.expect("nobody waits for ever") {
            let refused = ended.expect("no panic");
            let may_stand = match &refused {
                Err(TransactionError::Fenced { possible, .. }) => *possible && of != "t",
                Err(TransactionError::Unanswered(why)) => matches!(**why, TransactionError::Fenced { .. }) && of == "t",
                _ => false,
            };
            assert!(may_stand, "{refused:?}");
        }
        for refused in [try_start(&engine, "a").await.map(drop), end(&engine, transaction, ABORT).await.map(drop)] {
            assert!(matches!(refused, Err(TransactionError::Fenced { possible: false, .. })), "{refused:?}");
        }
        drop(engine);
        let engine = bench.with(disk.restart()).open();
        commit(&engine, transaction).await;
        assert_eq!(read(&engine, "t").await, ["x"]);
    }
}

#[tokio::test]
async fn no_marker_goes_out_before_the_outcome_is_durable() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    send(&engine, transaction, "t", &["x"]).await;
    let own = engine.describe_topic(&me(), &name("__transaction_state")).expect("a topic");
    let appended = engine.stats().groups_written;
    gate.shut_within(&own.id.to_string());
    let ending = tokio::spawn({
        let engine = engine.clone();
        async move { end(&engine, transaction, COMMIT).await }
    });
    gate.until_waiting(1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.stats().groups_written, appended + 1, "the outcome alone");
    gate.open();
    ending.await.expect("no panic").expect("committed");
}

#[tokio::test]
async fn no_record_is_stored_before_its_partition_is_in_the_transaction() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    let own = engine.describe_topic(&me(), &name("__transaction_state")).expect("a topic");
    gate.shut_within(&own.id.to_string());
    let mut sending = JoinSet::new();
    for value in ["x", "y"] {
        let engine = engine.clone();
        sending.spawn(async move { send(&engine, transaction, "t", &[value]).await });
    }
    gate.until_waiting(1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    // Whatever is with the partition's owner by now is stored before this.
    produce(&engine, "t", vec![to(0, "plain")]).await;
    let partition = engine.describe_topic(&me(), &name("t")).expect("a topic").partitions.remove(0);
    assert_eq!(partition.high_watermark, Offset(1), "nothing of the transaction");
    gate.open();
    sending.join_all().await;
    commit(&engine, transaction).await;
    assert_eq!(read(&engine, "t").await.len(), 3);
}

#[tokio::test]
async fn nobody_waits_for_more_syncs_than_an_outcome_needs() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut producer = start(&engine, "a").await;
    let mut fewest = [u64::MAX; 4];
    // What is deferred is stored now and then, so not every round shows the least.
    for _ in 0..10 {
        let mut syncs = engine.stats().syncs;
        let mut note = |number: usize| {
            let now = engine.stats().syncs;
            fewest[number] = fewest[number].min(now - syncs);
            syncs = now;
        };
        let transaction = begin(&engine, producer).await;
        note(0);
        send(&engine, transaction, "t", &["x"]).await;
        note(1);
        send(&engine, transaction, "t", &["y"]).await;
        note(2);
        producer = commit(&engine, transaction).await;
        note(3);
    }
    assert_eq!(fewest, [0, 2, 1, 2], "of the begin, the first records, further ones, the end");
}

#[tokio::test]
async fn a_full_queue_refuses_and_changes_nothing() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    let first = start(&engine, "a").await;
    gate.shut();
    let mut starts = JoinSet::new();
    // One group may be on its way to the disk, and another one waits.
    for _ in 0..2 * limits::PARTITION_QUEUE_APPENDS_MAX + 100 {
        let engine = engine.clone();
        starts.spawn(async move { try_start(&engine, "a").await });
    }
    for _ in 0..100 {
        let refused = starts.join_next().await.expect("many").expect("no panic");
        assert!(matches!(refused, Err(TransactionError::Overloaded)), "{refused:?}");
    }
    gate.open();
    let mut last = first;
    while let Some(done) = starts.join_next().await {
        match done.expect("no panic") {
            Ok(producer) => last = last.max(producer),
            Err(error) => assert!(matches!(error, TransactionError::Overloaded), "{error:?}"),
        }
    }
    let now = start(&engine, "a").await;
    assert_eq!(now.epoch.0, last.epoch.0 + 1, "those that were refused took no epoch");
}

#[tokio::test]
async fn whoever_waits_is_answered_when_the_engine_closes_and_the_end_stands() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    let topic = create(&engine, "t", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    send(&engine, transaction, "t", &["x"]).await;
    let left = begin(&engine, start(&engine, "b").await).await;
    send(&engine, left, "t", &["left"]).await;
    gate.shut_within(&topic.id.to_string());
    let mut ending = JoinSet::new();
    for _ in 0..2 {
        let engine = engine.clone();
        ending.spawn(async move { end(&engine, transaction, COMMIT).await });
    }
    until("its outcome stands", async || engine.stats().transactions_committed == 1).await;
    let starting = tokio::spawn({
        let engine = engine.clone();
        async move { try_start(&engine, "a").await }
    });
    let aborting = tokio::spawn({
        let engine = engine.clone();
        async move { try_start(&engine, "b").await }
    });
    until("what was left is aborted", async || engine.stats().transactions_aborted == 1).await;
    gate.until_waiting(1).await;
    // The outcomes are durable, and all wait for markers.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let closing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.close().await }
    });
    let starting = timeout(LONG, starting).await.expect("it ends by itself").expect("no panic");
    assert!(matches!(starting, Err(TransactionError::Closing)), "nothing came of it: {starting:?}");
    let stands = |refused: &Result<Producer, TransactionError>| matches!(refused, Err(TransactionError::Unanswered(why)) if matches!(**why, TransactionError::Closing));
    while let Some(ended) = timeout(LONG, ending.join_next()).await.expect("they end by themselves") {
        let ended = ended.expect("no panic");
        assert!(stands(&ended), "{ended:?}");
    }
    let aborting = timeout(LONG, aborting).await.expect("it ends by itself").expect("no panic");
    assert!(stands(&aborting), "it fenced the one before: {aborting:?}");
    gate.open();
    closing.await.expect("no panic").expect("closed");
    for refused in [
        try_start(&engine, "a").await.map(drop),
        end(&engine, transaction, COMMIT).await.map(drop),
        engine.transactions(&me(), None, 10).await.map(drop),
    ] {
        assert!(matches!(refused, Err(TransactionError::Closing)), "{refused:?}");
    }
    drop(engine);
    let engine = bench.with(gate).open();
    commit(&engine, transaction).await;
    assert_eq!(read(&engine, "t").await, ["x"]);
}

#[tokio::test]
async fn whoever_waits_for_a_marker_is_answered_when_the_coordinators_own_log_fails() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk.clone());
    let engine = bench.with(gate.clone()).open();
    let topic = create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    send(&engine, transaction, "t", &["x"]).await;
    let mut neighbour = transaction;
    for number in 0.. {
        neighbour = begin(&engine, start(&engine, &format!("b{number}")).await).await;
        if neighbour.coordinator == transaction.coordinator {
            break;
        }
    }
    gate.shut_within(&topic.id.to_string());
    let ending = tokio::spawn({
        let engine = engine.clone();
        async move { end(&engine, transaction, COMMIT).await }
    });
    gate.until_waiting(1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    disk.fail_sync(true);
    let failed = try_send(&engine, neighbour, "u", &["y"]).await;
    assert!(matches!(failed, Err(TransactionError::Fenced { .. })), "{failed:?}");
    // The marker is still on its way, so nothing but the loss of the coordinator can tell.
    let ended = timeout(LONG, ending).await.expect("it is told").expect("no panic");
    assert!(
        matches!(&ended, Err(TransactionError::Unanswered(why)) if matches!(**why, TransactionError::Fenced { .. })),
        "{ended:?}"
    );
    gate.open();
}

#[tokio::test]
async fn no_offsets_are_stored_before_their_group_is_in_the_transaction() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    let mut producer = start(&engine, "a").await;
    // So that the group's topic is there.
    let first = begin(&engine, producer).await;
    engine.add_transaction_offsets(&me(), first, offsets_of("g", "t", 0)).await.expect("added");
    producer = commit(&engine, first).await;
    let transaction = begin(&engine, producer).await;
    let own = engine.describe_topic(&me(), &name("__transaction_state")).expect("a topic");
    let written = || {
        let offsets = engine.describe_topic(&me(), &name("__consumer_offsets")).expect("a topic");
        offsets.partitions.iter().map(|partition| partition.high_watermark.0).sum::<u64>()
    };
    let before = written();
    gate.shut_within(&own.id.to_string());
    let mut adding = JoinSet::new();
    for _ in 0..3 {
        let engine = engine.clone();
        adding.spawn(async move { engine.add_transaction_offsets(&me(), transaction, offsets_of("g", "t", 0)).await });
    }
    gate.until_waiting(1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    // Whatever the group's coordinator has handed over by now is stored before this.
    let plain = OffsetCommit { topic: name("t"), partition: p(0), offset: From::Earliest };
    engine.commit_group_offsets(&me(), &group("g"), vec![plain], false).await.expect("committed");
    assert_eq!(written(), before + 1, "nothing of the transaction");
    gate.open();
    adding.join_all().await.into_iter().for_each(|added| added.expect("added"));
    commit(&engine, transaction).await;
    assert_eq!(committed(&engine, "g").await, Some(0));
}

#[tokio::test]
async fn however_many_ends_are_noted_later_one_task_a_coordinator_looks_after_them() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut producer = start(&engine, "a").await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..100 {
        let transaction = begin(&engine, producer).await;
        send(&engine, transaction, "t", &["x"]).await;
        producer = commit(&engine, transaction).await;
    }
    let more = tasks().saturating_sub(before);
    assert!(more < 10, "{more} tasks more");
}

#[tokio::test]
async fn the_id_behind_the_last_epoch_is_told_only_when_it_is_durable() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk.clone());
    let engine = bench.with(gate.clone()).open();
    let topic = create(&engine, "t", 1, &[]).await;
    let mut starts = JoinSet::new();
    let mut producer = start(&engine, "a").await;
    while producer.epoch.0 < i16::MAX - 1 {
        for _ in 0..usize::try_from(i16::MAX - 1 - producer.epoch.0).expect("positive").min(1_000) {
            let engine = engine.clone();
            starts.spawn(async move { start(&engine, "a").await });
        }
        while let Some(started) = starts.join_next().await {
            producer = producer.max(started.expect("no panic"));
        }
    }
    let transaction = begin(&engine, producer).await;
    send(&engine, transaction, "t", &["x"]).await;
    gate.shut_within(&topic.id.to_string());
    let ending = tokio::spawn({
        let engine = engine.clone();
        async move { end(&engine, transaction, COMMIT).await }
    });
    gate.until_waiting(1).await;
    let own = engine.describe_topic(&me(), &name("__transaction_state")).expect("a topic");
    // The marker is written, and what becomes of the id is not stored yet.
    gate.shut_within(&own.id.to_string());
    until("the marker is written", async || read(&engine, "t").await == ["x"]).await;
    gate.until_waiting(1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(!ending.is_finished(), "a kill would take the id back");
    gate.open();
    let next = ending.await.expect("no panic").expect("committed");
    assert_ne!(next.id, producer.id);
    drop(engine);
    let engine = bench.with(disk).open();
    commit(&engine, begin(&engine, next).await).await;
}

#[tokio::test]
async fn without_file_descriptors_transactions_are_refused_and_go_on_when_there_are_some() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    send(&engine, transaction, "t", &["x"]).await;
    for _ in 0..2 {
        engine.run_maintenance();
    }
    disk.set_open_files_max(0);
    for _ in 0..3 {
        let refused = end(&engine, transaction, COMMIT).await;
        let is_fitting = matches!(
            refused,
            Err(TransactionError::Overloaded | TransactionError::Loading | TransactionError::Storage(_))
        );
        assert!(is_fitting, "{refused:?}");
    }
    disk.heal();
    commit(&engine, transaction).await;
    assert_eq!(read(&engine, "t").await, ["x"]);
}

#[tokio::test]
async fn a_marker_that_a_partition_could_not_take_is_written_later() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    let topic = create(&engine, "t", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    send(&engine, transaction, "t", &["x"]).await;
    gate.shut_within(&topic.id.to_string());
    let mut produces = JoinSet::new();
    for _ in 0..2 * limits::PARTITION_QUEUE_APPENDS_MAX + 100 {
        let engine = engine.clone();
        produces.spawn(async move { engine.produce(&me(), &name("t"), request(vec![to(0, "plain")])).await });
    }
    // One that is refused means that the queue is full.
    let refused = produces.join_next().await.expect("many").expect("no panic").expect("taken");
    assert!(matches!(refused.records[0].as_ref().expect_err("full").as_ref(), AppendFault::Overloaded(_)));
    let ending = tokio::spawn({
        let engine = engine.clone();
        async move { end(&engine, transaction, COMMIT).await }
    });
    until("its outcome stands", async || engine.stats().transactions_committed == 1).await;
    until("the marker is refused", async || {
        let views = engine.transactions(&me(), None, 10).await.expect("a list").transactions;
        views.first().is_some_and(|view| view.markers_missing == Some(1))
    })
    .await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.open();
    produces.join_all().await;
    assert!(!ending.is_finished());
    // By the timer alone.
    until("it has ended", async || {
        pass(&bench, &engine, limits::MARKER_RETRY_MS.cast_signed());
        ending.is_finished()
    })
    .await;
    ending.await.expect("no panic").expect("committed");
    assert!(read(&engine, "t").await.contains(&"x".to_owned()));
}

#[tokio::test]
async fn a_request_that_vanishes_at_any_await_leaves_nothing_half_done() {
    let mut complete = [false; 5];
    for times in 1..16 {
        for (number, complete) in complete.iter_mut().enumerate() {
            let (bench, disk) = Bench::sim();
            let engine = bench.open();
            create(&engine, "t", 1, &[]).await;
            let producer = start(&engine, "a").await;
            let transaction = begin(&engine, producer).await;
            send(&engine, transaction, "t", &["x"]).await;
            *complete |= match number {
                0 => poll_times(end(&engine, transaction, COMMIT), times).await.is_some_and(|done| done.is_ok()),
                1 => poll_times(end(&engine, transaction, ABORT), times).await.is_some_and(|done| done.is_ok()),
                2 => poll_times(try_start(&engine, "a"), times).await.is_some_and(|done| done.is_ok()),
                3 => poll_times(try_start(&engine, "b"), times).await.is_some_and(|done| done.is_ok()),
                _ => {
                    let (me, offsets) = (me(), offsets_of("g", "t", 1));
                    let added = engine.add_transaction_offsets(&me, transaction, offsets);
                    poll_times(added, times).await.is_some_and(|done| done.is_ok())
                }
            };
            // Whatever it did goes on by itself, here and on a disk from which all is lost that was not synced.
            let copy = bench.with(disk.crash(&CrashPlan::all_lost())).open();
            for engine in [&engine, &copy] {
                let again = begin(engine, start(engine, "a").await).await;
                send(engine, again, "t", &["again"]).await;
                commit(engine, again).await;
                assert!(open_ids(engine).await.is_empty());
                let values = read(engine, "t").await;
                let is_committed = values.len() == 2;
                assert!(number == 0 || !is_committed, "{values:?}");
                assert_eq!(values.last().expect("one").as_str(), "again");
                let other = end(engine, transaction, COMMIT).await;
                assert!(other.is_err(), "the next one has ended");
            }
        }
    }
    assert!(complete.iter().all(|complete| *complete), "each came to its end at last: {complete:?}");
}
