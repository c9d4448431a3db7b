//! The example modules in Rust (`plugins/examples`) as WebAssembly, built from source by this crate's build script: for
//! `levada serve --demo` and for tests. Not here: a component's encoding, which the broker does when it takes a module.

/// An example module.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Its name, that of its folder: `json-filter`.
    pub name: &'static str,
    /// A core module of the `wasm32-unknown-unknown` target, with the sections of `wit-bindgen` that make a component of it.
    pub wasm: &'static [u8],
}

/// All of them by name. There are none without the feature `modules`.
#[must_use]
pub const fn examples() -> &'static [Example] {
    EXAMPLES
}

/// The one with this name.
#[must_use]
pub fn example(name: &str) -> Option<&'static Example> {
    EXAMPLES.iter().find(|example| example.name == name)
}

const EXAMPLES: &[Example] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

#[cfg(test)]
mod tests {
    use super::{example, examples};

    #[test]
    fn every_example_is_a_core_module_that_the_broker_can_make_a_component_of() {
        assert_eq!(examples().is_empty(), cfg!(not(feature = "modules")));
        for example in examples() {
            let holds = |text: &str| example.wasm.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(example.wasm.starts_with(b"\0asm\x01\0\0\0"), "{} is a core module", example.name);
            assert!(holds("component-type:wit-bindgen"), "{} says what it exports", example.name);
            assert!(!holds("wasi") && !holds("__wbindgen"), "{} imports what is not there", example.name);
            assert!(example.wasm.len() < 300 << 10, "{} is {} bytes large", example.name, example.wasm.len());
        }
    }

    #[cfg(feature = "modules")]
    #[test]
    fn there_is_one_for_each_world_and_they_are_found_by_name() {
        for world in ["transform", "partitioner", "assignor", "aggregator"] {
            let export = format!("levada:plugin/{world}@0.1.0#");
            let holds = |wasm: &[u8]| wasm.windows(export.len()).any(|part| part == export.as_bytes());
            assert!(examples().iter().any(|example| holds(example.wasm)), "{world}");
        }
        assert!(examples().is_sorted_by_key(|example| example.name));
        assert!(examples().iter().all(|one| example(one.name).is_some_and(|found| found.wasm == one.wasm)));
        assert!(example("no-such-module").is_none());
    }

    #[cfg(feature = "modules")]
    #[test]
    fn modules_name_no_folder_of_the_machine_that_built_them() {
        let folder = env!("CARGO_MANIFEST_DIR").strip_suffix("plugins/bundle").expect("the crate lies there");
        for example in examples() {
            let found = example.wasm.windows(folder.len()).any(|part| part == folder.as_bytes());
            assert!(!found, "{} holds {folder}", example.name);
        }
    }
}
