//! `filter=module:NAME` of a read, with `filter_config=JSON`.

use levada_api::{ErrorCode, Problem};
use levada_engine::{Engine, RecordFilter};
use levada_model::{ModuleRef, Principal};

use crate::extract::Params;
use crate::modules::refuse;

/// What a filter takes, in words.
pub(crate) const FILTER_RULE: &str = "module:NAME, or module:NAME@VERSION";

/// A filter that is wanted.
pub(super) struct Wanted {
    module: ModuleRef,
    config: Option<String>,
}

/// Reads `filter=` and `filter_config=`.
pub(super) fn wanted(params: &mut Params) -> Result<Option<Wanted>, Problem> {
    let module = params.value("filter", |text| ModuleRef::in_setting(text).ok_or(FILTER_RULE))?;
    let config = params.text("filter_config");
    match (module, config) {
        (None, Some(_)) => {
            Err(Problem::new(ErrorCode::InvalidParameter, "filter_config is there, and no filter that it could be for"))
        }
        (module, config) => Ok(module.map(|module| Wanted { module, config })),
    }
}

impl Wanted {
    /// The filter itself.
    ///
    /// # Errors
    /// When there is no such module, it is no transform, or does not take the config.
    pub(super) async fn open(&self, engine: &Engine, who: &Principal) -> Result<RecordFilter, Problem> {
        open(engine, who, &self.module, self.config.as_deref()).await
    }
}

/// A filter by a module with its config, which is JSON text.
///
/// # Errors
/// When there is no such module, it is no transform, or does not take the config.
pub(crate) async fn open(
    engine: &Engine,
    who: &Principal,
    module: &ModuleRef,
    config: Option<&str>,
) -> Result<RecordFilter, Problem> {
    engine.record_filter(who, module, config.unwrap_or("{}")).await.map_err(refuse)
}
