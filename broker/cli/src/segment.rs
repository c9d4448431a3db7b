//! Finds the segment files that `levada log` is to look at. What is in them is `levada-log`'s knowledge; what is printed,
//! `log.rs`'s.

use std::fs;
use std::io;
use std::path::Path;

use levada_log::{SegmentFile, segment_files};

/// The segments at a path: the file itself, or all below a directory, in order of directory and offset.
pub(crate) fn segments_at(path: &Path) -> io::Result<Vec<SegmentFile>> {
    if fs::metadata(path)?.is_dir() {
        let mut found = Vec::new();
        collect(path, &mut found)?;
        return Ok(found);
    }
    let dir = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = segment_files(dir)?.into_iter().find(|segment| segment.path.file_name() == path.file_name());
    let (base_offset, end) = named.map_or((None, None), |segment| (segment.base_offset, segment.end));
    Ok(vec![SegmentFile { path: path.to_owned(), base_offset, end }])
}

fn collect(dir: &Path, found: &mut Vec<SegmentFile>) -> io::Result<()> {
    found.extend(segment_files(dir)?);
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    dirs.sort();
    dirs.iter().try_for_each(|dir| collect(dir, found))
}
