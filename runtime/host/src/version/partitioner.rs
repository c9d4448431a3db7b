//! A module as partitioner.

use std::sync::Arc;
use std::time::Duration;

use levada_extension::{KeyRecord, Keys, ModuleFault, Moment, Murmur2, Partitioner, check_partitions};
use levada_model::limits::MODULE_PARTITION_MS_MAX;
use levada_model::{PartitionIndex, Timestamp, TopicName};

use super::{Call, Extension, fits};

struct ModulePartitioner {
    extension: Extension,
    fallback: Murmur2,
    /// For who asks with keys alone.
    unnamed: TopicName,
}

pub(super) fn partitioner(extension: Extension) -> Arc<dyn Partitioner> {
    let unnamed = TopicName::new("unnamed").expect("within the rule");
    Arc::new(ModulePartitioner { extension, fallback: Murmur2::default(), unnamed })
}

impl Partitioner for ModulePartitioner {
    fn partition(&self, keys: &[Option<&[u8]>], partition_count: u32) -> Vec<PartitionIndex> {
        let record = |key: &Option<_>| KeyRecord { timestamp: Timestamp(0), key: *key, value: None, headers: &[] };
        let records: Vec<_> = keys.iter().map(record).collect();
        let given = Keys { topic: &self.unnamed, moment: Moment { time: Timestamp(0), seed: 0 }, records: &records };
        self.place(&given, partition_count).unwrap_or_else(|_| self.fallback.partition(keys, partition_count))
    }

    fn place(&self, keys: &Keys<'_>, partition_count: u32) -> Result<Vec<PartitionIndex>, ModuleFault> {
        let placed = self.placed(keys, partition_count);
        // Of these others ask again.
        if !matches!(placed, Ok(_) | Err(ModuleFault::Busy(_) | ModuleFault::TooLarge { .. })) {
            self.extension.version.template.journal.fell_back();
        }
        placed
    }
}

impl ModulePartitioner {
    fn placed(&self, keys: &Keys<'_>, partition_count: u32) -> Result<Vec<PartitionIndex>, ModuleFault> {
        let bytes = keys.encode(self.extension.version.description.fields);
        fits(bytes.len())?;
        let (records, cpu) = (keys.records.len(), Duration::from_millis(MODULE_PARTITION_MS_MAX));
        let call = Call { moment: keys.moment, records: records as u64, cpu };
        let (placed,) = self.extension.ask(call, move |store, exports| {
            let partition = exports.partition.as_ref().expect("found in every instance alike");
            partition.call(store, (bytes, partition_count))
        })?;
        let placed: Vec<_> = placed.into_iter().map(PartitionIndex).collect();
        check_partitions(&placed, records, partition_count)
            .map_err(|fault| self.extension.version.refused_answer(fault))?;
        Ok(placed)
    }
}
