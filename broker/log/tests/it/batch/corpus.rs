//! The fuzz target's corpus, run as an ordinary test. A file's name says what must become of it.

#[path = "../../../fuzz/decode.rs"]
mod decode;

use std::fs;
use std::path::Path;

use bytes::BytesMut;
use levada_log::{BatchBuf, RecordsError};

use super::check;

/// What the broker says to the file's bytes as one batch from a client.
fn verdict(bytes: &[u8]) -> Result<(), String> {
    let mut bytes = BytesMut::from(bytes);
    let batch = BatchBuf::parse(&mut bytes).map_err(|error| error.to_string())?;
    check(&batch, 1 << 20).map_err(|error: RecordsError| error.to_string())
}

#[test]
fn every_file_of_the_corpus_is_survived_and_judged_as_its_name_says() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/batch_decode");
    let mut files = 0;
    for entry in fs::read_dir(corpus).expect("the corpus") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let bytes = fs::read(&path).expect("readable");
        decode::decode(&bytes);
        let verdict = verdict(&bytes);
        match name.split_once('-') {
            Some(("valid", _)) => assert_eq!(verdict, Ok(()), "{name}"),
            Some(("bad", _)) => assert!(verdict.is_err(), "{name} was taken"),
            _ => panic!("{name} says neither valid nor bad"),
        }
        files += 1;
    }
    assert!(files >= 30, "{files} files");
}
