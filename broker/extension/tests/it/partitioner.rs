//! The partitioner: Kafka's placements and the checks of an answer.

use levada_extension::{KeyRecord, Keys, Moment, Murmur2, PartitionFault, Partitioner, check_partitions, conformance};
use levada_model::{PartitionIndex, Timestamp, TopicName};
use proptest::prelude::*;

fn place(key: &str, partition_count: u32) -> u32 {
    Murmur2::default().partition(&[Some(key.as_bytes())], partition_count)[0].0
}

/// Case PC-43: the partitions that Kafka's Java client gives these keys.
#[test]
fn keys_go_where_kafkas_client_sends_them() {
    assert_eq!(place("100:48069", 12), 9);
    assert_eq!(place("wu", 10), 0);
    assert_eq!(place("thingäöüÄÖÜ", 10), 2);
    assert_eq!(place("TT0124", 15), 10);
    assert_eq!(place("ключ-7", 6), 1);
    assert_eq!(place("", 6), 3);
}

#[test]
fn the_native_partitioner_keeps_its_duties() {
    conformance::partitioner(&Murmur2::default());
}

#[test]
fn records_without_a_key_rotate_by_call() {
    let partitioner = Murmur2::default();
    let calls: Vec<_> = (0..4).map(|_| partitioner.partition(&[None, None], 3)).collect();
    assert!(calls.iter().all(|call| call[0] == call[1]));
    assert_eq!(calls.iter().map(|call| call[0].0).collect::<Vec<_>>(), [0, 1, 2, 0]);
}

#[test]
fn who_gives_records_to_a_partitioner_of_keys_gets_the_same_answer() {
    let topic = TopicName::new("t").expect("a name");
    let record =
        |key: &'static str| KeyRecord { timestamp: Timestamp(1), key: Some(key.as_bytes()), value: None, headers: &[] };
    let records = ["wu", "TT0124"].map(record);
    let keys = Keys { topic: &topic, moment: Moment { time: Timestamp(2), seed: 3 }, records: &records };
    let expected = Murmur2::default().partition(&[Some(b"wu"), Some(b"TT0124")], 10);
    assert_eq!(Murmur2::default().place(&keys, 10), Ok(expected));
}

#[test]
fn a_wrong_answer_is_named() {
    let two = [PartitionIndex(0), PartitionIndex(3)];
    assert_eq!(check_partitions(&two, 2, 4), Ok(()));
    assert_eq!(check_partitions(&two, 3, 4), Err(PartitionFault::Length { expected: 3, got: 2 }));
    let fault = PartitionFault::OutOfRange { index: 1, partition: PartitionIndex(3), partition_count: 3 };
    assert_eq!(check_partitions(&two, 2, 3), Err(fault));
}

proptest! {
    #[test]
    fn any_key_has_a_valid_partition(key in proptest::collection::vec(any::<u8>(), 0..64), count in 1..10_000_u32) {
        let answer = Murmur2::default().partition(&[Some(&key)], count);
        prop_assert_eq!(check_partitions(&answer, 1, count), Ok(()));
    }
}
