//! The signals to a service.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalEvent {
    /// Reload the configuration (SIGHUP).
    Reload,
    /// End (SIGTERM, SIGINT).
    End,
}

/// A listener for the signals to a service.
#[derive(Debug)]
pub struct SignalListener {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl SignalListener {
    /// Starts listening. Needs a runtime.
    ///
    /// # Errors
    /// An error of the system.
    pub fn start_listening() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal. Cancelling the wait loses none.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.terminate.recv() => SignalEvent::End,
            _ = self.interrupt.recv() => SignalEvent::End,
        }
    }

    /// Makes the next signal to end stop the program at once, with code 1.
    pub fn exit_on_next_signal(mut self) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async { while self.next().await != SignalEvent::End {} });
                std::process::exit(1);
            }
        });
    }
}
