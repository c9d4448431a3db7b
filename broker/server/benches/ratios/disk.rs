//! The disk by itself: what plain writes and syncs of the same bytes cost, without any server.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn file(dir: &Path, name: &str) -> File {
    File::options().create(true).truncate(true).read(true).write(true).open(dir.join(name)).expect("a file")
}

/// Makes a file of `bytes`.
pub(crate) fn fill(path: &Path, bytes: usize) {
    let file = File::options().create(true).truncate(true).write(true).open(path).expect("a file");
    file.write_all_at(&vec![b'x'; bytes], 0).expect("the disk takes it");
}

/// Median microseconds of an fdatasync after a write of `bytes` into a file whose zeros were written before.
pub(crate) fn sync_of_zeros_us(dir: &Path, bytes: usize, rounds: usize) -> f64 {
    syncs_of_zeros_us(dir, bytes, rounds)[rounds / 2]
}

/// Microseconds of each of these fdatasyncs, sorted.
pub(crate) fn syncs_of_zeros_us(dir: &Path, bytes: usize, rounds: usize) -> Vec<f64> {
    let file = file(dir, "zeros");
    file.write_all_at(&vec![0; bytes * rounds], 0).expect("the disk takes it");
    file.sync_all().expect("the disk syncs");
    let data = vec![b'x'; bytes];
    let mut times: Vec<f64> = (0..rounds)
        .map(|i| {
            file.write_all_at(&data, (bytes * i) as u64).expect("the disk takes it");
            let start = Instant::now();
            file.sync_data().expect("the disk syncs");
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Bytes a second of plain writes of `chunk` bytes each to a new file for `duration`; each followed by an fdatasync if
/// `sync`.
pub(crate) fn plain_writes(dir: &Path, chunk: usize, duration: Duration, sync: bool) -> f64 {
    let file = file(dir, "plain");
    let data = vec![b'x'; chunk];
    let (start, mut end) = (Instant::now(), 0);
    while start.elapsed() < duration {
        file.write_all_at(&data, end).expect("the disk takes it");
        end += chunk as u64;
        if sync {
            file.sync_data().expect("the disk syncs");
        }
    }
    end as f64 / start.elapsed().as_secs_f64()
}
