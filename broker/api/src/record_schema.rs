//! The shapes of records and of what they come in, for the OpenAPI document. `record_in` reads and `record_out` writes
//! them without ever building these; the server's contract test holds the answers against these words.

use levada_model::limits::{JSON_INTEGER_MAX, RECORD_HEADERS_MAX};
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, SchemaType, Type};
use utoipa::openapi::{ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::transactions::TransactionOffsets;

/// A produce of several records.
#[derive(Debug)]
pub struct ProduceBody;

impl ToSchema for ProduceBody {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ProduceRecord::name().into_owned(), ProduceRecord::schema()));
    }
}

impl PartialSchema for ProduceBody {
    fn schema() -> RefOr<Schema> {
        let record = Ref::from_schema_name(ProduceRecord::name());
        closed("Records to store, all or none")
            .property("records", ArrayBuilder::new().items(RefOr::Ref(record)).min_items(Some(1)))
            .required("records")
            .into()
    }
}

/// A record to store: one of `value`, `value_text` and `value_base64`, and at most one of `key` and `key_base64`.
#[derive(Debug)]
pub struct ProduceRecord;

impl ToSchema for ProduceRecord {}

impl PartialSchema for ProduceRecord {
    fn schema() -> RefOr<Schema> {
        record_forms("A record to store", |form| form)
    }
}

/// A record of a whole transaction: a record to store, with its topic.
#[derive(Debug)]
pub struct ExecuteRecord;

impl ToSchema for ExecuteRecord {}

impl PartialSchema for ExecuteRecord {
    fn schema() -> RefOr<Schema> {
        let topic = || text("Its topic");
        record_forms("A record to store, with its topic", |form| form.property("topic", topic()).required("topic"))
    }
}

/// A whole transaction.
#[derive(Debug)]
pub struct ExecuteBody;

impl ToSchema for ExecuteBody {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ExecuteRecord::name().into_owned(), ExecuteRecord::schema()));
        schemas.push((TransactionOffsets::name().into_owned(), TransactionOffsets::schema()));
        TransactionOffsets::schemas(schemas);
    }
}

impl PartialSchema for ExecuteBody {
    fn schema() -> RefOr<Schema> {
        let record = Ref::from_schema_name(ExecuteRecord::name());
        let offsets = Ref::from_schema_name(TransactionOffsets::name());
        let nothing = ObjectBuilder::new().schema_type(Type::Null);
        closed("Records to store and offsets to commit, all or none; one of the two at least")
            .property("records", ArrayBuilder::new().items(RefOr::Ref(record)))
            .property("group_offsets", OneOfBuilder::new().item(nothing).item(RefOr::<Schema>::Ref(offsets)))
            .into()
    }
}

/// A record as it is read: one of `key` and `key_base64`, and one of `value`, `value_text` and `value_base64`.
#[derive(Debug)]
pub struct ReadRecord;

impl ToSchema for ReadRecord {}

impl PartialSchema for ReadRecord {
    fn schema() -> RefOr<Schema> {
        let about = "A record: one of key and key_base64, and one of value, value_text and value_base64";
        read_record(closed(about)).into()
    }
}

/// A record as a group's member reads it: with its topic.
#[derive(Debug)]
pub struct GroupRecord;

impl ToSchema for GroupRecord {}

impl PartialSchema for GroupRecord {
    fn schema() -> RefOr<Schema> {
        let about = "A record with its topic: one of key and key_base64, and one of value, value_text and value_base64";
        read_record(closed(about).property("topic", text("Its topic")).required("topic")).into()
    }
}

/// Offsets that cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, ToSchema)]
pub struct Gap {
    /// The partition.
    pub partition: u32,
    /// First offset that is missing.
    pub from: u64,
    /// The offset after the last one that is missing.
    pub to: u64,
    /// Why.
    pub cause: GapCause,
}

/// Why offsets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GapCause {
    /// Their bytes were damaged.
    Damaged,
    /// Retention or a truncation removed them before they were read.
    Removed,
}

/// A transaction whose records in a read of stored batches count for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, ToSchema)]
pub struct Aborted {
    /// Whose batches.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: u64,
    /// Offset of the marker that ends it.
    pub last_offset: u64,
}

/// A read of one partition.
#[derive(Debug, ToSchema)]
pub struct PartitionRecords {
    /// The records, in order.
    pub records: Vec<ReadRecord>,
    /// Offsets skipped on the way; absent where there are none.
    #[schema(nullable = false)]
    pub gaps: Option<Vec<Gap>>,
    /// Where to go on.
    pub next_offset: u64,
    /// The offset before which readers may read.
    pub high_watermark: u64,
    /// The offset before which `read_committed` readers may read.
    pub last_stable_offset: u64,
    /// First offset there is.
    pub log_start_offset: u64,
}

/// A read of a whole topic.
#[derive(Debug, ToSchema)]
pub struct TopicRecords {
    /// The records, in order within each partition.
    pub records: Vec<ReadRecord>,
    /// Offsets skipped on the way; absent where there are none.
    #[schema(nullable = false)]
    pub gaps: Option<Vec<Gap>>,
    /// Where to go on, for `from`.
    pub cursor: String,
}

/// All forms of a record to store, each completed by `complete`.
fn record_forms(about: &str, complete: impl Fn(ObjectBuilder) -> ObjectBuilder) -> RefOr<Schema> {
    let keys = [
        ("key", text_or_null("Stored as UTF-8; null or absent is the null key").build()),
        ("key_base64", base64("The key's bytes").build()),
    ];
    let values = [
        ("value", json("Any JSON no deeper than 128, stored as the text that was sent; null is a tombstone").build()),
        ("value_text", text("Stored as UTF-8").build()),
        ("value_base64", base64("The value's bytes").build()),
    ];
    let mut forms = OneOfBuilder::new().description(Some(about));
    for (key_name, key) in &keys {
        for (value_name, value) in &values {
            let form = complete(closed(format!("A record with {value_name} and, if anything, {key_name}")))
                .property(*key_name, key.clone())
                .property(*value_name, value.clone())
                .required(*value_name)
                .property("headers", headers())
                .property("timestamp", integer_or_null("Milliseconds since 1970; null: now", JSON_INTEGER_MAX))
                .property("partition", integer_or_null("Null: the partitioner decides", u64::from(u32::MAX)));
            forms = forms.item(if *key_name == "key" { form } else { form.required(*key_name) });
        }
    }
    forms.into()
}

/// The properties of a record that is read, behind those that `record` has.
fn read_record(record: ObjectBuilder) -> ObjectBuilder {
    let timestamp_type = text("The producer's time, or the broker's").enum_values(Some(["create", "append"]));
    let mut record = record
        .property("partition", integer("Its partition"))
        .property("offset", integer("Its offset"))
        .property(
            "timestamp",
            ObjectBuilder::new().schema_type(Type::Integer).description(Some("Milliseconds since 1970")),
        )
        .property("timestamp_type", timestamp_type)
        .property("key", text_or_null("The key's text; null is the null key"))
        .property("key_base64", base64("A key that is not UTF-8"))
        .property("value", json("A value that is JSON, verbatim; null is a tombstone"))
        .property("value_text", text("A value that is other UTF-8"))
        .property("value_base64", base64("A value that is not UTF-8"))
        .property("headers", headers());
    for always in ["partition", "offset", "timestamp", "timestamp_type", "headers"] {
        record = record.required(always);
    }
    record
}

/// An object that has no other properties than those named.
fn closed(description: impl Into<String>) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(description))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
}

fn json(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(description))
}

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn text_or_null(description: &str) -> ObjectBuilder {
    text(description).schema_type(SchemaType::from_iter([Type::String, Type::Null]))
}

fn base64(description: &str) -> ObjectBuilder {
    text(description)
        .content_encoding("base64")
        .pattern(Some("^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"))
}

fn integer(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).description(Some(description)).minimum(Some(0))
}

fn integer_or_null(description: &str, max: u64) -> ObjectBuilder {
    integer(description).schema_type(SchemaType::from_iter([Type::Integer, Type::Null])).maximum(Some(max as f64))
}

fn headers() -> ArrayBuilder {
    let bytes: Object = closed("Bytes that are not UTF-8").property("base64", base64("")).required("base64").build();
    let value = OneOfBuilder::new().item(text_or_null("Text, or null")).item(bytes).build();
    let header = ArrayBuilder::new()
        .prefix_items([Schema::Object(text("The name").build()), Schema::OneOf(value)])
        .items(ArrayItems::False)
        .min_items(Some(2))
        .max_items(Some(2));
    ArrayBuilder::new()
        .description(Some("Each [name, text or null or {\"base64\":…}]; order and repeats are kept"))
        .items(header)
        .max_items(Some(RECORD_HEADERS_MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_to_store_has_one_form_of_value_and_at_most_one_of_key() {
        let schema = serde_json::to_value(ProduceRecord::schema()).expect("a schema is JSON");
        let forms = schema["oneOf"].as_array().expect("forms");
        let required: Vec<_> = forms.iter().map(|form| form["required"].clone()).collect();
        let expected = [
            json!(["value"]),
            json!(["value_text"]),
            json!(["value_base64"]),
            json!(["value", "key_base64"]),
            json!(["value_text", "key_base64"]),
            json!(["value_base64", "key_base64"]),
        ];
        assert_eq!(required, expected);
        for form in forms {
            assert_eq!(form["properties"].as_object().map(serde_json::Map::len), Some(5), "{form}");
            assert_eq!(form["additionalProperties"], json!(false), "{form}");
            assert_eq!(form["properties"]["timestamp"]["maximum"], json!(JSON_INTEGER_MAX), "{form}");
        }
    }
}
