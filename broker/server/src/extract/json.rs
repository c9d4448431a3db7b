//! A body that is one of our own objects, read strictly.

use axum::extract::{FromRequest, Request};
use levada_api::media::JSON;
use levada_api::strict;
use serde::de::DeserializeOwned;

use crate::AppState;
use crate::extract::{BodyBytes, content_type, unsupported_media_type};
use crate::refusal::Refusal;

/// A body of `application/json` (or another type that ends in `+json`).
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        let is_json = content_type(request.headers()).is_some_and(|media| media == JSON || media.ends_with("+json"));
        if !is_json {
            return Err(unsupported_media_type(request.headers(), &[JSON]).into());
        }
        let BodyBytes(body) = BodyBytes::from_request(request, state).await?;
        Ok(Self(strict::from_json(&body)?))
    }
}
