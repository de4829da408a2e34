//! Logs to standard error, written by a thread of their own, so that a slow reader delays no login.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};
use usher_config::log::{Log, LogFormat, LogLevel};

/// Octets that may wait to be written; beyond it lines are dropped and counted.
const MOST: usize = 4 << 20;

#[derive(Debug, Default)]
struct Queue {
    octets: Vec<u8>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    dropped: AtomicU64,
}

/// Where log lines go.
#[derive(Clone, Debug)]
pub struct Lines(Arc<Shared>);

/// The thread that writes; dropped, it writes what waits and ends.
#[derive(Debug)]
pub struct LogThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Write for Lines {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.octets.len() + octets.len() > MOST {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            let was_empty = queue.octets.is_empty();
            queue.octets.extend_from_slice(octets);
            if was_empty {
                self.0.filled.notify_one();
            }
        }
        Ok(octets.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic of it has nobody left to tell.
            let _ = thread.join();
        }
    }
}

fn write_out(shared: &Shared) {
    loop {
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.octets.is_empty() && !queue.ended {
            queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let octets = std::mem::take(&mut queue.octets);
        let ended = queue.ended;
        drop(queue);
        let mut out = io::stderr().lock();
        // Nobody can be told that standard error is closed.
        let _ = out.write_all(&octets);
        let dropped = shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let _ = writeln!(out, "{dropped} log lines were dropped: standard error is read too slowly");
        }
        if ended && octets.is_empty() {
            return;
        }
    }
}

/// Lines in either format.
type Written<S> = Box<dyn Layer<S> + Send + Sync>;
/// What is not important enough is sorted out before it is written.
type Sorted = Layered<reload::Layer<LevelFilter, Registry>, Registry>;

/// What a reload changes of a program's log.
struct Handles {
    lines: Lines,
    level: reload::Handle<LevelFilter, Registry>,
    written: reload::Handle<Written<Sorted>, Sorted>,
}

static HANDLES: OnceLock<Handles> = OnceLock::new();

fn level(log: Log) -> LevelFilter {
    match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

fn written(log: Log, lines: &Lines) -> Written<Sorted> {
    let layer =
        tracing_subscriber::fmt::layer().with_target(false).with_ansi(false).with_writer(lines.clone());
    match log.format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// Begins to log. The first call of a program wins.
pub fn begin(log: Log) -> LogThread {
    let shared = Arc::new(Shared::default());
    let writer = shared.clone();
    let thread =
        std::thread::Builder::new().name("usher-log".to_owned()).spawn(move || write_out(&writer)).ok();
    let lines = Lines(shared.clone());
    let (sorting, level) = reload::Layer::new(level(log));
    let (writing, written) = reload::Layer::new(written(log, &lines));
    // A second call leaves the first one's logging in place.
    if tracing_subscriber::registry().with(sorting).with(writing).try_init().is_ok() {
        let _ = HANDLES.set(Handles { lines, level, written });
    }
    LogThread { shared, thread }
}

/// Goes on in another format or with another level.
pub fn change(log: Log) {
    let Some(handles) = HANDLES.get() else { return };
    // They live as long as the program.
    let _ = handles.level.reload(level(log));
    let _ = handles.written.reload(written(log, &handles.lines));
}
