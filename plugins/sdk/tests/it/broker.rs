//! A module natively behind the broker's own traits: the broker writes a call, this crate reads it and answers, the broker
//! checks the answer. The conformance suites run over the whole of that.

use bytes::Bytes;
use levada_extension::{
    Aggregator, AnswerLimits, CallBatch, Fields, Groups, KeyRecord, Keys, ModuleFault, Moment, Partitioner, Transform,
    Verdicts, conformance, decode_accumulators, decode_values, decode_verdicts,
};
use levada_model::{PartitionIndex, Timestamp, TopicName};
use levada_plugin::{Fault, Module, glue};

use crate::modules::{Bare, Everything};

const ALL: Everything = Everything { at_least: 2.0 };

/// A module behind the broker's traits; `filters` says as what it is exported.
struct Guest<M> {
    module: M,
    filters: bool,
}

fn limits() -> AnswerLimits {
    AnswerLimits::default()
}

fn fields<M: Module>() -> Fields {
    let pairs = [
        (levada_plugin::Fields::KEY, Fields::KEY),
        (levada_plugin::Fields::VALUE, Fields::VALUE),
        (levada_plugin::Fields::HEADERS, Fields::HEADERS),
    ];
    let declared = pairs.into_iter().filter(|(declared, _)| M::FIELDS.contains(*declared));
    declared.fold(Fields::none(), |all, (_, one)| all | one)
}

fn fault(fault: Fault) -> ModuleFault {
    match fault {
        Fault::Unsupported => ModuleFault::Unsupported,
        Fault::Failed(reason) => ModuleFault::Failed { reason },
    }
}

fn judged(verdicts: glue::Verdicts, records: usize) -> Result<Verdicts, ModuleFault> {
    Ok(match verdicts {
        glue::Verdicts::Keep(places) => Verdicts::Keep(places),
        glue::Verdicts::Each(bytes) => Verdicts::Each(decode_verdicts(bytes.into(), records, &limits())?),
    })
}

impl Transform for Guest<Everything> {
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
        let bytes = batch.encode(fields::<Everything>())?;
        let run = if self.filters { glue::filter } else { glue::transform };
        judged(run(&self.module, &bytes).map_err(fault)?, batch.record_count())
    }
}

impl Transform for Guest<Bare> {
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
        let bytes = batch.encode(fields::<Bare>())?;
        judged(glue::transform(&self.module, &bytes).map_err(fault)?, batch.record_count())
    }
}

impl<M: levada_plugin::Aggregator + Send + Sync> Aggregator for Guest<M> {
    fn state_version(&self) -> u32 {
        glue::describe::<M>().state_version
    }

    fn fold(&self, groups: &Groups, batch: &CallBatch, each_record: bool) -> Result<Vec<Bytes>, ModuleFault> {
        let bytes = batch.encode(fields::<M>())?;
        let answer = glue::fold(&self.module, &groups.encode(), &bytes, each_record);
        accumulators(answer, groups.fold_answers(each_record))
    }

    fn result(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        let answer = glue::result(&self.module, &groups.encode()).map_err(fault)?;
        Ok(decode_values(answer.into(), groups.groups.len(), &limits())?)
    }

    fn merge(&self, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        accumulators(glue::merge(&self.module, &groups.encode()), groups.groups.len())
    }

    fn subtract(&self, groups: &Groups, batch: &CallBatch) -> Result<Vec<Bytes>, ModuleFault> {
        let bytes = batch.encode(fields::<M>())?;
        accumulators(glue::subtract(&self.module, &groups.encode(), &bytes), groups.groups.len())
    }

    fn close(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        let answer = glue::close(&self.module, &groups.encode()).map_err(fault)?;
        Ok(decode_values(answer.into(), groups.groups.len(), &limits())?)
    }

    fn migrate(&self, from_version: u32, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        accumulators(glue::migrate(&self.module, from_version, &groups.encode()), groups.groups.len())
    }
}

fn accumulators(answer: glue::Answer, expected: usize) -> Result<Vec<Bytes>, ModuleFault> {
    Ok(decode_accumulators(answer.map_err(fault)?.into(), expected, &limits())?)
}

impl Partitioner for Guest<Everything> {
    fn partition(&self, keys: &[Option<&[u8]>], partition_count: u32) -> Vec<PartitionIndex> {
        let topic = TopicName::new("t").expect("a name");
        let records: Vec<_> = keys
            .iter()
            .map(|key| KeyRecord { timestamp: Timestamp(0), key: *key, value: None, headers: &[] })
            .collect();
        let moment = Moment { time: Timestamp(0), seed: 1 };
        let bytes = Keys { topic: &topic, moment, records: &records }.encode(fields::<Everything>());
        let placed = glue::partition(&self.module, &bytes, partition_count).map_err(fault).expect("an answer");
        placed.into_iter().map(PartitionIndex).collect()
    }
}

#[test]
fn modules_keep_the_duties_of_the_brokers_traits() {
    conformance::transform(&Guest { module: ALL, filters: true });
    conformance::transform(&Guest { module: ALL, filters: false });
    conformance::transform(&Guest { module: Bare, filters: false });
    conformance::aggregator(&Guest { module: ALL, filters: false });
    conformance::aggregator(&Guest { module: Bare, filters: false });
    conformance::partitioner(&Guest { module: ALL, filters: false });
}
