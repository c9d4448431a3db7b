//! Answers that no module may give.

use levada_extension::{AnswerError, ModuleFault, StopCause, Verdicts};

use super::guest::Guest;
use super::time::stopped;
use crate::support::{Bench, batch};

/// What a filter that writes these bytes as its answer gets.
fn answer(transform: &str) -> Result<Verdicts, ModuleFault> {
    let bench = Bench::new();
    let module = bench.module(Guest::transform(transform).build());
    let transform = module.transform("{}").expect("a transform");
    let answer = transform.transform(&batch(&["a", "b"]));
    let stats = module.stats();
    let refused = matches!(answer, Err(ModuleFault::Answer(_)));
    assert_eq!(stats.refused_answers, u64::from(refused));
    answer
}

/// Answers `keep` with what lies at 2048.
fn keep(places: &[u32]) -> String {
    let stores: String = places
        .iter()
        .enumerate()
        .map(|(i, place)| format!("(i32.store (i32.const {}) (i32.const {place}))", 2048 + 4 * i))
        .collect();
    format!(
        "{stores} (i32.store (i32.const 1096) (i32.const 2048)) (i32.store (i32.const 1100) (i32.const {}))",
        places.len()
    )
}

/// Answers `each` with so many bytes at an address.
fn each(at: u32, length: u32) -> String {
    format!(
        "(i32.store8 (i32.const 1092) (i32.const 1)) (i32.store (i32.const 1096) (i32.const {at}))
         (i32.store (i32.const 1100) (i32.const {length}))"
    )
}

#[test]
fn places_out_of_range_out_of_order_and_huge_are_refused() {
    assert_eq!(answer(&keep(&[0, 1])), Ok(Verdicts::Keep(vec![0, 1])));
    assert_eq!(answer(&keep(&[])), Ok(Verdicts::Keep(vec![])));
    let refused = |error| Err(ModuleFault::Answer(error));
    assert_eq!(answer(&keep(&[2])), refused(AnswerError::OutOfRange { item: 0, place: 2, records: 2 }));
    let huge = AnswerError::OutOfRange { item: 1, place: u32::MAX, records: 2 };
    assert_eq!(answer(&keep(&[0, u32::MAX])), refused(huge));
    assert_eq!(answer(&keep(&[1, 0])), refused(AnswerError::Order { item: 1, place: 0, before: 1 }));
    assert_eq!(answer(&keep(&[1, 1])), refused(AnswerError::Order { item: 1, place: 1, before: 1 }));
}

#[test]
fn lists_beyond_the_memory_and_unknown_kinds_are_traps() {
    let trap = |transform: &str| {
        let (cause, reason) = stopped(answer(transform));
        assert_eq!(cause, StopCause::Trap, "{reason}");
    };
    trap(&each(0xffff_fff0, 0xffff_fff0));
    trap(&each(65_536, 65_537));
    trap("(i32.store8 (i32.const 1092) (i32.const 9))");
    trap("(i32.store8 (i32.const 1088) (i32.const 2))");
    trap("(return (i32.const -4))");
}

#[test]
fn bytes_that_are_no_verdicts_are_refused() {
    assert!(matches!(answer(&each(1152, 26)), Err(ModuleFault::Answer(AnswerError::Version { got: b'a' }))));
    assert!(matches!(answer(&each(1152, 0)), Err(ModuleFault::Answer(AnswerError::CutOff { .. }))));
}

#[test]
fn an_output_bomb_is_refused_before_it_is_copied() {
    let grow = "(drop (memory.grow (i32.const 1700)))";
    for length in [100 << 20, 40 << 20] {
        let (cause, reason) = stopped(answer(&format!("{grow} {}", each(4096, length))));
        assert_eq!(cause, StopCause::Trap);
        assert!(reason.contains("fuel"), "{reason}");
    }
}

#[test]
fn a_reason_is_cut_and_must_be_text() {
    // result: err(failed(40 KiB of `a`)).
    let fails = "(memory.fill (i32.const 8192) (i32.const 97) (i32.const 40960))
        (i32.store8 (i32.const 1088) (i32.const 1)) (i32.store8 (i32.const 1092) (i32.const 1))
        (i32.store (i32.const 1096) (i32.const 8192)) (i32.store (i32.const 1100) (i32.const 40960))";
    assert_eq!(answer(fails), Err(ModuleFault::Failed { reason: "a".repeat(1024) }));
    let bytes = fails.replace("(i32.const 97)", "(i32.const 255)");
    assert_eq!(stopped(answer(&bytes)).0, StopCause::Trap);
    let unsupported = "(i32.store8 (i32.const 1088) (i32.const 1)) (i32.store8 (i32.const 1092) (i32.const 0))";
    assert_eq!(answer(unsupported), Err(ModuleFault::Unsupported));
}

#[test]
fn the_same_call_may_have_other_answers_and_costs_nobody_else_anything() {
    // Non-determinism: it keeps the first record at every other call. Each answer is well-formed, so each is taken.
    let bench = Bench::new();
    let every_other = "(i32.store (i32.const 1100) (i32.and (global.get $calls) (i32.const 1)))";
    let module = bench.module(Guest::transform(every_other).build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![])));
}
