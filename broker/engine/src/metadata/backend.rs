//! redb on a file of the broker's storage, so that the simulated disk carries the metadata too.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use levada_log::File;
use redb::StorageBackend;

/// A file as redb wants it.
pub(crate) struct FileBackend(pub(crate) Arc<dyn File>);

impl fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileBackend")
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.0.read_at(&mut out[done..], offset + done as u64)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(&[IoSlice::new(data)], offset)
    }
}
