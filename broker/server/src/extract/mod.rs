//! What handlers take out of a request, checked: path segments, query parameters, bodies, media types.

mod body;
mod json;
mod media;
mod params;
mod path;
mod unpack;

pub(crate) use body::{BodyBytes, BodyStream, ModuleBytes};
pub(crate) use json::JsonBody;
pub(crate) use media::{accepts, answers_json, content_type, unsupported_media_type};
pub(crate) use params::{NoParams, Params, digits, json_integer, no_value};
pub(crate) use path::{
    FilePath, GroupPath, MemberPath, ModulePath, OffsetPath, PartitionPath, ProcessorPath, TopicPath, TransactionPath,
    VersionPath, transaction,
};
