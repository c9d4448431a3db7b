//! Floods of lines and counters.

use levada_extension::{LogLevel, Verdicts};
use levada_model::limits::{
    MODULE_COUNTERS_MAX, MODULE_LOG_CALL_LINES_MAX, MODULE_LOG_LINE_BYTES_MAX, MODULE_LOG_LINES_MAX,
};

use super::guest::Guest;
use crate::support::{Bench, batch};

#[test]
fn a_log_flood_is_cut_and_counted() {
    let bench = Bench::new();
    let flood = "(memory.fill (i32.const 8192) (i32.const 120) (i32.const 4096))
        (loop $more
          (call $log (i32.const 2) (i32.const 8192) (i32.const 4096))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (i32.const 1000))))";
    let module = bench.module(Guest::transform(flood).build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    let page = module.logs(0, 10_000);
    assert_eq!(page.lines.len(), MODULE_LOG_CALL_LINES_MAX);
    assert_eq!(page.dropped, 1_000 - MODULE_LOG_CALL_LINES_MAX as u64);
    assert!(page.lines.iter().all(|line| line.level == LogLevel::Warn));
    assert!(page.lines.iter().all(|line| line.message.len() == MODULE_LOG_LINE_BYTES_MAX));
    for _ in 0..20 {
        assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    }
    let page = module.logs(0, 10_000);
    assert_eq!(page.lines.len(), MODULE_LOG_LINES_MAX);
    assert_eq!(page.next, 21 * MODULE_LOG_CALL_LINES_MAX as u64);
    assert_eq!(page.dropped, 21_000 - MODULE_LOG_LINES_MAX as u64);
    let rest = module.logs(page.next - 3, 2);
    assert_eq!(rest.lines.iter().map(|line| line.number).collect::<Vec<_>>(), [page.next - 3, page.next - 2]);
    assert_eq!((rest.next, module.logs(page.next, 10).lines.len()), (page.next - 1, 0));
}

#[test]
fn counters_beyond_the_cap_are_dropped_and_counted() {
    let bench = Bench::new();
    // Names of one to two letters, 26 * 26 of them, then one of 65 bytes.
    let count = "(loop $first
          (local.set $j (i32.const 0))
          (loop $second
            (i32.store8 (i32.const 2048) (i32.add (i32.const 97) (local.get $i)))
            (i32.store8 (i32.const 2049) (i32.add (i32.const 97) (local.get $j)))
            (call $counter (i32.const 2048) (i32.const 2) (i64.const -1))
            (local.set $j (i32.add (local.get $j) (i32.const 1)))
            (br_if $second (i32.lt_u (local.get $j) (i32.const 26))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $first (i32.lt_u (local.get $i) (i32.const 26))))
        (memory.fill (i32.const 2048) (i32.const 97) (i32.const 65))
        (call $counter (i32.const 2048) (i32.const 65) (i64.const 1))
        (call $counter (i32.const 2048) (i32.const 0) (i64.const 1))";
    let module = bench.module(Guest::transform(count).build());
    let transform = module.transform("{}").expect("a transform");
    assert!(transform.transform(&batch(&["a"])).is_ok() && transform.transform(&batch(&["a"])).is_ok());
    let stats = module.stats();
    assert_eq!(stats.counters.len(), MODULE_COUNTERS_MAX);
    assert_eq!(stats.counters.get("aa"), Some(&u64::MAX), "counters stop at their end");
    assert_eq!(stats.counters_dropped, 2 * (26 * 26 - MODULE_COUNTERS_MAX as u64 + 2));
}
