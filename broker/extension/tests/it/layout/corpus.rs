//! The fuzz target's corpus, run as an ordinary test. A file's name says as what it must be taken.

#[path = "../../../fuzz/answer.rs"]
mod answer;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

const KINDS: [&str; 5] = ["verdicts", "json", "keep", "accumulators", "values"];

fn corpus() -> Vec<(String, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/answer");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("a file").path();
        (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("readable"))
    };
    fs::read_dir(corpus).expect("the corpus").map(file).collect()
}

#[test]
fn every_file_of_the_corpus_is_taken_as_its_name_says() {
    let corpus = corpus();
    for (name, bytes) in &corpus {
        let taken = answer::answer(bytes);
        match name.split_once('-').expect("a kind and a name") {
            ("bad", _) => assert_eq!(taken[..2], [false; 2], "{name} was taken"),
            (kind, _) => {
                let place = KINDS.iter().position(|known| *known == kind).expect("a known kind");
                assert!(taken[place], "{name} was refused");
            }
        }
    }
    assert!(corpus.len() >= 30, "{} files", corpus.len());
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        answer::answer(&bytes);
    }

    #[test]
    fn a_corpus_file_changed_anywhere_is_survived(
        file in any::<prop::sample::Index>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let corpus = corpus();
        let mut bytes = file.get(&corpus).1.clone();
        for (place, byte) in edits {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        answer::answer(&bytes);
    }
}
