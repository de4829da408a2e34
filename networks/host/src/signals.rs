//! What the system tells a program that serves.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalEvent {
    /// Read the configuration again (SIGHUP).
    Reload,
    /// End (SIGTERM, SIGINT).
    End,
}

/// The signals that a program which serves listens to.
#[derive(Debug)]
pub struct SignalListener {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl SignalListener {
    /// Listens from now on; to be called on a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_listening() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next. Nothing is lost where the waiting is given up.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.terminate.recv() => SignalEvent::End,
            _ = self.interrupt.recv() => SignalEvent::End,
        }
    }

    /// From now on the program ends at once, with code 1, when it is told to end once more.
    pub fn end_by_the_next(mut self) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async { while self.next().await != SignalEvent::End {} });
                std::process::exit(1);
            }
        });
    }
}
