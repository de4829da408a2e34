//! The interface behind which stations of Ethernet are: frames go by it from all threads, and a thread of its own leads what comes to
//! the one whose stations it is for.

use super::{RunError, ThreadMessage, part_of};
use crate::generator::{PppoeConfig, station_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use usher_live::Mailbox;
use usher_ppp::pppoe::MacAddress;
use usher_pppoe::{StationInterface, StationReceiver};

/// How long the thread waits at a time: after that it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Frames that have come and wait for a generating thread, at most.
const WAITING: usize = 65_536;

/// What went wrong, for all threads.
#[derive(Debug, Default)]
struct FrameErrorCounts {
    not_sent: AtomicU64,
    not_taken: AtomicU64,
}

/// A thread's way to the interface.
pub(super) struct StationLink {
    stations: Arc<StationInterface>,
    counts: Arc<FrameErrorCounts>,
    waiting: Arc<AtomicUsize>,
}

impl StationLink {
    pub(super) fn send_frame(&mut self, frame: &[u8]) -> bool {
        if self.stations.send_frame(frame).is_err() {
            self.counts.not_sent.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
    /// So many frames of those that waited were taken.
    pub(super) fn release_frames(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }
    pub(super) fn waiting_count(&self) -> Arc<AtomicUsize> {
        self.waiting.clone()
    }
}

/// Where frames are led to.
struct FrameInbox {
    to: Mailbox<ThreadMessage>,
    waiting: Arc<AtomicUsize>,
    frames: Vec<Vec<u8>>,
}

/// The interface, open.
pub(super) struct FrameRouter {
    stations: Arc<StationInterface>,
    counts: Arc<FrameErrorCounts>,
    readers: Vec<FrameInbox>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FrameRouter {
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

    /// A generating thread's way to it.
    pub(super) fn new_link(&self) -> StationLink {
        StationLink { stations: self.stations.clone(), counts: self.counts.clone(), waiting: Arc::default() }
    }

    /// Has frames for the next thread's stations come to this mailbox.
    pub(super) fn add_inbox(&mut self, to: Mailbox<ThreadMessage>, waiting: Arc<AtomicUsize>) {
        self.readers.push(FrameInbox { to, waiting, frames: Vec::new() });
    }

    /// Begins to listen, for so many threads' stations.
    pub(super) fn start_listening(&mut self, of: &PppoeConfig, threads: usize) -> Result<(), RunError> {
        let (stations, counts, over) = (self.stations.clone(), self.counts.clone(), self.is_stopped.clone());
        let (first, whole) = (of.address, of.stations);
        let mut readers = std::mem::take(&mut self.readers);
        let mut receiver = StationReceiver::new(&stations);
        let body = move || {
            while !over.load(Ordering::Relaxed) {
                let lead = |frame: &[u8]| route_frame(&mut readers, (first, whole, threads), frame);
                // An interface that is gone brings nothing: logins fail, and say so.
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

    /// Listens no more; what went wrong, by name.
    pub(super) fn stop_and_count(mut self) -> [(&'static str, u64); 2] {
        self.stop_thread();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("frames_not_sent", read(&self.counts.not_sent)), ("frames_not_taken", read(&self.counts.not_taken))]
    }

    fn stop_thread(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Had it panicked, the program would have said so.
            let _ = thread.join();
        }
    }
}

impl Drop for FrameRouter {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

fn route_frame(
    readers: &mut [FrameInbox],
    (first, whole, threads): (MacAddress, usize, usize),
    frame: &[u8],
) {
    let Some(n) = station_of(first, frame).filter(|n| *n < whole) else { return };
    let part = (0..threads).find(|part| {
        let (first, count) = part_of(whole, *part, threads);
        (first..first + count).contains(&n)
    });
    if let Some(reader) = part.and_then(|part| readers.get_mut(part)) {
        reader.frames.push(frame.to_vec());
    }
}

impl FrameInbox {
    fn hand_over(&mut self, counts: &FrameErrorCounts) {
        let count = self.frames.len();
        if count == 0 {
            return;
        }
        let frames = std::mem::take(&mut self.frames);
        let full = self.waiting.fetch_add(count, Ordering::Relaxed) >= WAITING;
        // A thread that has ended takes nothing.
        if full || !self.to.send(ThreadMessage::Frames(frames)) {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            counts.not_taken.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
