//! Logs to standard error from a thread of its own, so that a slow reader delays no login.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};
use usher_config::log::{LogConfig, LogFormat, LogLevel};

/// The octets that may be pending. Further lines are dropped and counted.
const MOST: usize = 4 << 20;

#[derive(Debug, Default)]
struct LogBuffer {
    octets: Vec<u8>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct SharedLogBuffer {
    queue: Mutex<LogBuffer>,
    filled: Condvar,
    dropped: AtomicU64,
}

/// Where log lines go.
#[derive(Clone, Debug)]
pub struct LogWriter(Arc<SharedLogBuffer>);

/// The thread that writes the log. Dropping it flushes the pending lines and ends the thread.
#[derive(Debug)]
pub struct LogThread {
    shared: Arc<SharedLogBuffer>,
    thread: Option<JoinHandle<()>>,
}

impl Write for LogWriter {
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

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // The result is ignored: if the logging thread panicked, no channel is left to report it.
            let _ = thread.join();
        }
    }
}

fn write_log_buffer(shared: &SharedLogBuffer) {
    loop {
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.octets.is_empty() && !queue.is_closed {
            queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let octets = std::mem::take(&mut queue.octets);
        let ended = queue.is_closed;
        drop(queue);
        let mut out = io::stderr().lock();
        // A write error is ignored: if standard error is closed, no channel is left to report it.
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

/// A layer for either format.
type FormatLayer<S> = Box<dyn Layer<S> + Send + Sync>;
/// Filters by level before a line is formatted.
type FilteredRegistry = Layered<reload::Layer<LevelFilter, Registry>, Registry>;

/// The handles for changing the log on a reload.
struct LogReloadHandles {
    lines: LogWriter,
    level: reload::Handle<LevelFilter, Registry>,
    written: reload::Handle<FormatLayer<FilteredRegistry>, FilteredRegistry>,
}

static HANDLES: OnceLock<LogReloadHandles> = OnceLock::new();

fn level_filter(log: LogConfig) -> LevelFilter {
    match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

fn format_layer(log: LogConfig, lines: &LogWriter) -> FormatLayer<FilteredRegistry> {
    let layer =
        tracing_subscriber::fmt::layer().with_target(false).with_ansi(false).with_writer(lines.clone());
    match log.format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// Starts logging. Only the first call of a program has an effect.
pub fn start_logging(log: LogConfig) -> LogThread {
    let shared = Arc::new(SharedLogBuffer::default());
    let writer = shared.clone();
    let thread = std::thread::Builder::new()
        .name("usher-log".to_owned())
        .spawn(move || write_log_buffer(&writer))
        .ok();
    let lines = LogWriter(shared.clone());
    let (sorting, level) = reload::Layer::new(level_filter(log));
    let (writing, written) = reload::Layer::new(format_layer(log, &lines));
    // If logging is already set up, a second call keeps it and its handles.
    if tracing_subscriber::registry().with(sorting).with(writing).try_init().is_ok() {
        let _ = HANDLES.set(LogReloadHandles { lines, level, written });
    }
    LogThread { shared, thread }
}

/// Changes the format or the level.
pub fn change_logging(log: LogConfig) {
    let Some(handles) = HANDLES.get() else { return };
    // The results are ignored: a reload fails only if the layers are gone, and they live as long as the program.
    let _ = handles.level.reload(level_filter(log));
    let _ = handles.written.reload(format_layer(log, &handles.lines));
}
