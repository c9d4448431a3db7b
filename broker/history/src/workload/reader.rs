//! Readers, who begin anew now and then, and the last look at everything.

use levada_model::{GroupName, Offset};

use super::{Workload, until_answered};
use crate::broker::{Broker, Refusal};
use crate::dice::Dice;
use crate::event::{Event, Life, Look, Partition, Read, View};

impl<B: Broker> Workload<B> {
    /// Reads a partition as it grows, and from its beginning again after each crash and now and then. Ends when the load
    /// is stopped.
    pub async fn read(&self, view: View, partition: &Partition, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut from = Offset(0);
        while !self.is_stopped() {
            match self.read_once(view, partition, from).await {
                Ok(next) if next > from && dice.falls(2) => from = Offset(0),
                Ok(next) => from = next,
                Err(Refusal::Unknown) => from = Offset(0),
                Err(Refusal::Later) => (),
                Err(other) => return self.unexpected(format!("{partition} from {from}: {other:?}")),
            }
        }
    }

    /// Reads on from an offset; where to go on.
    async fn read_once(&self, view: View, partition: &Partition, from: Offset) -> Result<Offset, Refusal> {
        let asked = self.history.now();
        let found = self.broker.read(view, partition, from).await?;
        let next = found.next;
        if next > from {
            self.history.note(Event::Read(Read {
                asked,
                view,
                partition: partition.clone(),
                from,
                records: found.records,
                next,
                marks: Some(found.marks),
            }));
        }
        Ok(next)
    }

    /// Asks for a group's offset.
    pub(super) async fn look(&self, group: &GroupName) {
        let (asked, partition) = (self.history.now(), self.setting.source.clone());
        match self.broker.group_offset(group, &partition).await {
            Ok(offset) => self.history.note(Event::Looked(Look { asked, group: group.clone(), partition, offset })),
            Err(Refusal::Unknown | Refusal::Later) => (),
            Err(other) => self.unexpected(format!("the offset of {group}: {other:?}")),
        }
    }

    /// After the load was stopped and its tasks have ended: lets every producer start once more, so that nothing is open,
    /// and reads everything to the end.
    pub async fn settle(&self, producers: u32) {
        for producer in 0..producers {
            self.start(Life { producer, number: u32::MAX }).await;
        }
        self.read_to_end().await;
    }

    /// The last look alone, where the load does not come to an end.
    pub async fn read_to_end(&self) {
        self.history.note(Event::Settled);
        for partition in &self.setting.partitions {
            for view in [View::Committed, View::Uncommitted] {
                let mut from = Offset(0);
                loop {
                    match until_answered(|| self.read_once(view, partition, from)).await {
                        Ok(next) if next > from => from = next,
                        Ok(_) => break,
                        Err(error) => {
                            self.unexpected(format!("{partition} from {from}: {error:?}"));
                            break;
                        }
                    }
                }
            }
        }
        for group in &self.setting.groups {
            self.look(group).await;
        }
    }
}
