//! A module as transform: by `transform-json` where it has that and the batch can be written so, else by `transform`.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{
    AnswerLimits, CallBatch, ModuleFault, Transform, Verdicts, check_verdicts, decode_json_verdicts, decode_verdicts,
    encode_json,
};

use super::{Call, Extension, fits};
use crate::contract::{Judged, JudgedJson};

struct ModuleTransform {
    extension: Extension,
}

pub(super) fn transform(extension: Extension) -> Arc<dyn Transform> {
    Arc::new(ModuleTransform { extension })
}

impl Transform for ModuleTransform {
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
        let exports = self.extension.version.transforms;
        if exports.json {
            fits(batch.sections.iter().map(|section| section.records.len()).sum())?;
            match encode_json(batch, self.extension.version.description.fields) {
                Ok(records) => return self.by_json(batch, records),
                Err(_) if exports.flat => (),
                Err(error) => return Err(ModuleFault::Failed { reason: error.to_string() }),
            }
        }
        let (bytes, call) = self.extension.encoded(batch)?;
        let (answer,) = self.extension.ask(call, move |store, exports| {
            let transform = exports.transform.as_ref().expect("found in every instance alike");
            transform.call(store, (bytes,))
        })?;
        let records = batch.record_count();
        match answer? {
            Judged::Keep(places) => self.kept(places, records),
            Judged::Each(bytes) => self.each(decode_verdicts(Bytes::from(bytes), records, &AnswerLimits::default())),
        }
    }
}

impl ModuleTransform {
    fn by_json(&self, batch: &CallBatch, records: String) -> Result<Verdicts, ModuleFault> {
        fits(records.len())?;
        let (count, moment) = (batch.record_count(), batch.moment);
        let (answer,) = self.extension.ask(Call::of_records(moment, count), move |store, exports| {
            let transform = exports.transform_json.as_ref().expect("found in every instance alike");
            transform.call(store, (records, moment.time.0, moment.seed))
        })?;
        match answer? {
            JudgedJson::Keep(places) => self.kept(places, count),
            JudgedJson::Each(text) => self.each(decode_json_verdicts(&text, count, &AnswerLimits::default())),
        }
    }

    fn kept(&self, places: Vec<u32>, records: usize) -> Result<Verdicts, ModuleFault> {
        let verdicts = Verdicts::Keep(places);
        self.extension.checked(check_verdicts(&verdicts, records, &AnswerLimits::default()))?;
        Ok(verdicts)
    }

    fn each(
        &self,
        verdicts: Result<Vec<levada_extension::Verdict>, levada_extension::AnswerError>,
    ) -> Result<Verdicts, ModuleFault> {
        self.extension.checked(verdicts).map(Verdicts::Each)
    }
}
