//! Loops, recursion, and what others feel of them.

use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;
use std::time::Duration;

use levada_extension::{
    Fields, ModuleConfigError, ModuleFault, ModuleHost, ModuleRefusal, ModuleVersion, StopCause, Transform, Verdicts,
};
use levada_model::limits::MODULE_INIT_MS_MAX;

use super::guest::Guest;
use crate::support::{Bench, batch};

const FOREVER: &str = "(loop $forever (br $forever))";

pub(super) fn stopped(result: Result<Verdicts, ModuleFault>) -> (StopCause, String) {
    match result {
        Err(ModuleFault::Stopped { cause, reason }) => (cause, reason),
        other => panic!("not stopped: {other:?}"),
    }
}

fn keeps_the_first(transform: &Arc<dyn Transform>) {
    assert_eq!(transform.transform(&batch(&["a", "b"])), Ok(Verdicts::Keep(vec![0])));
}

#[test]
fn the_pattern_itself_is_a_right_module() {
    let bench = Bench::new();
    let module = bench.module(Guest::new().build());
    let transform = module.transform("{}").expect("a transform");
    keeps_the_first(&transform);
    keeps_the_first(&transform);
    assert_eq!((module.stats().calls, module.stats().records, module.stats().instances), (2, 4, 1));
}

#[test]
fn an_endless_call_ends_at_its_deadline_and_the_next_call_has_a_fresh_instance() {
    let bench = Bench::new();
    // Endless for two records and more.
    let two = batch(&["a", "b"]);
    let length = two.encode(Fields::VALUE).expect("a batch").len();
    let guest = format!("(if (i32.ge_u (local.get $length) (i32.const {length})) (then {FOREVER}))");
    let module = bench.module(Guest::transform(&guest).build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(stopped(transform.transform(&two)), (StopCause::Deadline, "it took too long".to_owned()));
    assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    let stats = module.stats();
    assert_eq!((stats.deadlines, stats.traps, stats.instances), (1, 0, 2));
}

#[test]
fn an_endless_start_or_description_is_refused_at_the_upload() {
    let bench = Bench::new();
    let start = Guest { items: format!("(func $start {FOREVER}) (start $start)"), ..Guest::new() };
    let describe = Guest { describe: FOREVER.to_owned(), ..Guest::new() };
    for (guest, expected) in [(start, "started"), (describe, "described itself")] {
        let refusal = bench.compile(guest.build()).err().expect("refused");
        assert!(
            matches!(refusal, ModuleRefusal::Stopped { during, cause: StopCause::Deadline, .. } if during == expected),
            "{refusal}"
        );
    }
}

#[test]
fn an_endless_init_is_an_error_of_the_config() {
    let bench = Bench::new();
    let module = bench.module(Guest { init: FOREVER.to_owned(), ..Guest::new() }.build());
    let error = module.transform("{}").err();
    assert!(matches!(error, Some(ModuleConfigError::Stopped { cause: StopCause::Deadline, .. })), "{error:?}");
    let stats = module.stats();
    assert_eq!((stats.deadlines, stats.calls), (1, 0));
    assert!(stats.cpu >= Duration::from_millis(MODULE_INIT_MS_MAX), "{stats:?}");
}

#[test]
fn what_frees_an_answer_is_under_the_deadline_too() {
    let bench = Bench::new();
    let module = bench.module(Guest { free: FOREVER.to_owned(), ..Guest::new() }.build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(stopped(transform.transform(&batch(&["a"]))).0, StopCause::Deadline);
}

#[test]
fn recursion_without_end_is_a_trap() {
    let bench = Bench::new();
    let items = "(func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))";
    let guest = Guest { items: items.to_owned(), ..Guest::transform("(drop (call $deeper (i32.const 0)))") };
    let module = bench.module(guest.build());
    let transform = module.transform("{}").expect("a transform");
    let (cause, reason) = stopped(transform.transform(&batch(&["a"])));
    assert_eq!(cause, StopCause::Trap);
    assert!(reason.contains("call stack exhausted"), "{reason}");
}

#[test]
fn a_trap_every_third_call_costs_those_calls_alone() {
    let bench = Bench::new();
    // Every instance traps at its third call.
    let guest = Guest::transform("(if (i32.eq (global.get $calls) (i32.const 3)) (then unreachable))");
    let module = bench.module(guest.build());
    let transform = module.transform("{}").expect("a transform");
    for round in 0..5 {
        keeps_the_first(&transform);
        keeps_the_first(&transform);
        let (cause, reason) = stopped(transform.transform(&batch(&["a", "b"])));
        assert_eq!(cause, StopCause::Trap, "round {round}");
        assert!(reason.contains("unreachable"), "{reason}");
    }
    let stats = module.stats();
    assert_eq!((stats.calls, stats.traps, stats.instances), (15, 5, 5));
    assert!(module.logs(0, 100).lines.iter().all(|line| line.message.contains("unreachable")));
}

#[test]
fn one_that_is_right_in_the_dry_run_and_wrong_after_costs_its_own_calls_alone() {
    let bench = Bench::new();
    let guest = Guest::transform("(if (i32.gt_u (global.get $calls) (i32.const 2)) (then unreachable))");
    let module = bench.module(guest.build());
    let twin = module.dry_run().expect("a twin");
    keeps_the_first(&twin.transform("{}").expect("a transform"));
    let transform = module.transform("{}").expect("a transform");
    keeps_the_first(&transform);
    keeps_the_first(&transform);
    assert_eq!(stopped(transform.transform(&batch(&["a"]))).0, StopCause::Trap);
    keeps_the_first(&transform);
}

#[test]
fn a_dry_run_counts_and_limits_instructions() {
    let bench = Bench::new();
    let module = bench.module(Guest::transform(FOREVER).build());
    let twin = module.dry_run().expect("a twin");
    let (cause, _) = stopped(twin.transform("{}").expect("a transform").transform(&batch(&["a"])));
    assert_eq!(cause, StopCause::Deadline);
    let instructions = twin.stats().instructions;
    assert!(instructions.is_some_and(|count| count >= 2_000_000_000), "{instructions:?}");
    // So it does where the host does the work: 16 MiB are looked through at each turn.
    let guest = "(loop $forever (call $counter (i32.const 8192) (i32.const 16777216) (i64.const 1)) (br $forever))";
    let module = bench.module(Guest { memory: "300", ..Guest::transform(guest) }.build());
    let twin = module.dry_run().expect("a twin");
    let (cause, reason) = stopped(twin.transform("{}").expect("a transform").transform(&batch(&["a"])));
    assert_eq!((cause, reason), (StopCause::Deadline, "it took more than 2000000000 instructions".to_owned()));
    assert_eq!(twin.stats().counters_dropped, 2_000_000_000 / (16 << 20));
}

#[test]
fn a_dry_run_without_end_leaves_the_module_its_threads() {
    let bench = Bench::new();
    let module = bench.module(Guest::transform(FOREVER).build());
    let twin = module.dry_run().expect("a twin");
    assert_eq!(stopped(twin.transform("{}").expect("a transform").transform(&batch(&["a"]))).0, StopCause::Deadline);
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().expect("nobody panics with it");
    let (sender, started) = channel();
    let width = available_parallelism().map_or(1, NonZeroUsize::get).max(2);
    for _ in 0..width {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        module.run(Box::new(move || drop((sender.send(()), gate.lock())))).expect("there is room");
    }
    (0..width).for_each(|_| started.recv_timeout(Duration::from_secs(60)).expect("all run at once"));
    drop(closed);
}

#[test]
fn a_loop_without_end_keeps_nobody_else_from_the_threads() {
    let bench = Bench::new();
    let endless = bench.module(Guest::transform(FOREVER).build());
    let good = bench.module(Guest::new().build());
    let (looping, keeping) =
        (endless.transform("{}").expect("a transform"), good.transform("{}").expect("a transform"));
    let (sender, receiver) = channel();
    for _ in 0..20 {
        let (looping, sender) = (Arc::clone(&looping), sender.clone());
        let job =
            move || sender.send(("looped", looping.transform(&batch(&["a"])).is_err())).expect("the test listens");
        endless.run(Box::new(job)).expect("there is room");
    }
    for _ in 0..20 {
        let (keeping, sender) = (Arc::clone(&keeping), sender.clone());
        let job = move || sender.send(("kept", keeping.transform(&batch(&["a"])).is_ok())).expect("the test listens");
        good.run(Box::new(job)).expect("there is room");
    }
    drop(sender);
    let outcomes: Vec<_> = receiver.iter().collect();
    assert!(outcomes.iter().all(|(_, expected)| *expected), "{outcomes:?}");
    let last_kept = outcomes.iter().rposition(|(what, _)| *what == "kept").expect("there are some");
    let looped_before = outcomes[..last_kept].iter().filter(|(what, _)| *what == "looped").count();
    assert!(looped_before < 10, "the good module waited for {looped_before} endless calls: {outcomes:?}");
}

#[test]
fn one_module_never_has_all_the_threads() {
    let bench = Bench::new();
    let (busy, other) = (bench.module(Guest::new().build()), bench.module(Guest::transform("nop").build()));
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().expect("nobody panics with it");
    let (sender, started) = channel();
    for _ in 0..200 {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        busy.run(Box::new(move || drop((sender.send(()), gate.lock())))).expect("there is room");
    }
    let width = available_parallelism().map_or(1, NonZeroUsize::get).max(2);
    (0..width).for_each(|_| started.recv().expect("so many start"));
    let usage = bench.host.usage();
    assert_eq!((usage.running, usage.waiting), (width as u64, 200 - width as u64), "and no more");
    // Those threads wait at the gate for as long as this takes.
    keeps_the_first(&other.transform("{}").expect("a transform"));
    drop(closed);
}

#[test]
fn more_jobs_than_the_queue_holds_are_refused_at_once() {
    let bench = Bench::new();
    let module = bench.module(Guest::transform(FOREVER).build());
    let transform = module.transform("{}").expect("a transform");
    let mut refused = 0;
    for _ in 0..400 {
        let transform = Arc::clone(&transform);
        let job = move || drop(transform.transform(&batch(&["a"])));
        refused += usize::from(module.run(Box::new(job)).is_err());
    }
    assert!(refused >= 100, "{refused}");
}

#[test]
fn a_job_that_panics_costs_itself_alone() {
    let bench = Bench::new();
    let module = bench.module(Guest::new().build());
    for _ in 0..50 {
        let (sender, receiver) = channel::<()>();
        let job = move || {
            let _closes = sender;
            panic!("a bug of whoever made the job");
        };
        module.run(Box::new(job)).expect("there is room");
        assert!(receiver.recv().is_err());
    }
    keeps_the_first(&module.transform("{}").expect("a transform"));
}

#[test]
fn jobs_that_wait_when_the_host_ends_are_dropped_unrun() {
    let bench = Bench::new();
    let module = bench.module(Guest::transform(FOREVER).build());
    let transform = module.transform("{}").expect("a transform");
    let (sender, receiver) = channel();
    for _ in 0..100 {
        let (sender, transform) = (sender.clone(), Arc::clone(&transform));
        let job = move || drop((transform.transform(&batch(&["a"])), sender.send(())));
        module.run(Box::new(job)).expect("there is room");
    }
    drop((sender, bench));
    let ran = receiver.iter().count();
    assert!(ran < 20, "{ran} of 100 ran, and then the channel closed");
    assert!(matches!(transform.transform(&batch(&["a"])), Err(ModuleFault::Busy(_))), "nothing more is taken");
}

#[test]
fn modules_are_called_in_place_on_the_hosts_threads() {
    let bench = Bench::new();
    let module: Arc<dyn ModuleVersion> = bench.module(Guest::new().build());
    let transform = module.transform("{}").expect("a transform");
    let (sender, receiver) = channel();
    let nested = Arc::clone(&module);
    module
        .run(Box::new(move || {
            // A further extension and its calls, all on this one thread.
            let other = nested.transform("{\"a\":1}").expect("a transform");
            sender
                .send((other.transform(&batch(&["a"])), transform.transform(&batch(&["a"]))))
                .expect("the test listens");
        }))
        .expect("there is room");
    let kept = || Ok(Verdicts::Keep(vec![0]));
    assert_eq!(receiver.recv().expect("the job runs"), (kept(), kept()));
}
