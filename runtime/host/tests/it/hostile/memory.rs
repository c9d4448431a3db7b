//! Bombs and leaks.

use std::sync::Arc;

use levada_extension::{ModuleConfigError, ModuleFault, ModuleHost, ModuleRefusal, StopCause, Verdicts};
use levada_model::limits::{MODULE_MEMORY_BYTES_MAX, MODULES_INSTANCES_MAX};

use super::guest::Guest;
use super::time::stopped;
use crate::support::{Bench, batch};

/// Grows until it is told no, and traps.
const BOMB: &str = "(loop $more (br_if $more (i32.ne (i32.const -1) (memory.grow (i32.const 16))))) unreachable";

#[test]
fn a_memory_bomb_ends_at_the_instances_cap() {
    let bench = Bench::new();
    let module = bench.module(Guest::transform(BOMB).build());
    let transform = module.transform("{}").expect("a transform");
    let (cause, reason) = stopped(transform.transform(&batch(&["a"])));
    assert_eq!(cause, StopCause::Memory, "{reason}");
    let peak = module.stats().memory_peak_bytes;
    assert!(peak <= MODULE_MEMORY_BYTES_MAX as u64 && peak > MODULE_MEMORY_BYTES_MAX as u64 / 2, "{peak}");
    assert_eq!(bench.host.usage().memory_bytes, 0, "its memory is given back");
}

#[test]
fn a_module_that_copes_with_the_cap_goes_on() {
    let bench = Bench::new();
    let copes = "(loop $more (br_if $more (i32.ne (i32.const -1) (memory.grow (i32.const 16)))))";
    let module = bench.module(Guest::transform(copes).build());
    let transform = module.transform("{}").expect("a transform");
    for _ in 0..3 {
        assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
        assert_eq!(bench.host.usage().memory_bytes, 0, "an instance that is full is not kept");
    }
}

#[test]
fn tables_count_as_memory_and_have_a_cap() {
    let bench = Bench::new();
    let items = "(table $t 0 funcref)";
    let grow = "(loop $more (br_if $more
        (i32.ne (i32.const -1) (table.grow $t (ref.null func) (i32.const 1000))))) unreachable";
    let module = bench.module(Guest { items: items.to_owned(), ..Guest::transform(grow) }.build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(stopped(transform.transform(&batch(&["a"]))).0, StopCause::Trap);
    let two = Guest { items: "(table 1 funcref) (table 1 funcref)".to_owned(), ..Guest::new() };
    assert!(bench.compile(two.build()).is_ok());
    let huge = Guest { items: "(table 10000000 funcref)".to_owned(), ..Guest::new() };
    let refusal = bench.compile(huge.build()).err();
    assert!(matches!(refusal, Some(ModuleRefusal::Limit { what: "elements in a table", .. })), "{refusal:?}");
}

#[test]
fn a_memory_that_is_too_large_from_the_start_is_refused() {
    let bench = Bench::new();
    let refusal = bench.compile(Guest { memory: "65536", ..Guest::new() }.build()).err();
    assert!(matches!(refusal, Some(ModuleRefusal::Limit { what: "bytes of memory at its start", .. })), "{refusal:?}");
}

#[test]
fn more_memories_and_tables_than_one_may_have_are_the_modules_fault() {
    let bench = Bench::new();
    for (items, what) in [("(memory 0)".repeat(50), "memories"), ("(table 0 funcref)".repeat(50), "tables")] {
        let refusal = bench.compile(Guest { items, ..Guest::new() }.build()).err();
        assert!(matches!(&refusal, Some(ModuleRefusal::Invalid { detail }) if detail.contains(what)), "{refusal:?}");
    }
}

#[test]
fn instances_with_all_that_they_may_have_leave_the_others_their_places() {
    let bench = Bench::new();
    // As many memories and tables as there may be, of no size, with more configs than there are places.
    let items = format!("{}{}", "(memory 0)".repeat(3), "(table 0 funcref)".repeat(6));
    let hungry = bench.module(Guest { items, ..Guest::new() }.build());
    for i in 0..MODULES_INSTANCES_MAX + 40 {
        let transform = hungry.transform(&format!("{{\"n\":{i}}}")).expect("a transform");
        assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    }
    let other = bench.module(Guest::transform("nop").build());
    assert_eq!(other.transform("{}").expect("a transform").transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
}

#[test]
fn what_one_instance_may_have_is_set() {
    let max = 8 << 20;
    let bench = Bench::with(|options| options.instance_memory_bytes_max = max);
    let module = bench.module(Guest::transform(BOMB).build());
    let (cause, reason) = stopped(module.transform("{}").expect("a transform").transform(&batch(&["a"])));
    assert_eq!((cause, reason), (StopCause::Memory, format!("it wanted more than {max} bytes of memory")));
    assert!(module.stats().memory_peak_bytes <= max as u64);
    let refusal = bench.compile(Guest { memory: "129", ..Guest::new() }.build()).err();
    assert!(matches!(refusal, Some(ModuleRefusal::Limit { max: 8_388_608, .. })), "{refusal:?}");
    // More than usual, too.
    let bench = Bench::with(|options| options.instance_memory_bytes_max = 256 << 20);
    let large = bench.module(Guest { memory: "3000", ..Guest::new() }.build());
    assert_eq!(large.transform("{}").expect("a transform").transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
}

#[test]
fn a_trap_is_not_put_down_to_memory_that_the_module_got_along_without() {
    let bench = Bench::with(|options| options.memory_bytes_max = 1 << 20);
    let denied = "(drop (memory.grow (i32.const 1000)))";
    for later in ["(drop (i32.div_u (i32.const 1) (i32.const 0)))", "(drop (memory.grow (i32.const 1))) unreachable"] {
        let module = bench.module(Guest::transform(&format!("{denied} {later}")).build());
        let (cause, reason) = stopped(module.transform("{}").expect("a transform").transform(&batch(&["a"])));
        assert_eq!(cause, StopCause::Trap, "{reason}");
    }
}

#[test]
fn a_hundred_modules_at_the_limit_stay_within_what_all_may_have() {
    let memory_bytes_max = 256 << 20;
    let bench = Bench::with(|options| options.memory_bytes_max = memory_bytes_max);
    // 16 MiB each from the start: sixteen fit at once.
    let guest = Guest { memory: "256", ..Guest::new() }.build();
    let modules: Vec<_> = (0..100_u32)
        .map(|i| {
            // A custom section of its own, so that each is another module.
            let mut wasm = guest.clone();
            wasm.extend([0, 5, 0]);
            wasm.extend(i.to_le_bytes());
            bench.module(wasm)
        })
        .collect();
    let transforms: Vec<_> = modules.iter().map(|module| module.transform("{}").expect("a transform")).collect();
    for _ in 0..2 {
        for transform in &transforms {
            assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
            assert!(bench.host.usage().memory_bytes <= memory_bytes_max as u64);
        }
    }
}

#[test]
fn where_all_memory_is_in_use_a_call_is_told_to_come_again() {
    let bench = Bench::with(|options| options.memory_bytes_max = 1 << 20);
    let module = bench.module(Guest::transform(BOMB).build());
    let transform = module.transform("{}").expect("a transform");
    let answer = transform.transform(&batch(&["a"]));
    assert!(matches!(answer, Err(ModuleFault::Busy(_))), "{answer:?}");
    let starved = Bench::with(|options| options.instances_max = 0);
    let refusal = starved.compile(Guest::new().build()).err().expect("refused");
    assert!(refusal.is_hosts(), "{refusal}");
}

#[test]
fn a_module_that_grows_slowly_is_renewed_before_it_fails() {
    let bench = Bench::new();
    let module = bench.module(Guest::transform("(drop (memory.grow (i32.const 64)))").build());
    let transform = module.transform("{}").expect("a transform");
    for _ in 0..100 {
        assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    }
    let stats = module.stats();
    assert!(stats.memory_peak_bytes <= MODULE_MEMORY_BYTES_MAX as u64);
    assert_eq!(stats.traps, 0);
    assert!((5..=8).contains(&stats.instances), "{} instances", stats.instances);
}

#[test]
fn a_bomb_in_the_config_is_an_error_of_the_config() {
    let bench = Bench::new();
    let module = bench.module(Guest { init: BOMB.to_owned(), ..Guest::new() }.build());
    let error = module.transform("{}").err();
    assert!(matches!(error, Some(ModuleConfigError::Stopped { cause: StopCause::Memory, .. })), "{error:?}");
}

#[test]
fn a_batch_larger_than_a_call_is_not_sent() {
    let bench = Bench::new();
    let module = bench.module(Guest::new().build());
    let transform = module.transform("{}").expect("a transform");
    let large = "x".repeat(1 << 20);
    let values = vec![large.as_str(); 17];
    let fault = transform.transform(&batch(&values)).expect_err("too large");
    assert!(matches!(fault, ModuleFault::TooLarge { .. }), "{fault}");
    assert_eq!(transform.transform(&batch(&values[..15])), Ok(Verdicts::Keep(vec![0])));
    assert_eq!(module.stats().calls, 1);
    drop(Arc::clone(&transform));
}
