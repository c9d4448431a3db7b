//! A module with a config, called from async code: the call runs on a thread of the host, and always asks the version that
//! the name means at that moment.

use std::sync::Arc;
use std::time::Duration;

use levada_extension::{
    Assignor, ModuleBusy, ModuleConfigError, ModuleDigest, ModuleFault, ModuleVersion, Partitioner, Transform,
};
use levada_model::{ModuleRef, limits};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{ModuleError, Modules};

/// What a module can be asked as.
pub(crate) trait Made: Send + Sync + 'static {
    /// Makes it of a version of a module. Blocks.
    fn make(version: &dyn ModuleVersion, module: &ModuleRef, config: &str) -> Result<Arc<Self>, ModuleConfigError>;
}

impl Made for dyn Partitioner {
    fn make(version: &dyn ModuleVersion, _: &ModuleRef, config: &str) -> Result<Arc<Self>, ModuleConfigError> {
        version.partitioner(config)
    }
}

impl Made for dyn Transform {
    fn make(version: &dyn ModuleVersion, _: &ModuleRef, config: &str) -> Result<Arc<Self>, ModuleConfigError> {
        version.transform(config)
    }
}

impl Made for dyn Assignor {
    fn make(version: &dyn ModuleVersion, module: &ModuleRef, config: &str) -> Result<Arc<Self>, ModuleConfigError> {
        version.assignor(&format!("module:{module}"), config)
    }
}

/// A module, as one thing and with a config.
pub(crate) struct Extension<E: ?Sized> {
    module: ModuleRef,
    config: Box<str>,
    /// What was made last, and of which bytes.
    made: Mutex<Option<(ModuleDigest, Arc<E>)>>,
}

impl<E: Made + ?Sized> Extension<E> {
    pub(crate) fn new(module: ModuleRef, config: &str) -> Self {
        Self { module, config: config.into(), made: Mutex::default() }
    }

    pub(crate) fn module(&self) -> &ModuleRef {
        &self.module
    }

    /// Makes it of the version that is meant now, to see whether that can be. Answers which that is.
    pub(crate) async fn check(self: &Arc<Self>, modules: &Arc<Modules>) -> Result<ModuleDigest, ModuleError> {
        let version = modules.version(&self.module).await?;
        let digest = version.describe().digest;
        let this = self.clone();
        let made = run(&version.clone(), move || this.make(&*version).map(drop)).await;
        let made = made.map_err(|busy| ModuleError::Busy(busy.reason))?;
        made.map_err(|error| super::changes::config_error(self.module.clone(), error))?;
        Ok(digest)
    }

    /// Calls it on a thread of the host.
    ///
    /// # Errors
    /// Also when there is no such module any more, or it cannot be loaded; and [`ModuleFault::Busy`] when it is not done after
    /// `MODULE_WAIT_MS_MAX`: its own deadlines count what it computes, not how long it waits for others.
    pub(crate) async fn call<R: Send + 'static>(
        self: &Arc<Self>,
        modules: &Arc<Modules>,
        call: impl FnOnce(&E) -> Result<R, ModuleFault> + Send + 'static,
    ) -> Result<R, ModuleFault> {
        let this = self.clone();
        let answer = async move {
            let version = modules.version(&this.module).await.map_err(|error| fault(&error))?;
            run(&version.clone(), move || call(&*this.make(&*version)?)).await?
        };
        let wait = Duration::from_millis(limits::MODULE_WAIT_MS_MAX);
        match timeout(wait, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(ModuleBusy { reason: format!("it was not done after {} ms", wait.as_millis()) }.into()),
        }
    }

    /// Makes it of a version. Blocks, so it belongs on a thread of the host.
    pub(crate) fn make(&self, version: &dyn ModuleVersion) -> Result<Arc<E>, ModuleConfigError> {
        let digest = version.describe().digest;
        if let Some((of, made)) = &*self.made.lock()
            && *of == digest
        {
            return Ok(made.clone());
        }
        let made = E::make(version, &self.module, &self.config)?;
        *self.made.lock() = Some((digest, made.clone()));
        Ok(made)
    }
}

/// Runs a job on a thread of the host, and waits for what it gives. Not if nobody waits any more when its turn comes.
pub(crate) async fn run<R: Send + 'static>(
    version: &Arc<dyn ModuleVersion>,
    job: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ModuleBusy> {
    let (sender, answer) = oneshot::channel();
    let job = move || {
        if !sender.is_closed() {
            drop(sender.send(job()));
        }
    };
    version.run(Box::new(job))?;
    answer.await.map_err(|_| ModuleBusy { reason: "the host ended before the call".to_owned() })
}

/// Why a module cannot be called at all, as a fault of the call. Not that the host is busy, though it may be the host that
/// cannot load it: that does not pass by itself.
fn fault(error: &ModuleError) -> ModuleFault {
    ModuleFault::Failed { reason: error.to_string() }
}
