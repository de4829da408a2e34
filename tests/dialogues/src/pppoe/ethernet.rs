//! The Ethernet between hosts and concentrator: what becomes of frames, and who has shown what by them.

use crate::{OracleBelief, TestUser};
use std::collections::{BTreeMap, BTreeSet};
use usher_core::Duration;
use usher_core::bench::SentTransmit;
use usher_ppp::pppoe::{MacAddress, PppoeCode, PppoeFrame, PppoeStage};

const PAP: [u8; 2] = [0xc0, 0x23];
const CHAP: [u8; 2] = [0xc2, 0x23];
const EAP: [u8; 2] = [0xc2, 0x27];
/// Frames that are remembered, to come again.
const REPLAY_CAPACITY: usize = 512;

/// A session as frames name it.
pub(super) type SessionName = (MacAddress, u16);

/// What becomes of a host's next frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameFate {
    Lost,
    Twice,
    Delayed(Duration),
    /// It is from this station.
    From(MacAddress),
    /// It is of this session.
    OtherSession(u16),
}

/// Frames under way, and what they prove.
#[derive(Debug, Default)]
pub(super) struct EthernetWire {
    pub(super) belief: OracleBelief,
    /// The concentrator's host; those of the network before it are none of the Ethernet.
    pub(super) concentrator: usize,
    /// By the number of the host: whose password it has.
    pub(super) owners: BTreeMap<usize, TestUser>,
    pub(super) fates: BTreeMap<usize, FrameFate>,
    /// Whose proofs were shown in a session.
    pub(super) proofs: BTreeMap<SessionName, BTreeSet<TestUser>>,
    /// Frames of hosts, with whose they are.
    pub(super) recorded_frames: Vec<(TestUser, Vec<u8>)>,
    /// The session that a host of the Ethernet had last.
    pub(super) last: BTreeMap<MacAddress, u16>,
    /// Frames that the concentrator was sent.
    pub(super) delivered_frames: u64,
}

impl EthernetWire {
    /// A frame is sent; when its copies arrive.
    pub(super) fn carry_frame(&mut self, sent: &mut SentTransmit) -> Vec<Duration> {
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
    /// A frame that this person's host has made reaches the concentrator.
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
    /// A session that begins has shown nothing yet. One that is confirmed again is the one of before.
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

/// Has a frame be from another station, or of another session.
pub(super) fn rewrite_frame(frame: &mut [u8], station: Option<MacAddress>, session: Option<u16>) {
    if let (Some(station), Some(source)) = (station, frame.get_mut(6..12)) {
        source.copy_from_slice(&station.0);
    }
    if let (Some(session), Some(number)) = (session, frame.get_mut(16..18)) {
        number.copy_from_slice(&session.to_be_bytes());
    }
}
