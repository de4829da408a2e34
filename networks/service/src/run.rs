//! The main thread of a daemon while its shards run: signals, reloads and a clock.

use crate::{ServeError, SignalEvent, SignalListener, notify};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use usher_live::Shard;

/// The source of reload and stop signals.
#[derive(Debug)]
pub enum ServiceSignals {
    /// Signals of this process.
    Process(SignalListener),
    /// The program that embeds this service.
    Embedded(UnboundedReceiver<SignalEvent>),
}

impl ServiceSignals {
    /// Listens to the signals of the process. Needs a runtime.
    ///
    /// # Errors
    /// An error of the system.
    pub fn listen_for_process_signals() -> Result<Self, ServeError> {
        let signals = SignalListener::start_listening();
        signals.map(Self::Process).map_err(|error| ServeError::system("cannot listen for signals", error))
    }

    async fn next(&mut self) -> SignalEvent {
        match self {
            Self::Process(signals) => signals.next().await,
            // If the channel is closed, the embedding program has ended, and so does the service.
            Self::Embedded(told) => told.recv().await.unwrap_or(SignalEvent::End),
        }
    }

    /// Notifies systemd, if this process is the service.
    fn notify_systemd(&self, tell: fn()) {
        if matches!(self, Self::Process(_)) {
            tell();
        }
    }
}

/// The tasks of the main thread while the shards run.
pub struct ServiceTasks {
    /// Reloads the configuration, on a thread of its own. A signal during a reload causes another one, because it may
    /// concern a file that was already read.
    pub reload: Box<dyn FnMut() + Send>,
    /// Runs on the main thread each second. It must not block.
    pub tick: Box<dyn FnMut() + Send>,
}

impl std::fmt::Debug for ServiceTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServiceTasks")
    }
}

/// The reason why a service stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// A signal.
    Signal,
    /// A shard has ended by itself.
    ShardEnded,
}

/// Creates the runtime of the main thread.
///
/// # Errors
/// An error of the system.
pub fn start_runtime() -> Result<Runtime, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ServeError::system("cannot start the asynchronous runtime", error))
}

/// Runs until a signal ends the service, or one of its shards ends. `started` is called once signals are received,
/// before systemd learns that the service is ready; its error ends the service. A second signal to end stops the
/// program at once. A reload that is under way does not delay the return.
///
/// # Errors
/// Signals cannot be received, or the error of `started`.
pub fn run_until_stopped<E: From<ServeError>>(
    runtime: Runtime,
    signals: impl FnOnce() -> Result<ServiceSignals, ServeError>,
    shards: &[Shard<io::Result<()>>],
    started: impl FnOnce() -> Result<(), E>,
    tasks: ServiceTasks,
) -> Result<StopReason, E> {
    let stopped = runtime.block_on(async {
        let signals = signals()?;
        started()?;
        signals.notify_systemd(notify::notify_ready);
        Ok(handle_signals(signals, shards, tasks).await)
    });
    runtime.shutdown_background();
    stopped
}

async fn handle_signals(
    mut signals: ServiceSignals,
    shards: &[Shard<io::Result<()>>],
    tasks: ServiceTasks,
) -> StopReason {
    let ServiceTasks { reload, mut tick } = tasks;
    let reload = Arc::new(Mutex::new(reload));
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    let mut reloading: Option<tokio::task::JoinHandle<()>> = None;
    let mut again = false;
    loop {
        let reload_now = |signals: &ServiceSignals| {
            signals.notify_systemd(notify::notify_reloading);
            let reload = reload.clone();
            Some(tokio::task::spawn_blocking(move || {
                (reload.lock().unwrap_or_else(PoisonError::into_inner))()
            }))
        };
        tokio::select! {
            _ = seconds.tick() => {
                if shards.iter().any(Shard::is_finished) {
                    return StopReason::ShardEnded;
                }
                tick();
            }
            event = signals.next() => match event {
                SignalEvent::End => break,
                SignalEvent::Reload if reloading.is_some() => again = true,
                SignalEvent::Reload => reloading = reload_now(&signals),
            },
            // A reload that panics has ended, too.
            _ = poll_fn(|waker| reloading.as_mut().map_or(std::task::Poll::Pending, |reload| {
                std::pin::Pin::new(reload).poll(waker).map(drop)
            })) => {
                signals.notify_systemd(notify::notify_ready);
                reloading = if std::mem::take(&mut again) { reload_now(&signals) } else { None };
            }
        }
    }
    signals.notify_systemd(notify::notify_stopping);
    if let ServiceSignals::Process(signals) = signals {
        signals.exit_on_next_signal();
    }
    StopReason::Signal
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn a_signal_during_a_reload_causes_another_one() {
        let (to_service, signals) = unbounded_channel();
        let (begun, begins) = channel();
        let (permit, permitted) = channel::<()>();
        let reload = move || {
            begun.send(()).unwrap();
            // The end of the test permits the rest.
            let _ = permitted.recv();
        };
        let tasks = ServiceTasks { reload: Box::new(reload), tick: Box::new(|| ()) };
        let signals = || Ok(ServiceSignals::Embedded(signals));
        let service = std::thread::spawn(|| {
            run_until_stopped::<ServeError>(start_runtime()?, signals, &[], || Ok(()), tasks)
        });
        to_service.send(SignalEvent::Reload).unwrap();
        begins.recv().unwrap();
        // Two signals during a reload are one.
        to_service.send(SignalEvent::Reload).unwrap();
        to_service.send(SignalEvent::Reload).unwrap();
        permit.send(()).unwrap();
        begins.recv().unwrap();
        permit.send(()).unwrap();
        // The end waits for no reload.
        to_service.send(SignalEvent::Reload).unwrap();
        begins.recv().unwrap();
        to_service.send(SignalEvent::End).unwrap();
        assert_eq!(service.join().unwrap().unwrap(), StopReason::Signal);
        drop(permit);
        assert!(begins.recv().is_err(), "no further reload has begun");
    }

    #[test]
    fn a_service_whose_start_fails_or_whose_program_has_gone_ends() {
        let tasks = || ServiceTasks { reload: Box::new(|| ()), tick: Box::new(|| ()) };
        let embedded = || Ok(ServiceSignals::Embedded(unbounded_channel().1));
        let failed = || Err(ServeError::system("cannot", io::ErrorKind::Other.into()));
        let runtime = || start_runtime().unwrap();
        assert!(run_until_stopped(runtime(), embedded, &[], failed, tasks()).is_err());
        let ended = run_until_stopped::<ServeError>(runtime(), embedded, &[], || Ok(()), tasks());
        assert_eq!(ended.unwrap(), StopReason::Signal);
    }
}
