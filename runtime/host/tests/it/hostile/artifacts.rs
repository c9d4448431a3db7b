//! What is kept of compiled modules: private, checked, and made again where it is not what was written.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use levada_extension::{ModuleDigest, ModuleHost, ModuleRefusal, ModuleVersion, Verdicts};
use levada_host::{Compiler, Host, HostOptions};

use super::guest::Guest;
use crate::support::{Bench, batch, clock};

/// A host over the directory of another, as after a restart.
fn again(bench: &Bench) -> Host {
    let directory = bench.directory.path().join("compiled");
    Host::open(HostOptions::new(directory, Compiler::InProcess, clock())).expect("a host")
}

fn works(module: &Arc<dyn ModuleVersion>) {
    let transform = module.transform("{}").expect("a transform");
    assert_eq!(transform.transform(&batch(&["a", "b"])), Ok(Verdicts::Keep(vec![0])));
}

fn folder(bench: &Bench, digest: ModuleDigest) -> PathBuf {
    bench.directory.path().join("compiled").join(digest.hex())
}

/// How often a host asks for the bytes.
fn asks(host: &Host, wasm: &[u8]) -> (usize, Arc<dyn ModuleVersion>) {
    let asked = AtomicUsize::new(0);
    let bytes = || {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::copy_from_slice(wasm))
    };
    let module = host.load(ModuleDigest::of(wasm), &bytes).expect("a module");
    (asked.into_inner(), module)
}

#[test]
fn a_known_module_is_loaded_without_its_bytes() {
    let bench = Bench::new();
    let wasm = Guest::new().build();
    let module = bench.module(&wasm);
    let description = module.describe().clone();
    let host = again(&bench);
    let (asked, loaded) = asks(&host, &wasm);
    assert_eq!(asked, 0);
    assert_eq!(*loaded.describe(), description);
    works(&loaded);
    works(&loaded.dry_run().expect("a twin"));
    works(&again(&bench).load(description.digest, &|| Err(io::ErrorKind::NotFound.into())).expect("it is kept"));
}

#[test]
fn the_directory_and_its_files_are_the_brokers_alone() {
    let bench = Bench::new();
    let module = bench.module(Guest::new().build());
    let mode = |path: &PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let folder = folder(&bench, module.describe().digest);
    assert_eq!((mode(&bench.directory.path().join("compiled")), mode(&folder)), (0o700, 0o700));
    for entry in fs::read_dir(folder).expect("a folder") {
        assert_eq!(mode(&entry.expect("an entry").path()), 0o600);
    }
}

#[test]
fn damaged_and_forged_artifacts_are_made_anew() {
    let bench = Bench::new();
    let wasm = Guest::new().build();
    let digest = bench.module(&wasm).describe().digest;
    let files: Vec<_> =
        fs::read_dir(folder(&bench, digest)).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        // It was made anew since, and is the same.
        let right = fs::read(file).expect("readable");
        let mut flipped = right.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        for wrong in [flipped, right[..right.len() / 2].to_vec(), Vec::new(), b"\x7fELF forged".to_vec()] {
            replace(file, &wrong);
            let host = again(&bench);
            let (asked, module) = asks(&host, &wasm);
            assert_eq!(asked, 1, "{}", file.display());
            works(&module);
            works(&module.dry_run().expect("a twin"));
        }
    }
}

#[test]
fn what_is_lost_of_a_module_that_is_loaded_is_kept_again_when_its_bytes_come_again() {
    let bench = Bench::new();
    let wasm = Bytes::from(Guest::new().build());
    let module = bench.module(&wasm);
    bench.host.forget(module.describe().digest);
    assert!(matches!(module.dry_run(), Err(ModuleRefusal::Host { .. })), "nothing is left to make a twin of");
    let same = bench.host.compile(&wasm).expect("a module");
    assert_eq!(same.describe(), module.describe());
    works(&module.dry_run().expect("a twin"));
}

/// A forger with the right to write there.
#[expect(clippy::disallowed_methods, reason = "a test that forges files, not the broker")]
fn replace(file: &Path, bytes: &[u8]) {
    fs::write(file, bytes).expect("writable");
}

#[test]
fn what_an_interrupted_upload_left_is_in_nobodys_way() {
    let bench = Bench::new();
    let wasm = Guest::new().build();
    let folder = folder(&bench, ModuleDigest::of(&wasm));
    fs::create_dir(&folder).expect("a folder");
    replace(&folder.join("component.wasm"), &wasm);
    replace(&folder.join("timed-0.unfinished"), b"half");
    works(&bench.module(&wasm));
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 3);
}

#[test]
fn what_was_made_of_modules_that_nobody_knows_is_deleted_and_nothing_else() {
    let bench = Bench::new();
    let known = bench.module(Guest::new().build()).describe().digest;
    let unknown = bench.module(Guest::transform("nop").build()).describe().digest;
    let others = bench.directory.path().join("compiled/notes");
    fs::create_dir(&others).expect("a folder");
    again(&bench).keep_only(&[known].into());
    assert!(folder(&bench, known).exists() && others.exists());
    assert!(!folder(&bench, unknown).exists());
}

#[test]
fn machine_code_is_not_taken_as_an_upload() {
    let bench = Bench::new();
    let digest = bench.module(Guest::new().build()).describe().digest;
    for entry in fs::read_dir(folder(&bench, digest)).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "code") {
            let refusal = bench.compile(fs::read(path).expect("readable")).err().expect("refused");
            assert!(matches!(refusal, ModuleRefusal::Invalid { .. }), "{refusal}");
        }
    }
}

#[test]
fn other_bytes_are_not_taken_for_a_digest() {
    let bench = Bench::new();
    let wasm = Bytes::from(Guest::new().build());
    let refusal = bench.host.load(ModuleDigest([7; 32]), &|| Ok(wasm.clone())).err().expect("refused");
    assert!(refusal.is_hosts(), "{refusal}");
    let lost = bench.host.load(ModuleDigest::of(&wasm), &|| Err(io::Error::other("the disk is gone"))).err();
    assert!(matches!(lost, Some(ModuleRefusal::Host { reason }) if reason == "the disk is gone"));
}

#[test]
fn what_is_refused_or_forgotten_leaves_nothing() {
    let bench = Bench::new();
    let refused = Guest { describe: "unreachable".to_owned(), ..Guest::new() }.build();
    assert!(bench.compile(&refused).is_err());
    assert!(!folder(&bench, ModuleDigest::of(&refused)).exists());
    let module = bench.module(Guest::new().build());
    let digest = module.describe().digest;
    bench.host.forget(digest);
    bench.host.forget(digest);
    assert!(!folder(&bench, digest).exists());
    works(&module);
}

#[test]
fn equal_bytes_are_one_module() {
    let bench = Bench::new();
    let wasm = Guest::new().build();
    let (one, two) = (bench.module(&wasm), bench.module(&wasm));
    works(&one);
    assert_eq!(two.stats().calls, 1);
}
