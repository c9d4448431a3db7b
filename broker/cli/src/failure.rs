//! How a failed command ends: what it says, and its exit code.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use levada_api::ErrorCode;
use levada_client::ClientError;

use crate::output::note;

/// The command line or the configuration is wrong, so nothing was tried.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Says what went wrong; a reader that closed its pipe has got what it wanted.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    match error.chain().find_map(client_error) {
        // Its text says it all; below it are only the library's words.
        Some(known) => note(format!("error: {}{known}", before(error))),
        None => note(format!("error: {error:#}")),
    }
    if let Some(hint) = hint(error) {
        note(format!("hint: {hint}"));
    }
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

/// The client's error, also where several records share it.
fn client_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a ClientError> {
    let shared = || cause.downcast_ref::<Arc<ClientError>>().map(Arc::as_ref);
    cause.downcast_ref::<ClientError>().or_else(shared)
}

/// What was being done when the client's error came.
fn before(error: &anyhow::Error) -> String {
    error.chain().take_while(|cause| client_error(*cause).is_none()).map(|cause| format!("{cause}: ")).collect()
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    match error.chain().find_map(client_error)? {
        ClientError::Unreachable { .. } => Some("another address is named by --url or LEVADA_URL"),
        ClientError::Unexpected { .. } => Some("is that address a Levada server of the same version?"),
        ClientError::Refused { problem, .. } => match problem.code {
            ErrorCode::TopicNotFound => {
                Some("`levada topic list` shows what there is, `levada topic create NAME` makes one")
            }
            ErrorCode::PartitionNotFound => Some("`levada topic describe NAME` shows its partitions"),
            ErrorCode::OffsetOutOfRange | ErrorCode::OffsetBeyondEnd => {
                Some("`levada topic describe NAME` shows first and last offsets")
            }
            ErrorCode::TransactionNotFound => Some("`levada transaction list` shows what is open"),
            ErrorCode::ModuleNotFound => Some("`levada module list` shows what there is"),
            ErrorCode::ProcessorNotFound => Some("`levada processor list` shows what there is"),
            ErrorCode::ProcessorRunning => Some("`levada processor pause NAME` has it stand still"),
            ErrorCode::GroupNotFound => Some("`levada group list` shows what there is"),
            ErrorCode::GroupNotEmpty => Some("stop its members first; `levada group describe NAME` shows them"),
            _ => None,
        },
        _ => None,
    }
}
