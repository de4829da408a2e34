//! The interface of Ethernet stations. All threads send frames by it, and a receiving thread passes incoming frames to
//! the thread of their station.

use super::{GeneratorThreadMessage, RunError, thread_index_range};
use crate::generator::{PppoeConfig, station_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use usher_live::Mailbox;
use usher_ppp::pppoe::MacAddress;
use usher_pppoe::{StationInterface, StationReceiver};

/// Maximum wait of the receiving thread before it checks for the end.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum number of received frames that wait for a generating thread.
const WAITING: usize = 65_536;

/// Errors of all threads.
#[derive(Debug, Default)]
struct StationFrameErrors {
    not_sent: AtomicU64,
    not_taken: AtomicU64,
}

/// A thread's link to the interface.
pub(super) struct StationInterfaceLink {
    stations: Arc<StationInterface>,
    counts: Arc<StationFrameErrors>,
    waiting: Arc<AtomicUsize>,
}

impl StationInterfaceLink {
    pub(super) fn send_frame(&mut self, frame: &[u8]) -> bool {
        if self.stations.send_frame(frame).is_err() {
            self.counts.not_sent.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
    /// Releases this number of waiting frames.
    pub(super) fn release_waiting_frames(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }
    pub(super) fn waiting_count(&self) -> Arc<AtomicUsize> {
        self.waiting.clone()
    }
}

/// The destination of frames.
struct FrameInbox {
    to: Mailbox<GeneratorThreadMessage>,
    waiting: Arc<AtomicUsize>,
    frames: Vec<Vec<u8>>,
}

/// The open interface.
pub(super) struct StationFrameRouter {
    stations: Arc<StationInterface>,
    counts: Arc<StationFrameErrors>,
    readers: Vec<FrameInbox>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StationFrameRouter {
    pub(super) fn open(name: &str) -> Result<Self, RunError> {
        let failed = |error| RunError::Interface { name: name.to_owned(), error };
        Ok(Self {
            stations: Arc::new(StationInterface::open(name).map_err(failed)?),
            counts: Arc::default(),
            readers: Vec::new(),
            is_stopped: Arc::default(),
            thread: None,
        })
    }

    /// Returns a generating thread's link to the interface.
    pub(super) fn new_link(&self) -> StationInterfaceLink {
        StationInterfaceLink {
            stations: self.stations.clone(),
            counts: self.counts.clone(),
            waiting: Arc::default(),
        }
    }

    /// Adds the mailbox for frames of the next thread's stations.
    pub(super) fn add_frame_inbox(&mut self, to: Mailbox<GeneratorThreadMessage>, waiting: Arc<AtomicUsize>) {
        self.readers.push(FrameInbox { to, waiting, frames: Vec::new() });
    }

    /// Starts receiving for the stations of this number of threads.
    pub(super) fn start_listening(&mut self, of: &PppoeConfig, threads: usize) -> Result<(), RunError> {
        let (stations, counts, over) = (self.stations.clone(), self.counts.clone(), self.is_stopped.clone());
        let (first, whole) = (of.address, of.stations);
        let mut readers = std::mem::take(&mut self.readers);
        let mut receiver = StationReceiver::new(&stations);
        let body = move || {
            while !over.load(Ordering::Relaxed) {
                let lead = |frame: &[u8]| route_station_frame(&mut readers, (first, whole, threads), frame);
                // If the interface is gone, do not spin: logins fail and report it.
                if receiver.receive_frames(&stations, LOOK, lead).is_err() {
                    std::thread::sleep(LOOK);
                }
                readers.iter_mut().for_each(|reader| reader.hand_over(&counts));
            }
        };
        let thread = std::thread::Builder::new().name("usher-load-link".to_owned()).spawn(body);
        self.thread = Some(thread.map_err(RunError::Sockets)?);
        Ok(())
    }

    /// Stops receiving and returns the errors by name.
    pub(super) fn stop_and_take_frame_errors(mut self) -> [(&'static str, u64); 2] {
        self.stop_thread();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("frames_not_sent", read(&self.counts.not_sent)), ("frames_not_taken", read(&self.counts.not_taken))]
    }

    fn stop_thread(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The result is ignored: a panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for StationFrameRouter {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

fn route_station_frame(
    readers: &mut [FrameInbox],
    (first, whole, threads): (MacAddress, usize, usize),
    frame: &[u8],
) {
    let Some(n) = station_of(first, frame).filter(|n| *n < whole) else { return };
    let part = (0..threads).find(|part| {
        let (first, count) = thread_index_range(whole, *part, threads);
        (first..first + count).contains(&n)
    });
    if let Some(reader) = part.and_then(|part| readers.get_mut(part)) {
        reader.frames.push(frame.to_vec());
    }
}

impl FrameInbox {
    fn hand_over(&mut self, counts: &StationFrameErrors) {
        let count = self.frames.len();
        if count == 0 {
            return;
        }
        let frames = std::mem::take(&mut self.frames);
        let full = self.waiting.fetch_add(count, Ordering::Relaxed) >= WAITING;
        // The frames are dropped if too many wait, or if the thread has ended. Then they no longer count as waiting.
        if full || !self.to.send(GeneratorThreadMessage::Frames(frames)) {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            counts.not_taken.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
