//! The options of the Link Control Protocol (RFC 1661 §6, RFC 2516 §7).

use crate::auth::AuthenticationProtocol;
use crate::negotiation::{ConfigureReply, ControlProtocolOptions};
use crate::packet::{ConfigOption, DEFAULT_MRU, PppProtocol};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::SecureRng;

/// Maximum-Receive-Unit.
const MRU: u8 = 1;
/// Authentication-Protocol.
const AUTHENTICATION: u8 = 3;
/// Magic-Number.
const MAGIC: u8 = 5;

/// The smallest MRU that a peer may request. Smaller packets are useless and cost this side as much.
const LEAST_MRU: u16 = 128;
/// Consecutive collisions of magic numbers that prove a loop: by chance it is one in 2^96 (RFC 1661 §6.4).
const LOOPS: u32 = 3;

/// The LCP options of a link, of both sides.
#[derive(Debug)]
pub(crate) struct LcpOptions {
    /// PPP_MRU_Max: the maximum packet in both directions (RFC 2516 §7, RFC 4638 §5.1).
    limit: u16,
    /// Authentication protocols that this side accepts from the peer, by preference; empty: no authentication.
    required_protocols: Arc<[AuthenticationProtocol]>,
    /// Authentication protocols that this side offers, by preference.
    offered: Vec<AuthenticationProtocol>,
    /// The MRU of the next request.
    mru: Option<u16>,
    pub(crate) magic: Option<u32>,
    /// The index of the requested protocol in `required_protocols`.
    requested_index: usize,
    /// The protocols that the peer refused.
    refused: Vec<AuthenticationProtocol>,
    /// The magic number that this side suggested to the peer.
    suggested_magic: Option<u32>,
    collisions: u32,
    /// The peer's acknowledged MRU.
    pub(crate) peer_mru: u16,
    pub(crate) peer_magic: Option<u32>,
    pub(crate) peer_wants: Option<AuthenticationProtocol>,
}

impl LcpOptions {
    pub(crate) fn new(
        limit: u16,
        wanted: Arc<[AuthenticationProtocol]>,
        offered: Vec<AuthenticationProtocol>,
    ) -> Self {
        Self {
            limit,
            required_protocols: wanted,
            offered,
            mru: None,
            magic: None,
            requested_index: 0,
            refused: Vec::new(),
            suggested_magic: None,
            collisions: 0,
            peer_mru: DEFAULT_MRU,
            peer_magic: None,
            peer_wants: None,
        }
    }
    /// Returns the authentication protocol that the peer has agreed to.
    pub(crate) fn authentication_protocol(&self) -> Option<AuthenticationProtocol> {
        self.required_protocols.get(self.requested_index).copied()
    }
    /// True if the peer has refused every required authentication protocol.
    pub(crate) fn is_refused(&self) -> bool {
        !self.required_protocols.is_empty() && self.requested_index >= self.required_protocols.len()
    }
    /// True if the link is looped back.
    pub(crate) const fn is_link_looped_back(&self) -> bool {
        self.collisions >= LOOPS
    }
    /// Returns the octets of the longest packet to send.
    pub(crate) fn mtu(&self) -> u16 {
        self.peer_mru.min(self.limit)
    }

    fn new_magic_number(rng: &mut SecureRng, not: Option<u32>) -> u32 {
        loop {
            let magic = rng.next_u32();
            if magic != 0 && Some(magic) != not {
                return magic;
            }
        }
    }
    /// Requests another authentication protocol: the one that the peer names, or the next.
    fn select_other_authentication_protocol(&mut self, named: Option<AuthenticationProtocol>) {
        self.refused.extend(self.authentication_protocol());
        let is_open = |one: &AuthenticationProtocol| !self.refused.contains(one);
        let named = named
            .filter(is_open)
            .and_then(|name| self.required_protocols.iter().position(|one| *one == name));
        let next = named.or_else(|| self.required_protocols.iter().position(is_open));
        self.requested_index = next.unwrap_or(self.required_protocols.len());
    }
}

impl ControlProtocolOptions for LcpOptions {
    const PROTOCOL: PppProtocol = PppProtocol::LCP;

    fn reset_options(&mut self, rng: &mut SecureRng) {
        // RFC 2516, 7: no MRU above 1492 without RFC 4638, and no ACFC, ACCM or FCS alternatives.
        self.mru = (self.limit != DEFAULT_MRU).then_some(self.limit);
        self.magic = Some(Self::new_magic_number(rng, self.magic));
        self.requested_index = 0;
        self.refused.clear();
        (self.suggested_magic, self.collisions) = (None, 0);
        (self.peer_mru, self.peer_magic, self.peer_wants) = (DEFAULT_MRU, None, None);
    }

    fn write_request(&self, out: &mut Vec<u8>) {
        if let Some(mru) = self.mru {
            ConfigOption { kind: MRU, data: &mru.to_be_bytes() }.emit(out);
        }
        // RFC 1661, 6.2: one Authentication-Protocol, the next after a Nak.
        if let Some(protocol) = self.authentication_protocol() {
            ConfigOption { kind: AUTHENTICATION, data: protocol.lcp_option() }.emit(out);
        }
        if let Some(magic) = self.magic {
            ConfigOption { kind: MAGIC, data: &magic.to_be_bytes() }.emit(out);
        }
    }

    fn evaluate_request(
        &mut self,
        options: &[ConfigOption<'_>],
        may_nak: bool,
        rng: &mut SecureRng,
    ) -> ConfigureReply {
        let (mut rejected, mut suggested) = (Vec::new(), Vec::new());
        for (n, option) in options.iter().enumerate() {
            let nak = |data: &[u8], suggested: &mut Vec<u8>| {
                ConfigOption { kind: option.kind, data }.emit(suggested);
            };
            let again = options[..n].iter().any(|before| before.kind == option.kind);
            match (option.kind, option.data) {
                (MRU | AUTHENTICATION | MAGIC, _) if again => option.emit(&mut rejected),
                (MRU, &[high, low])
                    if (LEAST_MRU..=self.limit).contains(&u16::from_be_bytes([high, low])) => {}
                (MRU, data) => {
                    let wanted = <[u8; 2]>::try_from(data).map_or(self.limit, u16::from_be_bytes);
                    let value = wanted.clamp(LEAST_MRU, self.limit).to_be_bytes();
                    if may_nak { nak(&value, &mut suggested) } else { option.emit(&mut rejected) }
                }
                (AUTHENTICATION, data) => {
                    let known = AuthenticationProtocol::from_lcp_option(data);
                    match (known.filter(|one| self.offered.contains(one)), self.offered.first()) {
                        (Some(_), _) => {}
                        (None, Some(first)) if may_nak => nak(first.lcp_option(), &mut suggested),
                        (None, _) => option.emit(&mut rejected),
                    }
                }
                (MAGIC, data) => match <[u8; 4]>::try_from(data).map(u32::from_be_bytes) {
                    Ok(magic) if magic != 0 && Some(magic) != self.magic => self.collisions = 0,
                    // RFC 1661, 6.4: a side that uses magic numbers must not reject the peer's.
                    other => {
                        self.collisions += u32::from(other.is_ok_and(|magic| Some(magic) == self.magic));
                        let magic = Self::new_magic_number(rng, self.magic);
                        self.suggested_magic = Some(magic);
                        nak(&magic.to_be_bytes(), &mut suggested);
                    }
                },
                // RFC 2516, 7: reject ACCM, ACFC and FCS alternatives; PFC is not recommended. Quality reports are not
                // implemented.
                _ => option.emit(&mut rejected),
            }
        }
        ConfigureReply::from_options(rejected, suggested)
    }

    fn accept_request(&mut self, options: &[ConfigOption<'_>]) {
        (self.peer_mru, self.peer_magic, self.peer_wants) = (DEFAULT_MRU, None, None);
        for option in options {
            match (option.kind, option.data) {
                (MRU, &[high, low]) => self.peer_mru = u16::from_be_bytes([high, low]),
                (AUTHENTICATION, data) => self.peer_wants = AuthenticationProtocol::from_lcp_option(data),
                (MAGIC, &[a, b, c, d]) => self.peer_magic = Some(u32::from_be_bytes([a, b, c, d])),
                _ => {}
            }
        }
    }

    fn apply_nak(&mut self, options: &[ConfigOption<'_>], rng: &mut SecureRng) {
        for option in options {
            match (option.kind, option.data) {
                (MRU, &[high, low]) if self.mru.is_some() => {
                    let value = u16::from_be_bytes([high, low]);
                    if (LEAST_MRU..=self.limit).contains(&value) {
                        self.mru = Some(value);
                    }
                }
                (AUTHENTICATION, data) if self.authentication_protocol().is_some() => {
                    self.select_other_authentication_protocol(AuthenticationProtocol::from_lcp_option(data));
                }
                (MAGIC, data) if self.magic.is_some() => {
                    let named = <[u8; 4]>::try_from(data).map(u32::from_be_bytes).ok();
                    // RFC 1661, 6.4: the peer suggests the same number that this side suggested, so this side's own Nak
                    // may have come back.
                    if named.is_some() && named == self.suggested_magic {
                        self.collisions += 1;
                    }
                    self.magic = Some(Self::new_magic_number(rng, self.magic));
                }
                // Ignore options that the peer suggests in addition.
                _ => {}
            }
        }
    }

    fn apply_reject(&mut self, options: &[ConfigOption<'_>]) {
        for option in options {
            match option.kind {
                MRU => self.mru = None,
                AUTHENTICATION => self.requested_index = self.required_protocols.len(),
                // The link is not looped, and the peer does not use magic numbers (RFC 1661 §6.4).
                MAGIC => self.magic = None,
                _ => {}
            }
        }
    }
}
