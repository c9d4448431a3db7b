//! What was made of modules, kept in a directory of the host's own: machine code by digest, wasmtime's version and
//! configuration, and what the module said of itself. All of it is derived: what is missing, damaged or of another version
//! is made again.
//!
//! Machine code is trusted when it is loaded, so nothing comes into the directory but what this file writes: it belongs to
//! the broker's user alone, files appear in it whole, by renaming, and each has its checksum in the manifest, which is
//! written last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, Digest, checksum};
use levada_extension::{Fields, ModuleDescription, ModuleDigest, ModuleWorld};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::engine::Meter;

const MANIFEST: &str = "manifest";
const COMPONENT: &str = "component.wasm";
const CHUNK_BYTES: usize = 64 << 10;
/// Of the manifest.
const FORMAT: u32 = 1;

/// The directory.
pub(crate) struct Artifacts {
    directory: PathBuf,
}

/// What is kept of one module.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    size_bytes: u64,
    worlds: Vec<ModuleWorld>,
    fields: u8,
    config_schema: Option<String>,
    state_version: u32,
    /// CRC-64/NVME of each file.
    files: BTreeMap<String, u64>,
}

impl Artifacts {
    /// Opens the directory, which is made if it is not there.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let found = fs::symlink_metadata(directory)?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() {
            let error = format!("{} is no directory of this user's", directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// What a module that was kept said of itself, if the component is whole that its dry runs need.
    pub(crate) fn description(&self, digest: ModuleDigest) -> Option<ModuleDescription> {
        let manifest = self.manifest(digest)?;
        let component = sum_of_file(&self.folder(digest).join(COMPONENT)).ok()?;
        if manifest.files.get(COMPONENT) != Some(&component) {
            return None;
        }
        Some(ModuleDescription {
            digest,
            size_bytes: manifest.size_bytes,
            worlds: manifest.worlds,
            fields: Fields::from_bits(manifest.fields),
            config_schema: manifest.config_schema,
            state_version: manifest.state_version,
        })
    }

    /// The component that a module is, or was made into.
    pub(crate) fn component(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let wanted = *self.manifest(digest)?.files.get(COMPONENT)?;
        fs::read(self.folder(digest).join(COMPONENT)).ok().filter(|bytes| sum(bytes) == wanted)
    }

    /// A module's machine code for an engine.
    pub(crate) fn code(&self, digest: ModuleDigest, meter: Meter, engine: &Engine) -> Option<Component> {
        let name = code_name(meter, engine);
        let wanted = *self.manifest(digest)?.files.get(&name)?;
        let found = sum_of_file(&self.folder(digest).join(&name)).ok()?;
        if found == wanted { trusted_file(&self.folder(digest).join(&name), engine) } else { None }
    }

    /// Keeps a component, its code and its description, in place of whatever was kept of the module.
    pub(crate) fn keep(
        &self,
        description: &ModuleDescription,
        component: &[u8],
        code: &[u8],
        engine: &Engine,
    ) -> io::Result<()> {
        let digest = description.digest;
        self.forget(digest)?;
        DirBuilder::new().mode(0o700).create(self.folder(digest))?;
        let name = code_name(Meter::Time, engine);
        self.write(digest, COMPONENT, component)?;
        self.write(digest, &name, code)?;
        let files = [(COMPONENT.to_owned(), sum(component)), (name, sum(code))].into();
        let manifest = Manifest {
            format: FORMAT,
            size_bytes: description.size_bytes,
            worlds: description.worlds.clone(),
            fields: description.fields.bits(),
            config_schema: description.config_schema.clone(),
            state_version: description.state_version,
            files,
        };
        self.write_manifest(digest, &manifest)
    }

    /// Keeps code beside what is kept of the module already.
    pub(crate) fn add_code(&self, digest: ModuleDigest, meter: Meter, code: &[u8], engine: &Engine) -> io::Result<()> {
        let name = code_name(meter, engine);
        let mut manifest = self.manifest(digest).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        self.write(digest, &name, code)?;
        manifest.files.insert(name, sum(code));
        self.write_manifest(digest, &manifest)
    }

    /// Deletes what is kept of a module.
    pub(crate) fn forget(&self, digest: ModuleDigest) -> io::Result<()> {
        match fs::remove_dir_all(self.folder(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes what is kept of all modules but these. What has another name than such folders have is not ours and stays.
    pub(crate) fn keep_only(&self, known: &BTreeSet<ModuleDigest>) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let digest = name.to_str().and_then(|name| format!("sha256:{name}").parse().ok());
            if let Some(digest) = digest.filter(|digest| !known.contains(digest)) {
                self.forget(digest)?;
            }
        }
        Ok(())
    }

    fn folder(&self, digest: ModuleDigest) -> PathBuf {
        self.directory.join(digest.hex())
    }

    fn manifest(&self, digest: ModuleDigest) -> Option<Manifest> {
        let bytes = fs::read(self.folder(digest).join(MANIFEST)).ok()?;
        let (wanted, json) = bytes.split_first_chunk()?;
        let manifest = if u64::from_be_bytes(*wanted) == sum(json) { serde_json::from_slice(json).ok() } else { None };
        manifest.filter(|manifest: &Manifest| manifest.format == FORMAT)
    }

    /// Writes the manifest, behind its own checksum.
    fn write_manifest(&self, digest: ModuleDigest, manifest: &Manifest) -> io::Result<()> {
        let json = serde_json::to_vec(manifest).expect("texts and numbers have a JSON form");
        self.write(digest, MANIFEST, &[&sum(&json).to_be_bytes(), &json[..]].concat())
    }

    /// Writes a file so that it appears whole or not at all.
    fn write(&self, digest: ModuleDigest, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder(digest).join(name);
        let unfinished = path.with_extension("unfinished");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(unfinished, path)
    }
}

/// Machine code that the compiler just gave.
#[expect(unsafe_code, reason = "machine code is trusted, and this comes from the compiler alone")]
pub(crate) fn trusted(code: &[u8], engine: &Engine) -> wasmtime::Result<Component> {
    // SAFETY: `Compiler::compile` alone calls this with what `Engine::precompile_component` made, in this process or in the
    // one that it started.
    unsafe { Component::deserialize(engine, code) }
}

#[expect(unsafe_code, reason = "machine code is trusted, as the file's first lines say")]
fn trusted_file(path: &Path, engine: &Engine) -> Option<Component> {
    // SAFETY: the file lies in a directory that only this user may write, was written there by `write` from what
    // `Engine::precompile_component` made, has had its checksum verified, and is never changed, only replaced by renaming
    // another over it, which leaves what is mapped as it is. Code of another version or configuration is refused by wasmtime
    // itself.
    let loaded = unsafe { Component::deserialize_file(engine, path) };
    loaded.ok()
}

fn code_name(meter: Meter, engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    let kind = match meter {
        Meter::Time => "timed",
        Meter::Instructions => "metered",
    };
    format!("{kind}-{:016x}.code", hasher.finish())
}

fn sum(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The same of a file, which is never in memory as a whole: a start looks at many.
fn sum_of_file(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(digest.finalize()),
            read => digest.update(&chunk[..read]),
        }
    }
}
