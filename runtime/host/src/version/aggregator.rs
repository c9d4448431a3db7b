//! A module as aggregator.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{Aggregator, AnswerLimits, CallBatch, Groups, ModuleFault, decode_accumulators, decode_values};

use super::{Call, Extension, fits};
use crate::contract::{AggregatorExports, Exports};

struct ModuleAggregator {
    extension: Extension,
}

pub(super) fn aggregator(extension: Extension) -> Arc<dyn Aggregator> {
    Arc::new(ModuleAggregator { extension })
}

impl Aggregator for ModuleAggregator {
    fn state_version(&self) -> u32 {
        self.extension.version.description.state_version
    }

    fn fold(&self, groups: &Groups, batch: &CallBatch, each_record: bool) -> Result<Vec<Bytes>, ModuleFault> {
        let ((groups_bytes, _), (bytes, call)) = (encoded(groups)?, self.extension.encoded(batch)?);
        let (answer,) = self
            .extension
            .ask(call, move |store, exports| exported(exports).fold.call(store, (groups_bytes, bytes, each_record)))?;
        self.accumulators(answer?, groups.fold_answers(each_record))
    }

    fn result(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        let (bytes, call) = encoded(groups)?;
        let ask = move |store: &mut _, exports: &Exports| exported(exports).result.call(store, (bytes,));
        let (answer,) = self.extension.ask(call, ask)?;
        self.values(answer?, groups)
    }

    fn merge(&self, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        let (bytes, call) = encoded(groups)?;
        let ask = move |store: &mut _, exports: &Exports| exported(exports).merge.call(store, (bytes,));
        let (answer,) = self.extension.ask(call, ask)?;
        self.accumulators(answer?, groups.groups.len())
    }

    fn subtract(&self, groups: &Groups, batch: &CallBatch) -> Result<Vec<Bytes>, ModuleFault> {
        let ((groups_bytes, _), (bytes, call)) = (encoded(groups)?, self.extension.encoded(batch)?);
        let (answer,) = self
            .extension
            .ask(call, move |store, exports| exported(exports).subtract.call(store, (groups_bytes, bytes)))?;
        self.accumulators(answer?, groups.groups.len())
    }

    fn close(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        let (bytes, call) = encoded(groups)?;
        let ask = move |store: &mut _, exports: &Exports| exported(exports).close.call(store, (bytes,));
        let (answer,) = self.extension.ask(call, ask)?;
        self.values(answer?, groups)
    }

    fn migrate(&self, from_version: u32, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        let (bytes, call) = encoded(groups)?;
        let (answer,) = self
            .extension
            .ask(call, move |store, exports| exported(exports).migrate.call(store, (from_version, bytes)))?;
        self.accumulators(answer?, groups.groups.len())
    }
}

impl ModuleAggregator {
    fn accumulators(&self, answer: Vec<u8>, expected: usize) -> Result<Vec<Bytes>, ModuleFault> {
        self.extension.checked(decode_accumulators(answer.into(), expected, &AnswerLimits::default()))
    }

    fn values(&self, answer: Vec<u8>, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        let expected = groups.groups.len();
        self.extension.checked(decode_values(answer.into(), expected, &AnswerLimits::default()))
    }
}

/// Groups as the module is given them, and the call for them.
fn encoded(groups: &Groups) -> Result<(Vec<u8>, Call), ModuleFault> {
    let bytes = groups.encode();
    fits(bytes.len())?;
    Ok((bytes, Call::of_records(groups.moment, groups.groups.len())))
}

fn exported(exports: &Exports) -> &AggregatorExports {
    exports.aggregator.as_ref().expect("found in every instance alike")
}
