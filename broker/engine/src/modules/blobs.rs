//! The bytes of modules on the disk, one file a digest: `modules/<64 hex digits>.wasm` in the data directory.
//!
//! A file has its name only when all of it is durable, and it is there before the metadata speak of it. What the metadata
//! do not know is swept at the start; names of another form are others' and stay.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use levada_extension::ModuleDigest;
use levada_log::{Storage, StorageError};

const SUFFIX: &str = ".wasm";
/// What a file is called until all of it is durable.
const NEW_SUFFIX: &str = ".wasm-new";

/// Where the bytes of modules lie.
pub(super) struct Blobs<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) data_dir: &'a Path,
}

impl Blobs<'_> {
    /// Keeps a module's bytes durably, in place of what may be there.
    pub(super) fn keep(&self, digest: ModuleDigest, wasm: &[u8]) -> Result<(), StorageError> {
        let dir = self.dir();
        self.storage.create_dir(&dir).map_err(StorageError::at("create", &dir))?;
        self.storage.sync_dir(self.data_dir).map_err(StorageError::at("sync", self.data_dir))?;
        let new = self.path(digest, NEW_SUFFIX);
        self.write(&new, wasm).map_err(StorageError::at("write", &new))?;
        let path = self.path(digest, SUFFIX);
        self.storage.rename(&new, &path).map_err(StorageError::at("rename", &new))?;
        self.storage.sync_dir(&dir).map_err(StorageError::at("sync", &dir))
    }

    /// A module's bytes, checked against the digest.
    pub(super) fn read(&self, digest: ModuleDigest) -> Result<Bytes, StorageError> {
        let path = self.path(digest, SUFFIX);
        self.read_whole(&path, digest).map_err(StorageError::at("read", &path))
    }

    /// Removes a module's bytes.
    pub(super) fn remove(&self, digest: ModuleDigest) -> Result<(), StorageError> {
        let path = self.path(digest, SUFFIX);
        match self.storage.remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map_err(StorageError::at("remove", &path)),
        }
    }

    /// Removes the bytes that are of none of these modules, and what an upload left half-way. Answers what they were of.
    pub(super) fn sweep(&self, known: &BTreeSet<ModuleDigest>) -> Result<Vec<ModuleDigest>, StorageError> {
        let dir = self.dir();
        let names = match self.storage.list(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(StorageError::at("list", &dir))?,
        };
        let mut swept = Vec::new();
        for name in names {
            let digest = |suffix| format!("sha256:{}", name.strip_suffix(suffix)?).parse::<ModuleDigest>().ok();
            let unknown = digest(SUFFIX).filter(|digest| !known.contains(digest));
            if unknown.is_some() || digest(NEW_SUFFIX).is_some() {
                let path = dir.join(&name);
                self.storage.remove_file(&path).map_err(StorageError::at("remove", &path))?;
                swept.extend(unknown);
            }
        }
        Ok(swept)
    }

    fn dir(&self) -> PathBuf {
        self.data_dir.join("modules")
    }

    fn path(&self, digest: ModuleDigest, suffix: &str) -> PathBuf {
        self.dir().join(digest.hex() + suffix)
    }

    fn write(&self, path: &Path, wasm: &[u8]) -> io::Result<()> {
        let file = self.storage.open(path)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(wasm)], 0)?;
        file.sync_data()
    }

    fn read_whole(&self, path: &Path, digest: ModuleDigest) -> io::Result<Bytes> {
        let file = self.storage.open_existing(path)?;
        let mut wasm = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
        let read = file.read_at(&mut wasm, 0)?;
        wasm.truncate(read);
        match ModuleDigest::of(&wasm) == digest {
            true => Ok(wasm.into()),
            false => Err(io::Error::new(ErrorKind::InvalidData, "the bytes are not those that were put")),
        }
    }
}
