//! A thread for each shard.

use crate::mmsg;
use std::io;
use std::thread::{self, JoinHandle};
use tokio::runtime::Builder;

/// The error of a shard that did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start shard {name}: no {what}: {error}")]
pub struct ShardStartError {
    /// The shard's name.
    pub name: String,
    /// The missing resource: the thread, the requested processor, or the runtime.
    pub what: &'static str,
    /// The system's error.
    pub error: io::Error,
}

/// A shard's thread.
#[derive(Debug)]
pub struct Shard<T>(JoinHandle<Option<T>>);

impl<T> Shard<T> {
    /// Waits for the end of the future.
    ///
    /// # Errors
    /// The thread panicked; the error is the panic's payload.
    pub fn join(self) -> thread::Result<T> {
        match self.0.join() {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(Box::new("the shard did not start")),
            Err(panic) => Err(panic),
        }
    }

    /// True if the future has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Runs a future, usually [`Driver::run`](crate::Driver::run), on a thread with this name and a runtime of its
/// own. `core` binds it to that processor (counted from 0). The new thread creates the future, so it need not be
/// `Send`.
///
/// # Errors
/// No thread, no such processor, or no runtime. The future was not created then.
pub fn spawn_shard<F, T>(
    name: &str,
    core: Option<usize>,
    body: impl FnOnce() -> F + Send + 'static,
) -> Result<Shard<T>, ShardStartError>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let failed = |what, error| ShardStartError { name: name.to_owned(), what, error };
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let work = move || {
        let begin = || {
            core.map_or(Ok(()), mmsg::pin_thread).map_err(|e| ("such processor", e))?;
            // Poll the sockets after every few steps: otherwise a busy driver would keep its connections waiting.
            let mut builder = Builder::new_current_thread();
            builder.enable_all().event_interval(7).build().map_err(|e| ("runtime", e))
        };
        let (runtime, said) = match begin() {
            Ok(runtime) => (Some(runtime), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // A send error is ignored: the caller always waits for this result.
        let _ = ready.send(said);
        Some(runtime?.block_on(body()))
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|e| failed("thread", e))?;
    match started.recv() {
        Ok(Ok(())) => Ok(Shard(thread)),
        Ok(Err((what, error))) => Err(failed(what, error)),
        Err(_) => Err(failed("thread", io::Error::other("it ended at once"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_runs_on_the_processor_asked_for() {
        let shard = spawn_shard("usher-0", Some(0), || async { thread::current().name().map(str::to_owned) });
        let name = shard.expect("processor 0 exists").join().expect("it did not panic");
        assert_eq!(name.as_deref(), Some("usher-0"));
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        let error = spawn_shard("far", Some(100_000), || async {}).expect_err("there are fewer processors");
        assert_eq!((error.name.as_str(), error.what), ("far", "such processor"));
    }
}
