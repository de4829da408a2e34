//! The Ethernet between hosts and concentrator: it impairs frames and records proofs of identity.

use crate::{OracleBelief, TestUser};
use std::collections::{BTreeMap, BTreeSet};
use usher_core::Duration;
use usher_core::bench::TransmitRecord;
use usher_ppp::pppoe::{MacAddress, PppoeCode, PppoeFrame, PppoeStage};

const PAP: [u8; 2] = [0xc0, 0x23];
const CHAP: [u8; 2] = [0xc2, 0x23];
const EAP: [u8; 2] = [0xc2, 0x27];
/// The number of recorded frames, for replays.
const REPLAY_CAPACITY: usize = 512;

/// A session as frames identify it.
pub(super) type SessionName = (MacAddress, u16);

/// The impairment of a host's next frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameFate {
    Lost,
    Twice,
    Delayed(Duration),
    /// The frame has this source address.
    From(MacAddress),
    /// The frame has this session number.
    OtherSession(u16),
}

/// Frames in flight, and the proofs in them.
#[derive(Debug, Default)]
pub(super) struct EthernetWire {
    pub(super) belief: OracleBelief,
    /// The concentrator's host. Hosts of the network behind it are not on the Ethernet.
    pub(super) concentrator: usize,
    /// The user whose password each host has, by host number.
    pub(super) owners: BTreeMap<usize, TestUser>,
    pub(super) fates: BTreeMap<usize, FrameFate>,
    /// The users whose proofs a session has carried.
    pub(super) proofs: BTreeMap<SessionName, BTreeSet<TestUser>>,
    /// Recorded frames of hosts, with their users.
    pub(super) recorded_frames: Vec<(TestUser, Vec<u8>)>,
    /// The last session of each host.
    pub(super) last: BTreeMap<MacAddress, u16>,
    /// The number of frames delivered to the concentrator.
    pub(super) delivered_frames: u64,
}

impl EthernetWire {
    /// Sends a frame. Returns the delays of its copies.
    pub(super) fn carry_frame(&mut self, sent: &mut TransmitRecord) -> Vec<Duration> {
        if sent.from == self.concentrator {
            self.confirm_session(&sent.bytes);
            return vec![Duration::ZERO];
        }
        let Some(owner) = self.owners.get(&sent.from).copied() else { return vec![Duration::ZERO] };
        let mut copies = vec![Duration::ZERO];
        match self.fates.remove(&sent.from) {
            None => {}
            Some(FrameFate::Lost) => copies.clear(),
            Some(FrameFate::Twice) => copies.push(Duration::from_millis(3)),
            Some(FrameFate::Delayed(late)) => copies = vec![late],
            Some(FrameFate::From(station)) => rewrite_frame(&mut sent.bytes, Some(station), None),
            Some(FrameFate::OtherSession(session)) => rewrite_frame(&mut sent.bytes, None, Some(session)),
        }
        if !copies.is_empty() {
            self.record_proof(owner, &sent.bytes);
        }
        if self.recorded_frames.len() < REPLAY_CAPACITY {
            self.recorded_frames.push((owner, sent.bytes.clone()));
        }
        copies
    }
    /// Records the proof in a frame of this user's host, as the concentrator receives it.
    pub(super) fn record_proof(&mut self, owner: TestUser, frame: &[u8]) {
        self.delivered_frames += 1;
        let Ok(frame) = PppoeFrame::parse(frame) else { return };
        if frame.stage == PppoeStage::Session
            && let [a, b, ..] = frame.payload
            && [PAP, CHAP, EAP].contains(&[*a, *b])
        {
            let believed = self.belief.believed_owner(owner);
            self.proofs.entry((frame.source, frame.session)).or_default().insert(believed);
        }
    }
    /// Clears the proofs of a new session. A repeated confirmation of the same session changes nothing.
    fn confirm_session(&mut self, frame: &[u8]) {
        let Ok(frame) = PppoeFrame::parse(frame) else { return };
        if frame.code == PppoeCode::PADS && frame.session != 0 {
            let again = self.last.insert(frame.destination, frame.session) == Some(frame.session);
            if !again {
                self.proofs.remove(&(frame.destination, frame.session));
            }
        }
    }
}

/// Rewrites a frame's source address or session number.
pub(super) fn rewrite_frame(frame: &mut [u8], station: Option<MacAddress>, session: Option<u16>) {
    if let (Some(station), Some(source)) = (station, frame.get_mut(6..12)) {
        source.copy_from_slice(&station.0);
    }
    if let (Some(session), Some(number)) = (session, frame.get_mut(16..18)) {
        number.copy_from_slice(&session.to_be_bytes());
    }
}
