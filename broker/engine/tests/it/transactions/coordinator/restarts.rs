//! Transactions that go on where they were: after a stop, a kill and a power cut, in whatever state.

use levada_engine::{From, TransactionState};
use levada_log::CrashPlan;

use super::*;
use crate::gate::Gate;
use crate::support::{create, fetch, until};

#[tokio::test]
async fn a_transaction_goes_on_after_a_restart() {
    for is_clean in [true, false] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        create(&engine, "t", 1, &[]).await;
        let producer = start(&engine, "a").await;
        let empty = start(&engine, "empty").await;
        let transaction = begin(&engine, producer).await;
        let nothing_in_it = begin(&engine, empty).await;
        send(&engine, transaction, "t", &["before"]).await;
        if is_clean {
            engine.close().await.expect("closed");
        }
        drop(engine);
        let engine = bench.open();
        assert_eq!(open_ids(&engine).await, ["a"]);
        assert_eq!(begin(&engine, producer).await, transaction);
        send(&engine, transaction, "t", &["after"]).await;
        send(&engine, nothing_in_it, "t", &["first"]).await;
        let next = commit(&engine, transaction).await;
        commit(&engine, nothing_in_it).await;
        assert_eq!(read(&engine, "t").await, ["before", "after", "first"]);
        drop(engine);
        let engine = bench.open();
        assert_eq!(commit(&engine, transaction).await, next, "the same end answers the same");
        let transaction = begin(&engine, next).await;
        send(&engine, transaction, "t", &["next"]).await;
        commit(&engine, transaction).await;
        assert_eq!(read(&engine, "t").await, ["before", "after", "first", "next"]);
    }
}

#[tokio::test]
async fn after_a_clean_stop_no_marker_is_sent_again() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    for of in ["a", "b", "c"] {
        let transaction = begin(&engine, start(&engine, of).await).await;
        send(&engine, transaction, "t", &[of]).await;
        commit(&engine, transaction).await;
    }
    engine.close().await.expect("closed");
    drop(engine);
    let engine = bench.open();
    // Looks at every coordinator, so all are loaded then.
    assert!(open_ids(&engine).await.is_empty());
    assert_eq!((engine.stats().transactions_open, engine.stats().duplicates), (0, 0));
    assert_eq!(engine.stats().groups_written, 0);
}

#[tokio::test]
async fn a_transaction_that_nobody_asks_for_is_aborted_when_what_is_left_of_its_time_is_over() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    send(&engine, transaction, "t", &["left"]).await;
    crate::support::produce(&engine, "t", vec![to(0, "behind")]).await;
    drop(engine);
    bench.clock.advance(TIMEOUT_MS / 2);
    let engine = bench.open();
    assert!(read(&engine, "t").await.is_empty());
    // Loaded in the background, without a request.
    until("it is loaded", async || engine.stats().transactions_open == 1).await;
    pass(&bench, &engine, TIMEOUT_MS / 2 - 1);
    assert!(read(&engine, "t").await.is_empty());
    pass(&bench, &engine, 1);
    until("it is over", async || read(&engine, "t").await == ["behind"]).await;
    assert_eq!(engine.stats().transactions_timed_out, 1);
}

#[tokio::test]
async fn a_producer_goes_on_after_a_power_cut_right_behind_its_commit() {
    for begins_before in [false, true] {
        let (bench, disk) = Bench::sim();
        let engine = bench.open();
        create(&engine, "t", 1, &[]).await;
        let transaction = begin(&engine, start(&engine, "a").await).await;
        send(&engine, transaction, "t", &["x"]).await;
        let next = commit(&engine, transaction).await;
        let begun = if begins_before { Some(begin(&engine, next).await) } else { None };
        let cut = disk.crash(&CrashPlan::all_lost());
        drop(engine);
        let engine = bench.with(cut).open();
        assert_eq!(read(&engine, "t").await, ["x"]);
        let transaction = match begun {
            Some(begun) => begun,
            None => begin(&engine, next).await,
        };
        send(&engine, transaction, "t", &["y"]).await;
        engine.add_transaction_offsets(&me(), transaction, offsets_of("g", "t", 1)).await.expect("added");
        commit(&engine, transaction).await;
        assert_eq!(read(&engine, "t").await, ["x", "y"]);
    }
}

/// PC-39, first part.
#[tokio::test]
async fn a_coordinator_that_dies_between_prepare_and_markers_finishes_by_itself_after_a_restart() {
    for outcome in [COMMIT, ABORT] {
        let (bench, disk) = Bench::sim();
        let gate = Gate::before(disk.clone());
        let engine = bench.with(gate.clone()).open();
        let topic = create(&engine, "t", 1, &[]).await;
        let transaction = begin(&engine, start(&engine, "a").await).await;
        send(&engine, transaction, "t", &["x"]).await;
        gate.shut_within(&topic.id.to_string());
        let ending = tokio::spawn({
            let engine = engine.clone();
            async move { end(&engine, transaction, outcome).await }
        });
        gate.until_waiting(1).await;
        assert!(!ending.is_finished(), "nobody is answered before the outcome can be read");
        let state = TransactionState::Prepared(outcome);
        let views = engine.transactions(&me(), None, 10).await.expect("a list").transactions;
        assert_eq!(views.iter().map(|view| (view.state, view.markers_missing)).collect::<Vec<_>>(), [(state, Some(1))]);
        let other = match outcome {
            COMMIT => ABORT,
            ABORT => COMMIT,
        };
        let refused = end(&engine, transaction, other).await;
        assert!(matches!(refused, Err(TransactionError::Ended { outcome: ended }) if ended == outcome), "{refused:?}");
        let dead = disk.crash(&CrashPlan::all_lost());
        gate.open();
        ending.await.expect("no panic").expect("it ends here too");
        drop(engine);

        let engine = bench.with(dead).open();
        until("it has ended, though nobody asks for it", async || at_end(&engine).await).await;
        assert_eq!(read(&engine, "t").await == ["x"], outcome == COMMIT);
        let again = begin(&engine, start(&engine, "a").await).await;
        send(&engine, again, "t", &["again"]).await;
        commit(&engine, again).await;
        assert_eq!(read(&engine, "t").await.last().expect("one").as_str(), "again");
    }
}

/// The power goes at each step of an end.
#[tokio::test]
async fn an_end_that_is_cut_at_any_step_is_whole_or_not_begun() {
    for outcome in [COMMIT, ABORT] {
        let (mut is_undone, mut finished_by_itself) = (false, false);
        for changes in 0.. {
            let (bench, disk) = Bench::sim();
            let engine = bench.open();
            create(&engine, "t", 1, &[]).await;
            create(&engine, "u", 1, &[]).await;
            let transaction = begin(&engine, start(&engine, "a").await).await;
            send(&engine, transaction, "t", &["x"]).await;
            send(&engine, transaction, "u", &["y"]).await;
            engine.add_transaction_offsets(&me(), transaction, offsets_of("g", "t", 1)).await.expect("added");
            disk.fail_after(changes);
            let answered = end(&engine, transaction, outcome).await;
            let cut = disk.crash(&CrashPlan::all_lost());
            drop(engine);

            let engine = bench.with(cut).open();
            let views = engine.transactions(&me(), None, 10).await.expect("a list").transactions;
            let is_open = views.first().is_some_and(|view| view.state == TransactionState::Ongoing);
            is_undone |= is_open;
            finished_by_itself |= !is_open && answered.is_err();
            if is_open {
                assert!(answered.is_err(), "what was answered is not taken back");
                pass(&bench, &engine, TIMEOUT_MS);
            }
            until("it has ended", async || open_ids(&engine).await.is_empty()).await;
            let counts = read(&engine, "t").await == ["x"];
            let whole = (read(&engine, "u").await == ["y"], committed(&engine, "g").await == Some(1));
            assert_eq!(whole, (counts, counts), "all or nothing");
            assert_eq!(counts, outcome == COMMIT && !is_open);
            if let Ok(next) = answered {
                assert_eq!(end(&engine, transaction, outcome).await.expect("the same"), next);
                commit(&engine, begin(&engine, next).await).await;
                break;
            }
            let again = begin(&engine, start(&engine, "a").await).await;
            send(&engine, again, "t", &["again"]).await;
            commit(&engine, again).await;
            assert_eq!(read(&engine, "t").await.last().expect("one").as_str(), "again");
        }
        assert!(is_undone && finished_by_itself, "{outcome:?}: {is_undone}, {finished_by_itself}");
    }
}

/// Whether a reader of what is committed gets to the end of the topic.
async fn at_end(engine: &Engine) -> bool {
    let fetched = fetch(engine, "t", 0, From::Latest).await.expect("a read");
    fetched.last_stable_offset == fetched.high_watermark
}
