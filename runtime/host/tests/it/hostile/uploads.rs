//! Bytes that are no usable module, refused with the reason.

use levada_extension::ModuleRefusal;

use super::guest::{Guest, embed, with_schema};
use crate::support::Bench;

fn refusal(wasm: impl AsRef<[u8]>) -> ModuleRefusal {
    Bench::new().compile(wasm).err().expect("refused")
}

#[test]
fn bytes_that_are_no_webassembly_are_refused() {
    for bytes in [&b""[..], b"\0asm", b"\x7fELF\x02\x01\x01\x00", b"#!/bin/sh\n", b"(module)", b"\0asm\x01\0\0\0\xff"] {
        assert!(matches!(refusal(bytes), ModuleRefusal::Invalid { .. }), "{bytes:?}");
    }
}

#[test]
fn a_module_without_what_makes_it_one_is_told_what_it_lacks() {
    let empty = wat::parse_str("(component)").expect("a component");
    let missing = refusal(empty).to_string();
    assert!(missing.contains("levada:plugin/module@0.1.0"), "{missing}");
    let plain = refusal(wat::parse_str("(module)").expect("a module")).to_string();
    assert!(plain.contains("levada:plugin/module@0.1.0"), "{plain}");
    // The base alone is no world that anything can be done with.
    let base = refusal(embed(&Guest::new().text(), "base")).to_string();
    assert!(base.contains("transform"), "{base}");
    let other = refusal(embed(&Guest::new().text(), "partitioner-module")).to_string();
    assert!(other.contains("partitioner"), "{other}");
}

#[test]
fn an_export_of_another_signature_is_named() {
    let text = Guest::new().text().replace(
        r#"(func (export "levada:plugin/module@0.1.0#describe") (result i32)"#,
        r#"(func (export "levada:plugin/module@0.1.0#describe") (param i64) (result i32)"#,
    );
    let core = refusal(embed(&text, "transform-module")).to_string();
    assert!(core.contains("describe"), "{core}");
    // A component whose `describe` answers a number.
    let component = r#"(component
        (core module $m (func (export "describe") (result i32) (i32.const 1)) (func (export "init")))
        (core instance $i (instantiate $m))
        (func $describe (result u32) (canon lift (core func $i "describe")))
        (instance $module (export "describe" (func $describe)) (export "init" (func $describe)))
        (export "levada:plugin/module@0.1.0" (instance $module))
        (export "levada:plugin/transform@0.1.0" (instance $module)))"#;
    let component = refusal(wat::parse_str(component).expect("a component"));
    assert!(
        matches!(&component, ModuleRefusal::Signature { export, .. } if export == "levada:plugin/module@0.1.0#describe"),
        "{component}"
    );
}

#[test]
fn imports_that_are_not_given_are_refused_by_name() {
    let env = Guest { imports: r#"(import "env" "system" (func (param i32)))"#.to_owned(), ..Guest::new() };
    assert_eq!(refusal(env.build()), ModuleRefusal::Import { import: "env system".to_owned() });
    let unknown = r#"(import "levada:plugin/host@0.1.0" "exec" (func (param i32)))"#;
    let unknown = refusal(Guest { imports: unknown.to_owned(), ..Guest::new() }.build()).to_string();
    assert!(unknown.contains("exec"), "{unknown}");
    for import in [
        r#"(import "evil:corp/backdoor@1.0.0" (instance (export "open" (func))))"#,
        r#"(import "levada:plugin/files@0.1.0" (instance (export "open" (func))))"#,
        r#"(import "levada:plugin/host@0.1.0" (func))"#,
        r#"(import "run" (func))"#,
        r#"(import "part" (core module))"#,
    ] {
        let refusal = refusal(wat::parse_str(format!("(component {import})")).expect("a component"));
        assert!(matches!(refusal, ModuleRefusal::Import { .. }), "{import}: {refusal}");
    }
    // The host's interface with another function, or another signature.
    for wrong in [r#"(export "open" (func))"#, r#"(export "log" (func (param "level" u32)))"#] {
        let text = format!(
            r#"(component (import "levada:plugin/host@0.1.0" (instance {wrong}))
                (instance $none) (export "levada:plugin/module@0.1.0" (instance $none))
                (export "levada:plugin/transform@0.1.0" (instance $none)))"#
        );
        let refusal = refusal(wat::parse_str(text).expect("a component"));
        assert!(matches!(refusal, ModuleRefusal::Import { .. }), "{refusal}");
    }
}

#[test]
fn components_nested_deep_are_refused() {
    let nested = format!("{}{}", "(component ".repeat(50), ")".repeat(50));
    let refusal = refusal(wat::parse_str(nested).expect("a component"));
    assert!(matches!(refusal, ModuleRefusal::Limit { what: "levels of nested components", .. }), "{refusal}");
}

#[test]
fn blocks_nested_deep_compile_or_are_refused_but_do_not_break_the_compiler() {
    let depth = 50_000;
    let transform = format!("{}{}", "block ".repeat(depth), "end ".repeat(depth));
    let bench = Bench::new();
    drop(bench.compile(Guest::transform(&transform).build()));
    assert!(bench.compile(Guest::new().build()).is_ok());
}

#[test]
fn sizes_beyond_the_caps_are_refused_before_the_compiler_sees_them() {
    let what = |wasm: Vec<u8>| match refusal(wasm) {
        ModuleRefusal::Limit { what, .. } => what,
        other => panic!("{other}"),
    };
    let large = Guest::transform(&"(drop (i32.const 1))".repeat(200_000));
    assert_eq!(what(large.build()), "bytes in one function");
    let locals = Guest::transform("").text().replace("(local $i i32)", &format!("(local {})", "i64 ".repeat(30_000)));
    let locals = locals.replace("(local $j i32)", "(local $i i32) (local $j i32)");
    assert_eq!(what(embed(&locals, "transform-module")), "local variables in one function");
    // Each of the levels would need a value for each of the variables: two billion.
    let sets: String = (0..10_000).map(|i| format!("(local.set {} (i32.const 1))", i + 2)).collect();
    let (levels, ends) = ("block ".repeat(2_000), "end ".repeat(2_000));
    let ways: String = (0..2_000).map(|i| format!("{i} ")).collect();
    let joins = format!("{levels} (br_table {ways} (local.get 0)) {ends} {sets}");
    let joins =
        Guest::transform("").text().replace("(local $i i32)", &format!("(local {}) {joins}", "i32 ".repeat(10_000)));
    let joins = joins.replace("(local $j i32)", "");
    assert_eq!(what(embed(&joins, "transform-module")), "local variables times levels of blocks in one function");
    let wide = Guest { items: format!("(type (func (param {})))", "i32 ".repeat(101)), ..Guest::new() };
    assert_eq!(what(wide.build()), "parameters and results in one type");
    let many = Guest { items: "(func)".repeat(100_001), ..Guest::new() };
    assert_eq!(what(many.build()), "functions");
    // 64 MiB of valid WebAssembly.
    let mut huge = Guest::new().build();
    huge.extend([0, 0xff, 0xff, 0xff, 0x1f, 0]);
    huge.resize(huge.len() + (64 << 20) - 2, 0);
    assert_eq!(what(huge), "bytes");
}

#[test]
fn descriptions_that_cannot_be_are_refused() {
    let layout = Guest { describe: "(i32.store (i32.const 1024) (i32.const 2))".to_owned(), ..Guest::new() };
    assert!(matches!(refusal(layout.build()), ModuleRefusal::Description { .. }));
    assert!(Bench::new().compile(with_schema(r#"{"type":"object"}"#)).is_ok());
    for wrong in
        ["words", r#"{"type":"nothing"}"#, r#"{"$ref":"http://127.0.0.1:1/schema.json"}"#, r#"{"pattern":"("}"#]
    {
        let refusal = refusal(with_schema(wrong));
        assert!(matches!(refusal, ModuleRefusal::Description { .. }), "{wrong}: {refusal}");
    }
}

#[test]
fn a_schema_that_goes_round_in_circles_does_not_break_the_host() {
    let bench = Bench::new();
    for schema in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"$dynamicRef":"#"}"##,
        r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}"##,
        r##"{"not":{"$ref":"#"}}"##,
        r##"{"$recursiveRef":"#"}"##,
    ] {
        if let Ok(module) = bench.compile(with_schema(schema)) {
            drop(module.transform("{}"));
        }
    }
}
