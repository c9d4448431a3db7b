//! Places records by what stands in their key before a colon.

use levada_plugin::{Fields, KeyRecord, Module, NoConfig, Partitioner, default_partition};

/// The module.
pub struct MyPartitioner;

impl Module for MyPartitioner {
    // A type of your own that implements `Deserialize`, where there is a config.
    type Config = NoConfig;
    const FIELDS: Fields = Fields::KEY;

    fn new(_: NoConfig) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Partitioner for MyPartitioner {
    fn partition(&self, record: &KeyRecord<'_>, partition_count: u32) -> u32 {
        let key = record.key.and_then(|key| key.split(|byte| *byte == b':').next());
        // Where the broker would place a record with this key; without a key, anywhere.
        default_partition(&KeyRecord { key, ..record.clone() }, partition_count)
    }
}

levada_plugin::export!(MyPartitioner: partitioner);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, partition};

    use super::MyPartitioner;

    #[test]
    fn what_begins_alike_lies_together() {
        let records = ["acme:1", "acme:2", "acme"].map(|key| TestRecord::new(key, ""));
        let placed = partition(&MyPartitioner, &records, 12);
        assert!(placed.iter().all(|partition| *partition == placed[0]), "{placed:?}");
    }
}
