//! The machine's file system behind the trait.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use levada_model::Timestamp;

use super::{File, Storage};

/// The machine's file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct DiskStorage;

#[derive(Debug)]
struct DiskFile(fs::File);

/// Opens a file that exists, for reading alone: whoever may not write may still look.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<Arc<dyn File>> {
    Ok(Arc::new(DiskFile(fs::File::open(path)?)))
}

impl Storage for DiskStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        open(OpenOptions::new().create(true).truncate(false), path)
    }

    fn open_existing(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        open(&mut OpenOptions::new(), path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // The broker gives no such name, so a file that has one is none of its own.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        let since = fs::metadata(path)?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }
}

impl File for DiskFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], mut position: u64) -> io::Result<()> {
        if let [part] = parts {
            return self.0.write_all_at(part, position);
        }
        let mut parts = parts.to_vec();
        let mut left = parts.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            // Takes as many parts as the kernel does in one call (1024) and says how much that was.
            match rustix::io::pwritev(&self.0, left, position).map_err(io::Error::from) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    position += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<Arc<dyn File>> {
    Ok(Arc::new(DiskFile(options.read(true).write(true).open(path)?)))
}
