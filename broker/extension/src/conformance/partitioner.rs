//! What every partitioner must do.

use levada_model::PartitionIndex;

use crate::{Partitioner, check_partitions};

/// Runs the suite of [`Partitioner`].
///
/// # Panics
/// At the first duty that `partitioner` breaks.
pub fn partitioner(partitioner: &dyn Partitioner) {
    let texts: Vec<String> = (0..500).map(|i| format!("key-{}", i % 97)).collect();
    let mut keys: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_bytes())).collect();
    keys.extend([None, Some(&b""[..]), None, Some(&[0xff, 0x00][..])]);
    for partition_count in [1, 2, 3, 10, 10_000] {
        let first = partitioner.partition(&keys, partition_count);
        check_partitions(&first, keys.len(), partition_count).expect("one valid partition a key");
        let again = partitioner.partition(&keys, partition_count);
        for (i, key) in keys.iter().enumerate() {
            assert!(key.is_none() || first[i] == again[i], "key {i} went elsewhere the second time");
            let twin = keys.iter().position(|other| other == key).expect("itself at least");
            assert!(key.is_none() || first[i] == first[twin], "equal keys {i} and {twin} were parted");
        }
    }
    assert_eq!(partitioner.partition(&[], 3), Vec::<PartitionIndex>::new(), "no keys, no partitions");
}
