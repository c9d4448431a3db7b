//! What modules of other languages need: the JSON form of a batch, and WASI.

use levada_extension::{LogLevel, ModuleFault, StopCause, Verdict, Verdicts};

use crate::hostile::Guest;
use crate::support::{Bench, batch};

/// A `transform-json` that logs what it is given, and then does this.
fn by_json(world: &'static str, answer: &str) -> Vec<u8> {
    let items = format!(
        r#"(func (export "levada:plugin/transform-json@0.1.0#transform-json")
            (param $records i32) (param $length i32) (param $time i64) (param $seed i64) (result i32)
            (call $log (i32.const 1) (local.get $records) (local.get $length))
            (call $counter (i32.const 1152) (i32.const 1) (local.get $time))
            (call $counter (i32.const 1153) (i32.const 1) (local.get $seed))
            {answer}
            (i32.const 1088))"#
    );
    // Where both are exported, `transform` drops everything.
    let transform = "(i32.store (i32.const 1100) (i32.const 0))".to_owned();
    Guest { world, items, transform, ..Guest::new() }.build()
}

#[test]
fn a_batch_of_json_goes_as_one_array_and_other_batches_go_as_bytes() {
    let bench = Bench::new();
    let module = bench.module(by_json("two", ""));
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["{\"n\":1.50}", "[]"])), Ok(Verdicts::Keep(vec![0])));
    let page = module.logs(0, 10);
    assert_eq!(page.lines[0].message, r#"[{"value":{"n":1.50}},{"value":[]}]"#);
    let counters = module.stats().counters;
    assert_eq!((counters["a"], counters["b"]), (1_600_000_000_123, 7), "time and seed");
    assert_eq!(transform.transform(&batch(&["1", "no JSON"])), Ok(Verdicts::Keep(vec![])), "by `transform`");
}

#[test]
fn without_transform_a_batch_that_is_not_json_fails() {
    let bench = Bench::new();
    let module = bench.module(by_json("transform-json-module", ""));
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["1", "2"])), Ok(Verdicts::Keep(vec![0])));
    let fault = transform.transform(&batch(&["1", "no JSON"])).expect_err("no JSON");
    assert!(matches!(&fault, ModuleFault::Failed { reason } if reason.contains("record 1")), "{fault}");
}

#[test]
fn verdicts_in_json_are_read_and_checked() {
    let bench = Bench::new();
    let answer = |text: &str| {
        let stores: String = (2048..)
            .zip(text.bytes())
            .map(|(at, byte)| format!("(i32.store8 (i32.const {at}) (i32.const {byte}))"))
            .collect();
        let each = format!(
            "{stores} (i32.store8 (i32.const 1092) (i32.const 1)) (i32.store (i32.const 1096) (i32.const 2048))
             (i32.store (i32.const 1100) (i32.const {}))",
            text.len()
        );
        let module = bench.module(by_json("transform-json-module", &each));
        module.transform("{}").expect("a transform").transform(&batch(&["1", "2"]))
    };
    let expected = Verdicts::Each(vec![Verdict::Drop, Verdict::Reject("no".to_owned())]);
    assert_eq!(answer(r#"["drop",{"reject":"no"}]"#), Ok(expected));
    for wrong in ["", "[]", "{}", r#"["pass"]"#, r#"["pass","pass","pass"]"#, r#"["pass","stay"]"#] {
        assert!(matches!(answer(wrong), Err(ModuleFault::Answer(_))), "{wrong}");
    }
}

/// A core module for WASI's first preview, as older toolchains make it; the host brings the adapter.
fn with_wasi(transform: &str) -> Guest {
    let import = |name: &str, params: &str| {
        format!("(import \"wasi_snapshot_preview1\" \"{name}\" (func ${name} (param {params}) (result i32)))\n")
    };
    let imports = [
        import("fd_write", "i32 i32 i32 i32"),
        import("random_get", "i32 i32"),
        import("clock_time_get", "i32 i64 i32"),
        import("environ_sizes_get", "i32 i32"),
        import("args_sizes_get", "i32 i32"),
        import("fd_prestat_get", "i32 i32"),
        import("fd_read", "i32 i32 i32 i32"),
        "(import \"wasi_snapshot_preview1\" \"proc_exit\" (func $proc_exit (param i32)))".to_owned(),
    ];
    // A number under a name of one letter.
    let items = "(func $tell (param $letter i32) (param $number i64)
        (call $counter (i32.add (i32.const 1152) (local.get $letter)) (i32.const 1) (local.get $number)))";
    Guest { imports: imports.concat(), items: items.to_owned(), ..Guest::transform(transform) }
}

#[test]
fn what_is_written_to_standard_output_and_error_is_the_modules_log() {
    let bench = Bench::new();
    // "ab", a newline, "c" and no newline; then "d" and a newline to the standard error.
    let write = "(i32.store (i32.const 2048) (i32.const 0x630a6261))
        (i32.store (i32.const 2056) (i32.const 2048)) (i32.store (i32.const 2060) (i32.const 4))
        (call $tell (i32.const 0) (i64.extend_i32_u (call $fd_write (i32.const 1) (i32.const 2056) (i32.const 1) (i32.const 2064))))
        (call $tell (i32.const 1) (i64.load32_u (i32.const 2064)))
        (i32.store (i32.const 2048) (i32.const 0x0a64)) (i32.store (i32.const 2060) (i32.const 2))
        (call $tell (i32.const 0) (i64.extend_i32_u (call $fd_write (i32.const 2) (i32.const 2056) (i32.const 1) (i32.const 2064))))";
    let module = bench.module(with_wasi(write).build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    let lines: Vec<_> = module.logs(0, 10).lines.into_iter().map(|line| (line.level, line.message)).collect();
    let expected = [(LogLevel::Info, "ab"), (LogLevel::Warn, "d"), (LogLevel::Info, "c")];
    assert_eq!(lines, expected.map(|(level, text)| (level, text.to_owned())));
    let counters = module.stats().counters;
    assert_eq!((counters["a"], counters["b"]), (0, 4), "no error, and all of it written");
}

#[test]
fn clocks_and_randomness_are_the_calls() {
    let bench = Bench::new();
    let ask = "(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 2048)))
        (call $tell (i32.const 0) (i64.load (i32.const 2048)))
        (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 2048)))
        (call $tell (i32.const 1) (i64.load (i32.const 2048)))
        (drop (call $random_get (i32.const 2048) (i32.const 8)))
        (call $tell (i32.const 2) (i64.shr_u (i64.load (i32.const 2048)) (i64.const 8)))
        (drop (call $random_get (i32.const 2048) (i32.const 8)))
        (call $tell (i32.const 3) (i64.shr_u (i64.load (i32.const 2048)) (i64.const 8)))";
    let module = bench.module(with_wasi(ask).build());
    let ask = || {
        let twin = module.dry_run().expect("a twin");
        let transform = twin.transform("{}").expect("a transform");
        assert_eq!(transform.transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
        twin.stats().counters
    };
    let (first, second) = (ask(), ask());
    assert_eq!((first["a"], first["b"]), (1_600_000_000_123_000_000, 1_600_000_000_123_000_000));
    assert_ne!(first["c"], first["d"], "a call has many random numbers");
    assert_eq!(first, second, "the same ones each time");
}

#[test]
fn there_are_no_files_no_arguments_and_no_environment() {
    let bench = Bench::new();
    let ask = "(i64.store (i32.const 2048) (i64.const -1))
        (drop (call $environ_sizes_get (i32.const 2048) (i32.const 2052)))
        (call $tell (i32.const 0) (i64.load (i32.const 2048)))
        (i64.store (i32.const 2048) (i64.const -1))
        (drop (call $args_sizes_get (i32.const 2048) (i32.const 2052)))
        (call $tell (i32.const 1) (i64.load (i32.const 2048)))
        (call $tell (i32.const 2) (i64.extend_i32_u (call $fd_prestat_get (i32.const 3) (i32.const 2048))))
        (i32.store (i32.const 2056) (i32.const 2048)) (i32.store (i32.const 2060) (i32.const 4))
        (drop (call $fd_read (i32.const 0) (i32.const 2056) (i32.const 1) (i32.const 2064)))
        (call $tell (i32.const 3) (i64.load32_u (i32.const 2064)))";
    let module = bench.module(with_wasi(ask).build());
    assert_eq!(module.transform("{}").expect("a transform").transform(&batch(&["a"])), Ok(Verdicts::Keep(vec![0])));
    let counters = module.stats().counters;
    let badf = 8;
    assert_eq!((counters["a"], counters["b"], counters["c"], counters["d"]), (0, 0, badf, 0));
}

#[test]
fn a_module_that_exits_is_stopped() {
    let bench = Bench::new();
    let module = bench.module(with_wasi("(call $proc_exit (i32.const 0))").build());
    let fault = module.transform("{}").expect("a transform").transform(&batch(&["a"])).expect_err("stopped");
    assert!(matches!(fault, ModuleFault::Stopped { cause: StopCause::Trap, .. }), "{fault}");
}

#[test]
fn all_of_wasi_may_be_imported() {
    let bench = Bench::new();
    // Interfaces and functions that no toolchain has yet: whatever they are, they answer that there is nothing.
    let imports = r#"
        (import "wasi:future/things@0.9.0" (instance
            (export "thing" (type $thing (sub resource)))
            (export "open" (func (param "path" string) (result (result (own $thing) (error u8)))))
            (export "[method]thing.read" (func (param "self" (borrow $thing)) (result (list u8))))
            (export "stream" (func (result (tuple string (option u32) bool float64))))))"#;
    let text = format!(
        r#"(component {imports}
            (instance $none) (export "levada:plugin/module@0.1.0" (instance $none))
            (export "levada:plugin/transform@0.1.0" (instance $none)))"#
    );
    let refusal = bench.compile(wat::parse_str(text).expect("a component")).err().expect("refused");
    assert!(
        refusal.to_string().contains("module@0.1.0#describe"),
        "it was linked, and then lacks an export: {refusal}"
    );
}

/// Functions of WASI's first preview, and what each is given: 32 and 64 bits.
const PREVIEW_1: &str =
    "args_get:ii args_sizes_get:ii environ_get:ii environ_sizes_get:ii clock_res_get:ii clock_time_get:ili
    fd_advise:illi fd_allocate:ill fd_close:i fd_datasync:i fd_fdstat_get:ii fd_fdstat_set_flags:ii fd_filestat_get:ii
    fd_pread:iiili fd_prestat_get:ii fd_pwrite:iiili fd_read:iiii fd_readdir:iiili fd_seek:ilii fd_sync:i fd_tell:ii
    fd_write:iiii path_create_directory:iii path_filestat_get:iiiii path_link:iiiiiii path_open:iiiiillii
    path_readlink:iiiiii path_remove_directory:iii path_rename:iiiiii path_symlink:iiiii path_unlink_file:iii
    poll_oneoff:iiii random_get:ii sched_yield:";

#[test]
fn a_module_that_imports_everything_runs_and_finds_nothing() {
    let functions = || PREVIEW_1.split_whitespace().map(|text| text.split_once(':').expect("a name and types"));
    let each = |given: &str, text: fn(&str) -> String| -> String {
        given.chars().map(|letter| text(if letter == 'i' { "i32" } else { "i64" })).collect()
    };
    let import = |(name, given): (&str, &str)| {
        let given = each(given, |ty| format!("(param {ty})"));
        format!("(import \"wasi_snapshot_preview1\" \"{name}\" (func ${name} {given} (result i32)))")
    };
    let call = |(name, given): (&str, &str)| {
        let given = each(given, |ty| format!("({ty}.const 0)"));
        format!("(drop (call ${name} {given}))")
    };
    let (imports, calls) = (functions().map(import).collect(), functions().map(call).collect::<String>());
    let bench = Bench::new();
    let module = bench.module(Guest { imports, ..Guest::transform(&calls) }.build());
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["a", "b"])), Ok(Verdicts::Keep(vec![0])));
}
