//! The main thread of a daemon while its shards run: signals, reloads and a clock.

use crate::{ServeError, SignalEvent, SignalListener, notify};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
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
/// before systemd learns that the service is ready; its error ends the service. From the return on, a signal to end
/// stops the program at once. A reload that is under way does not delay the return: it must keep nothing alive that
/// the end needs to drop.
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
        let mut signals = signals()?;
        let stopped = match started() {
            Ok(()) => {
                signals.notify_systemd(notify::notify_ready);
                Ok(handle_signals(&mut signals, shards, tasks).await)
            }
            Err(error) => Err(error),
        };
        signals.notify_systemd(notify::notify_stopping);
        if let ServiceSignals::Process(signals) = signals {
            signals.exit_on_next_signal();
        }
        stopped
    });
    runtime.shutdown_background();
    stopped
}

async fn handle_signals(
    signals: &mut ServiceSignals,
    shards: &[Shard<io::Result<()>>],
    tasks: ServiceTasks,
) -> StopReason {
    let ServiceTasks { reload, mut tick } = tasks;
    let reload = Arc::new(Mutex::new(reload));
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    // After a pause of the machine, the missed seconds are not made up for.
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reloading: Option<oneshot::Receiver<()>> = None;
    let mut again = false;
    loop {
        tokio::select! {
            _ = seconds.tick() => {
                if shards.iter().any(Shard::is_finished) {
                    return StopReason::ShardEnded;
                }
                tick();
            }
            event = signals.next() => match event {
                SignalEvent::End => return StopReason::Signal,
                SignalEvent::Reload if reloading.is_some() => again = true,
                SignalEvent::Reload => reloading = Some(start_reload(signals, &reload)),
            },
            ended = poll_fn(|waker| {
                reloading.as_mut().map_or(Poll::Pending, |reload| Pin::new(reload).poll(waker))
            }) => {
                if ended.is_err() {
                    tracing::error!("the reload has failed");
                }
                signals.notify_systemd(notify::notify_ready);
                reloading = std::mem::take(&mut again).then(|| start_reload(signals, &reload));
            }
        }
    }
}

/// Starts a reload on a thread of its own. The receiver gets its end, or an error if it panics or cannot start.
fn start_reload(
    signals: &ServiceSignals,
    reload: &Arc<Mutex<Box<dyn FnMut() + Send>>>,
) -> oneshot::Receiver<()> {
    signals.notify_systemd(notify::notify_reloading);
    let (reload, (ended, receiver)) = (reload.clone(), oneshot::channel());
    let body = move || {
        (reload.lock().unwrap_or_else(PoisonError::into_inner))();
        // The receiver may have gone: the service ends.
        let _ = ended.send(());
    };
    if let Err(error) = std::thread::Builder::new().name("usher-reload".to_owned()).spawn(body) {
        tracing::error!(%error, "cannot start a thread for the reload");
    }
    receiver
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
    fn after_a_reload_that_panics_the_next_one_runs() {
        let (to_service, signals) = unbounded_channel();
        let (begun, begins) = channel();
        let mut first = true;
        let reload = move || {
            begun.send(()).unwrap();
            assert!(!std::mem::take(&mut first), "the first reload panics");
        };
        let tasks = ServiceTasks { reload: Box::new(reload), tick: Box::new(|| ()) };
        let signals = || Ok(ServiceSignals::Embedded(signals));
        let service = std::thread::spawn(|| {
            run_until_stopped::<ServeError>(start_runtime()?, signals, &[], || Ok(()), tasks)
        });
        to_service.send(SignalEvent::Reload).unwrap();
        begins.recv().unwrap();
        to_service.send(SignalEvent::Reload).unwrap();
        begins.recv().unwrap();
        to_service.send(SignalEvent::End).unwrap();
        assert_eq!(service.join().unwrap().unwrap(), StopReason::Signal);
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
