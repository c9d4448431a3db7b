//! The pattern of the hostile modules: a filter that keeps the first record, of which each test changes a piece.

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A core module in pieces of text.
pub(crate) struct Guest {
    /// A world of the contract, or `two`.
    pub(crate) world: &'static str,
    pub(crate) imports: String,
    /// Anything at the level of the module, `(start …)` too.
    pub(crate) items: String,
    /// In pages.
    pub(crate) memory: &'static str,
    /// Of `describe`, before the right answer.
    pub(crate) describe: String,
    /// Of `init`, before `ok`.
    pub(crate) init: String,
    /// Of `transform`, before it keeps the first record. `$batch` and `$length` say where the batch is.
    pub(crate) transform: String,
    /// The function that frees an answer.
    pub(crate) free: String,
}

impl Guest {
    /// A filter that keeps the first record.
    pub(crate) fn new() -> Self {
        Self {
            world: "transform-module",
            imports: String::new(),
            items: String::new(),
            memory: "2",
            describe: String::new(),
            init: String::new(),
            transform: String::new(),
            free: String::new(),
        }
    }

    /// One whose `transform` begins so.
    pub(crate) fn transform(text: &str) -> Self {
        Self { transform: text.to_owned(), ..Self::new() }
    }

    pub(crate) fn text(&self) -> String {
        let Self { imports, items, memory, describe, init, transform, free, .. } = self;
        format!(
            r#"(module
  (import "levada:plugin/host@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "levada:plugin/host@0.1.0" "counter" (func $counter (param i32 i32 i64)))
  {imports}
  (memory (export "memory") {memory})
  (global $heap (mut i32) (i32.const 4096))
  (global $calls (mut i32) (i32.const 0))
  ;; 1024: a description with layout version 1 and the field `value`. 1088: keep([0]). 1120: where text is built.
  (data (i32.const 1024) "\01\00\00\00\02\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
  (data (i32.const 1088) "\00\00\00\00\00\00\00\00\60\04\00\00\01\00\00\00")
  (data (i32.const 1120) "\00\00\00\00")
  (data (i32.const 1152) "abcdefghijklmnopqrstuvwxyz")
  {items}
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (block $fits
      (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
      (br_if $fits (i32.ne (i32.const -1) (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $size) (i32.const 65536))))))
      unreachable)
    (local.get $at))
  (func (export "levada:plugin/module@0.1.0#describe") (result i32)
    {describe}
    (i32.const 1024))
  (func (export "levada:plugin/module@0.1.0#init") (param $config i32) (param $length i32) (result i32)
    {init}
    (i32.const 512))
  (func (export "levada:plugin/transform@0.1.0#transform") (param $batch i32) (param $length i32) (result i32)
    (local $i i32) (local $j i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (global.set $heap (i32.const 4096))
    {transform}
    (i32.const 1088))
  (func (export "cabi_post_levada:plugin/transform@0.1.0#transform") (param i32)
    {free})
)"#
        )
    }

    /// As an author's compiler leaves it: with the section that says what world it is of.
    pub(crate) fn build(&self) -> Vec<u8> {
        embed(&self.text(), self.world)
    }
}

/// A core module with the section.
pub(crate) fn embed(text: &str, world: &str) -> Vec<u8> {
    let mut wasm = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    let mut resolve = Resolve::default();
    let contract = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/wit/0.1.0");
    let (package, _) = resolve.push_dir(contract).expect("the contract");
    // A module with two interfaces has a world of its own.
    let two = "package test:worlds; world two { include levada:plugin/transform-module@0.1.0;
        include levada:plugin/transform-json-module@0.1.0; }";
    let two = resolve.push_str("two.wit", two).expect("a package");
    let world = resolve.select_world(&[if world == "two" { two } else { package }], Some(world)).expect("a world");
    embed_component_metadata(&mut wasm, &resolve, world, StringEncoding::UTF8).expect("a section");
    wasm
}

/// A module with this schema of its config.
pub(crate) fn with_schema(text: &str) -> Vec<u8> {
    let data = text.replace('"', "\\22");
    let describe = format!(
        "(i32.store8 (i32.const 1032) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 12288))
         (i32.store (i32.const 1040) (i32.const {}))",
        text.len()
    );
    Guest { items: format!("(data (i32.const 12288) \"{data}\")"), describe, ..Guest::new() }.build()
}
