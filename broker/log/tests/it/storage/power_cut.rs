//! What a simulated power cut leaves: the semantics that every crash test stands on.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use levada_log::{CrashPlan, Fate, File, Pending, SimStorage, Storage};
use levada_model::{ManualClock, Timestamp};

fn disk() -> SimStorage {
    SimStorage::with_block_bytes(Arc::new(ManualClock::at(Timestamp(1))), 4)
}

fn create(disk: &SimStorage, path: &str) -> Arc<dyn File> {
    disk.open(Path::new(path)).expect("created")
}

fn write(file: &dyn File, bytes: &[u8], position: u64) {
    file.write_at(&[IoSlice::new(bytes)], position).expect("written");
}

/// A file `f` whose name and bytes are durable.
fn durable(bytes: &[u8]) -> (SimStorage, Arc<dyn File>) {
    let disk = disk();
    let file = create(&disk, "f");
    write(&*file, bytes, 0);
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    assert_eq!(disk.pending(), []);
    (disk, file)
}

/// What `f` holds after each of the possible power cuts.
fn outcomes(disk: &SimStorage) -> BTreeSet<Vec<u8>> {
    let count = disk.pending_count();
    (0..1 << count).map(|bits| disk.crash(&CrashPlan::bits(bits)).contents("f")).collect()
}

fn set(outcomes: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    outcomes.iter().map(|bytes| bytes.to_vec()).collect()
}

#[test]
fn what_was_synced_survives_and_what_was_not_is_lost() {
    let (disk, file) = durable(b"synced");
    write(&*file, b"written", 0);
    assert_eq!(disk.contents("f"), b"written");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"synced");
    assert_eq!(disk.crash(&CrashPlan::all_kept()).contents("f"), b"written");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).pending(), []);
}

#[test]
fn each_block_survives_by_itself_so_that_later_ones_may_come_without_earlier() {
    let (disk, file) = durable(b"aaaabbbb");
    write(&*file, b"AAAABBBB", 0);
    let block = |block| Pending::Block { path: "/f".to_owned(), block };
    assert_eq!(disk.pending(), [block(0), block(1)]);
    assert_eq!(outcomes(&disk), set(&[b"aaaabbbb", b"AAAAbbbb", b"aaaaBBBB", b"AAAABBBB"]));
}

#[test]
fn a_grown_length_without_its_blocks_reads_zeros_and_blocks_beyond_the_length_are_gone() {
    let (disk, file) = durable(b"aaaa");
    write(&*file, b"bbbbcc", 4);
    assert_eq!(disk.pending()[0], Pending::Length { path: "/f".to_owned() });
    let expected: [&[u8]; 5] = [b"aaaa", b"aaaa\0\0\0\0\0\0", b"aaaabbbb\0\0", b"aaaa\0\0\0\0cc", b"aaaabbbbcc"];
    assert_eq!(outcomes(&disk), set(&expected));
}

#[test]
fn a_cut_length_may_be_lost_and_the_old_bytes_come_back() {
    let (disk, file) = durable(b"aaaabbbb");
    file.set_len(2).expect("cut");
    assert_eq!(outcomes(&disk), set(&[b"aaaabbbb", b"aa"]));
    file.set_len(6).expect("extended");
    assert_eq!(disk.contents("f"), b"aa\0\0\0\0");
    assert!(outcomes(&disk).contains(b"aaaabb".as_slice()), "the length came down, the zeros did not");
    let shortest = CrashPlan::fates(vec![Fate::Torn { bytes: 0 }]);
    assert_eq!(disk.crash(&shortest).contents("f"), b"aa");
    file.sync_data().expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"aa\0\0\0\0");
}

#[test]
fn a_torn_block_has_a_prefix_of_the_new_bytes_before_the_old() {
    let (disk, file) = durable(b"aaaabbbb");
    write(&*file, b"AAAA", 0);
    let torn = |bytes| disk.crash(&CrashPlan::fates(vec![Fate::Torn { bytes }])).contents("f");
    assert_eq!(torn(0), b"aaaabbbb");
    assert_eq!(torn(3), b"AAAabbbb");
    assert_eq!(torn(9), b"AAAAbbbb");
}

#[test]
fn a_torn_length_ends_anywhere_between_the_old_and_the_new() {
    let (disk, file) = durable(b"aa");
    write(&*file, b"bbbb", 2);
    let torn = |bytes| disk.crash(&CrashPlan::fates(vec![Fate::Torn { bytes }, Fate::Kept, Fate::Kept])).contents("f");
    assert_eq!(torn(1), b"aab");
    assert_eq!(torn(99), b"aabbbb");
}

#[test]
fn a_name_is_durable_only_after_its_directory_was_synced() {
    let disk = disk();
    let file = create(&disk, "f");
    write(&*file, b"x", 0);
    file.sync_data().expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).paths(), [""; 0]);
    assert_eq!(disk.crash(&CrashPlan::all_kept()).contents("f"), b"x");
    disk.sync_dir(Path::new("/")).expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"x");
    disk.remove_file(Path::new("f")).expect("removed");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).paths(), ["/f"]);
    assert_eq!(disk.crash(&CrashPlan::all_kept()).paths(), [""; 0]);
}

#[test]
fn what_lies_in_a_directory_without_a_durable_name_is_gone() {
    let disk = disk();
    disk.create_dir(Path::new("d")).expect("created");
    create(&disk, "d/f").sync_data().expect("synced");
    disk.sync_dir(Path::new("d")).expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).paths(), [""; 0]);
    disk.sync_dir(Path::new("")).expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).paths(), ["/d/f"]);
}

#[test]
fn a_rename_survives_whole_or_not_at_all() {
    let (disk, _) = durable(b"old");
    let new = create(&disk, "new");
    write(&*new, b"new", 0);
    new.sync_data().expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    disk.rename(Path::new("new"), Path::new("f")).expect("renamed");
    assert_eq!(disk.pending_count(), 1);
    let lost = disk.crash(&CrashPlan::all_lost());
    assert_eq!((lost.paths(), lost.contents("f")), (vec!["/f".to_owned(), "/new".to_owned()], b"old".to_vec()));
    let kept = disk.crash(&CrashPlan::all_kept());
    assert_eq!((kept.paths(), kept.contents("f")), (vec!["/f".to_owned()], b"new".to_vec()));
}

#[test]
fn a_renamed_file_that_was_not_synced_may_be_empty() {
    let (disk, _) = durable(b"old");
    let new = create(&disk, "new");
    write(&*new, b"new", 0);
    disk.rename(Path::new("new"), Path::new("f")).expect("renamed");
    disk.sync_dir(Path::new("/")).expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"");
}

#[test]
fn a_removed_directory_may_come_back_in_part() {
    let disk = disk();
    disk.create_dir(Path::new("d")).expect("created");
    for name in ["d/a", "d/b"] {
        create(&disk, name);
    }
    disk.sync_dir(Path::new("d")).expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    disk.remove_dir_all(Path::new("d")).expect("removed");
    assert_eq!(disk.pending_count(), 3);
    assert_eq!(disk.crash(&CrashPlan::bits(0b001)).paths(), ["/d/b"]);
    assert_eq!(disk.crash(&CrashPlan::bits(0b100)).paths(), [""; 0]);
}

#[test]
fn a_kill_keeps_all_that_was_written_and_what_pends_still_pends() {
    let (disk, file) = durable(b"aaaa");
    write(&*file, b"bbbb", 0);
    let restarted = disk.restart();
    write(&*file, b"cccc", 0);
    assert_eq!(restarted.contents("f"), b"bbbb", "the killed process reaches nothing any more");
    assert_eq!(restarted.crash(&CrashPlan::all_lost()).contents("f"), b"aaaa");
}

#[test]
fn a_seed_always_gives_the_same_cut_and_seeds_differ() {
    let (disk, file) = durable(&[0; 64]);
    write(&*file, &[1; 64], 0);
    let cut = |seed| disk.crash(&CrashPlan::seeded(seed, 1)).contents("f");
    assert_eq!(cut(1), cut(1));
    let cuts: BTreeSet<_> = (0..20).map(cut).collect();
    assert!(cuts.len() > 15, "{} different cuts", cuts.len());
    let torn = |bytes: &Vec<u8>| bytes.chunks(4).any(|block| block[0] != block[3]);
    assert!(cuts.iter().any(torn), "some block is torn");
    let sectors: BTreeSet<_> = (0..20).map(|seed| disk.crash(&CrashPlan::seeded(seed, 4)).contents("f")).collect();
    assert!(!sectors.iter().any(torn), "a sector is whole");
}

#[test]
fn a_crashed_disk_keeps_the_time_of_the_last_sync() {
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    let disk = SimStorage::new(Arc::<ManualClock>::clone(&clock));
    let file = create(&disk, "f");
    disk.sync_dir(Path::new("/")).expect("synced");
    clock.set(Timestamp(5));
    write(&*file, b"x", 0);
    file.sync_data().expect("synced");
    clock.set(Timestamp(9));
    write(&*file, b"x", 0);
    assert_eq!(disk.crash(&CrashPlan::all_kept()).modified(Path::new("f")).expect("there"), Timestamp(5));
    assert_eq!(disk.restart().modified(Path::new("f")).expect("there"), Timestamp(9));
}
