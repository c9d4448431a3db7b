//! The compiler as a process of its own.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::{io, thread};

use bytes::Bytes;
use levada_extension::{ModuleConfigError, ModuleHost, ModuleRefusal, StopCause, Verdicts};
use levada_host::{Compiler, Host, HostOptions};

use crate::hostile::{Guest, with_schema};
use crate::support::{Bench, batch, clock};

fn with(program: &str, arguments: &[&str]) -> Bench {
    let arguments = arguments.iter().map(OsString::from).collect();
    Bench::with(|options| options.compiler = Compiler::Process { program: program.into(), arguments })
}

fn compiling() -> Bench {
    with(env!("CARGO_BIN_EXE_levada-compiler"), &[])
}

#[test]
fn what_it_makes_runs_and_counts_as_what_is_made_in_process() {
    let (apart, within) = (compiling(), Bench::new());
    let wasm = Guest::new().build();
    let counts = [&apart, &within].map(|bench| {
        let module = bench.module(&wasm);
        let twin = module.dry_run().expect("a twin");
        for module in [&module, &twin] {
            let transform = module.transform("{}").expect("a transform");
            assert_eq!(transform.transform(&batch(&["a", "b"])), Ok(Verdicts::Keep(vec![0])));
        }
        twin.stats().instructions
    });
    assert!(counts[0].is_some());
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn it_says_what_is_wrong_with_a_module() {
    let text = r#"(component
        (core module (func (result i32) (i32.const 7)))
        (instance $none) (export "levada:plugin/module@0.1.0" (instance $none))
        (export "levada:plugin/transform@0.1.0" (instance $none)))"#;
    let mut wasm = wat::parse_str(text).expect("a component");
    let at = wasm.windows(3).position(|bytes| bytes == [0x41, 7, 0x0b]).expect("the constant and the function's end");
    // Two `nop`s in the place of the constant: no size shows that.
    wasm[at..at + 2].fill(1);
    let refusal = compiling().compile(wasm).err().expect("refused");
    assert!(matches!(&refusal, ModuleRefusal::Invalid { detail } if detail.contains("type mismatch")), "{refusal}");
}

/// Case of a compilation bomb: the compiler's time grows with the square of the loops.
#[test]
fn a_module_that_takes_the_compiler_too_long_is_refused() {
    let one = "(loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (local.get $i)))";
    ends_over(&Guest::transform(&one.repeat(25_000)), "ulimit -S -t 1");
}

#[test]
fn a_module_that_takes_the_compiler_too_much_memory_is_refused() {
    let items = "(table 10 funcref) (type $t (func))".to_owned();
    let calls = "(call_indirect (type $t) (local.get 0))".repeat(20_000);
    ends_over(&Guest { items, ..Guest::transform(&calls) }, "ulimit -d 65536");
}

#[test]
fn known_modules_are_loaded_while_another_compiles() {
    let wasm = Bytes::from(Guest::new().build());
    let bench = Bench::new();
    let digest = bench.module(&wasm).describe().digest;
    // A compiler that takes as long as this test.
    let (directory, fifo) = (bench.directory.path().join("compiled"), bench.directory.path().join("fifo"));
    let wait = format!("mkfifo {0} && cat {0}", fifo.display());
    let arguments = ["-c".into(), wait.into()].into();
    let compiler = Compiler::Process { program: "/bin/sh".into(), arguments };
    let host = Host::open(HostOptions::new(directory, compiler, clock())).expect("a host");
    let other = Bytes::from(Guest::transform("nop").build());
    thread::scope(|scope| {
        let compiling = scope.spawn(|| host.compile(&other).is_err());
        while !fifo.exists() {
            thread::yield_now();
        }
        assert!(host.load(digest, &|| Err(io::ErrorKind::NotFound.into())).is_ok());
        assert!(host.compile(&wasm).is_ok());
        drop(OpenOptions::new().write(true).open(&fifo).expect("the compiler reads it"));
        assert!(compiling.join().expect("no panic"));
    });
}

/// That the compiler ends over a module under lower limits than its own, and takes others as before.
fn ends_over(guest: &Guest, limit: &str) {
    let limited = format!("{limit}; exec {}", env!("CARGO_BIN_EXE_levada-compiler"));
    let bench = with("/bin/sh", &["-c", &limited]);
    let refusal = bench.compile(guest.build()).err().expect("refused");
    assert!(matches!(&refusal, ModuleRefusal::Invalid { detail } if detail.contains("signal")), "{refusal}");
    assert!(bench.compile(Guest::new().build()).is_ok());
}

#[test]
fn an_end_that_the_module_brought_about_is_its_refusal_and_any_other_the_hosts() {
    let wasm = Guest::new().build();
    for limit in ["XCPU", "ABRT", "SEGV"] {
        let ended = with("/bin/sh", &["-c", &format!("kill -{limit} $$")]).compile(&wasm).err();
        assert!(
            matches!(&ended, Some(ModuleRefusal::Invalid { detail }) if detail.contains("120 s of the processor")),
            "{ended:?}"
        );
    }
    // An operator, a system that is short of memory, a pipe that breaks.
    for other in ["kill -TERM $$", "kill -KILL $$", "exit 1"] {
        let ended = with("/bin/sh", &["-c", other]).compile(&wasm).err().expect("refused");
        assert!(ended.is_hosts(), "{other}: {ended}");
    }
    let absent = with("/nonexistent/compiler", &[]).compile(&wasm).err().expect("refused");
    assert!(absent.is_hosts(), "{absent}");
    // What it gives is looked at: here a core module that is no component, and a component that is no machine code.
    let other = Bench::new();
    let digest = other.module(&wasm).describe().digest;
    let kept = other.directory.path().join("compiled").join(digest.hex()).join("component.wasm");
    for wasm in [wasm, fs::read(kept).expect("it is kept")] {
        let wrong = with("/bin/sh", &["-c", "tail -c +2"]).compile(&wasm).err().expect("refused");
        assert!(wrong.is_hosts(), "{wrong}");
    }
}

#[test]
fn no_more_is_taken_of_it_than_a_module_may_have() {
    let flood = with("/bin/sh", &["-c", "cat /dev/zero"]).compile(Guest::new().build()).err();
    let max = 32 << 20;
    assert_eq!(flood, Some(ModuleRefusal::Limit { what: "bytes", got: max + 1, max }));
}

/// A few kilobytes that ask for 2^60 steps.
#[test]
fn a_schema_whose_check_has_no_end_costs_its_own_module_a_while() {
    let bench = compiling();
    let mut schema = serde_json::json!({"$ref": "#/$defs/a0", "$defs": {"a60": {"type": "object"}}});
    for i in 0..60 {
        let next = format!("#/$defs/a{}", i + 1);
        schema["$defs"][format!("a{i}")] =
            serde_json::json!({"allOf": [{"$ref": next}, {"title": "again", "$ref": next}]});
    }
    let module = bench.module(with_schema(&schema.to_string()));
    for _ in 0..100 {
        // It is known from the second time on.
        let error = module.transform("{}").err();
        assert!(matches!(&error, Some(ModuleConfigError::Stopped { cause: StopCause::Deadline, .. })), "{error:?}");
    }
    let good = bench.module(with_schema(r#"{"required":["a"]}"#));
    assert!(good.transform(r#"{"a":1}"#).is_ok());
    let error = good.transform("{}").err();
    assert!(matches!(&error, Some(ModuleConfigError::Schema { detail }) if detail.contains("a")), "{error:?}");
}
