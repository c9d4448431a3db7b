//! Keeps each tenant on a few partitions, so that a loud one disturbs few others (shuffle sharding), and gives chosen tenants
//! partitions by hand. The tenant is what stands in the key before a separator; the whole key says which of the tenant's
//! partitions it is, so that equal keys stay together. Records without a key go where the broker would place them.

use std::collections::HashMap;

use levada_plugin::{Fields, KeyRecord, Module, Partitioner, default_partition, murmur2};
use serde::Deserialize;

/// The partitioner, and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StickyTenant {
    /// What stands behind the tenant in a key; a key without it is a tenant.
    #[serde(default = "colon")]
    separator: String,
    /// How many partitions a tenant has.
    #[serde(default = "one")]
    spread: u32,
    /// The partitions of some tenants; of them, those that the topic has count.
    #[serde(default)]
    pinned: HashMap<String, Vec<u32>>,
}

fn colon() -> String {
    ":".to_owned()
}

fn one() -> u32 {
    1
}

impl Module for StickyTenant {
    type Config = Self;
    const FIELDS: Fields = Fields::KEY;
    const CONFIG_SCHEMA: Option<&'static str> = Some(include_str!("../config.schema.json"));

    fn new(config: Self) -> Result<Self, String> {
        match &config {
            Self { spread: 0, .. } => Err("spread is at least 1".to_owned()),
            Self { separator, .. } if separator.is_empty() => Err("separator is empty".to_owned()),
            _ => Ok(config),
        }
    }
}

impl Partitioner for StickyTenant {
    fn partition(&self, record: &KeyRecord<'_>, partition_count: u32) -> u32 {
        let Some(key) = record.key else { return default_partition(record, partition_count) };
        let separator = self.separator.as_bytes();
        let end = key.windows(separator.len()).position(|part| part == separator).unwrap_or(key.len());
        let tenant = &key[..end];
        if let Some(partition) = self.pinned_partition(tenant, key, partition_count) {
            return partition;
        }
        let place = u64::from(hash(key) % self.spread);
        let partition = (u64::from(hash(tenant)) + place) % u64::from(partition_count);
        u32::try_from(partition).expect("it is below the count")
    }
}

impl StickyTenant {
    fn pinned_partition(&self, tenant: &[u8], key: &[u8], partition_count: u32) -> Option<u32> {
        let pinned = self.pinned.get(std::str::from_utf8(tenant).ok()?)?;
        let there: Vec<u32> = pinned.iter().copied().filter(|partition| *partition < partition_count).collect();
        let place = hash(key).checked_rem(u32::try_from(there.len()).expect("a config is small"))?;
        Some(there[place as usize])
    }
}

/// Without the lowest bits' habits: tenant and key are hashed alike, and the remainders of both are added up.
fn hash(bytes: &[u8]) -> u32 {
    murmur2(bytes) >> 1
}

levada_plugin::export!(StickyTenant: partitioner);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use levada_plugin::testing::{TestRecord, module, partition};

    use super::StickyTenant;

    fn placed(config: &str, keys: impl IntoIterator<Item = String>, partition_count: u32) -> Vec<u32> {
        let records: Vec<_> = keys.into_iter().map(|key| TestRecord::new(key, "v")).collect();
        partition(&module::<StickyTenant>(config).expect("a config"), &records, partition_count)
    }

    fn of_tenant(tenant: &str) -> impl Iterator<Item = String> {
        (0..500).map(move |n| format!("{tenant}:{n}"))
    }

    #[test]
    fn a_tenant_has_as_many_partitions_as_the_spread_says() {
        for spread in [1, 2, 5] {
            let config = format!(r#"{{"spread":{spread}}}"#);
            for tenant in ["acme", "globex", "ümlaut", ""] {
                let used: BTreeSet<_> = placed(&config, of_tenant(tenant), 12).into_iter().collect();
                assert_eq!(used.len(), spread, "{tenant}");
            }
        }
        let all: BTreeSet<_> = placed(r#"{"spread":9}"#, of_tenant("acme"), 3).into_iter().collect();
        assert_eq!(all.len(), 3, "no more than there are");
    }

    #[test]
    fn equal_keys_stay_together_and_tenants_apart() {
        let config = r#"{"spread":3}"#;
        assert_eq!(placed(config, of_tenant("acme"), 12), placed(config, of_tenant("acme"), 12));
        let starts = placed("{}", (0..200).map(|tenant| format!("tenant-{tenant}")), 12);
        assert_eq!(starts.into_iter().collect::<BTreeSet<_>>().len(), 12);
    }

    #[test]
    fn a_pinned_tenant_has_its_partitions_as_far_as_they_are_there() {
        let config = r#"{"separator":"/","pinned":{"acme":[4,7,99],"globex":[99]}}"#;
        let keys = |tenant: &'static str| (0..100).map(move |n| format!("{tenant}/{n}"));
        let used: BTreeSet<_> = placed(config, keys("acme"), 12).into_iter().collect();
        assert_eq!(used, BTreeSet::from([4, 7]));
        let used: BTreeSet<_> = placed(config, keys("globex"), 12).into_iter().collect();
        assert_eq!(used.len(), 1, "as if it were not pinned");
    }

    #[test]
    fn records_without_a_key_are_placed_as_the_broker_would() {
        let sticky: StickyTenant = module("{}").expect("a config");
        assert_eq!(partition(&sticky, &[TestRecord::default()], 5), [2]);
    }

    #[test]
    fn a_config_that_cannot_be_is_refused() {
        for config in [r#"{"spread":0}"#, r#"{"separator":""}"#, r#"{"spread":-1}"#, r#"{"tenants":1}"#] {
            assert!(module::<StickyTenant>(config).is_err(), "{config}");
        }
    }
}
