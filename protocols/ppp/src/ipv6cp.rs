//! The option of the IPv6 Control Protocol: interface identifiers (RFC 5072 §4.1).

use crate::negotiation::{ConfigureReply, ControlProtocolOptions};
use crate::packet::{ConfigOption, PppProtocol};
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use usher_core::SecureRng;

/// Interface-Identifier.
const IDENTIFIER: u8 = 1;

/// The lower 64 bits of the IPv6 addresses of a link's end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct InterfaceIdentifier(pub u64);

impl InterfaceIdentifier {
    /// Derives an identifier from a universally administered Ethernet address, with bit "u" inverted (RFC 5072 §4.1).
    #[must_use]
    pub const fn from_eui48_address(address: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = address;
        Self(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
    }
    /// Returns a random identifier, not zero and not one of `not`. Its bit "u" is clear: it derives from no Ethernet
    /// address.
    pub(crate) fn random(rng: &mut SecureRng, not: &[Self]) -> Self {
        loop {
            let one = Self(rng.next_u64() & !(2 << 56));
            if one.0 != 0 && !not.contains(&one) {
                return one;
            }
        }
    }
    /// Returns the link-local address (RFC 5072 §5).
    #[must_use]
    pub fn link_local(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(self.0))
    }
}

impl fmt::Display for InterfaceIdentifier {
    /// Four groups of hexadecimal digits: `0200:5eff:fe00:5301`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) as u16);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl fmt::Debug for InterfaceIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The IPv6CP options of a link: the identifiers of its ends.
#[derive(Debug)]
pub(crate) struct Ipv6cpOptions {
    /// The identifier that this side prefers; zero: random.
    own: InterfaceIdentifier,
    /// The identifier that this side suggests to the peer.
    for_peer: Option<InterfaceIdentifier>,
    /// The identifier of the next request; `None`: the peer rejected the option.
    local: Option<InterfaceIdentifier>,
    remote: Option<InterfaceIdentifier>,
    /// The last suggestion to the peer.
    suggested: Option<InterfaceIdentifier>,
    /// True once this side has asked the peer to send the option, which it does once.
    prompted: bool,
}

impl Ipv6cpOptions {
    pub(crate) const fn new(own: InterfaceIdentifier, for_peer: Option<InterfaceIdentifier>) -> Self {
        Self { own, for_peer, local: None, remote: None, suggested: None, prompted: false }
    }
    /// Returns this side's identifier and the peer's once both are agreed; `None`: one is missing, and there is no
    /// address.
    pub(crate) fn agreed_identifiers(&self) -> Option<(InterfaceIdentifier, InterfaceIdentifier)> {
        Some((self.local?, self.remote?))
    }
    /// Returns the identifier to suggest to the peer.
    fn suggest_peer_identifier(&mut self, rng: &mut SecureRng) -> [u8; 8] {
        let taken = [self.own, self.local.unwrap_or_default()];
        let given = self.for_peer.filter(|one| one.0 != 0 && !taken.contains(one));
        let one = given.unwrap_or_else(|| InterfaceIdentifier::random(rng, &taken));
        self.suggested = Some(one);
        one.0.to_be_bytes()
    }
}

fn parse_identifier(data: &[u8]) -> Option<InterfaceIdentifier> {
    <[u8; 8]>::try_from(data).ok().map(|octets| InterfaceIdentifier(u64::from_be_bytes(octets)))
}

impl ControlProtocolOptions for Ipv6cpOptions {
    const PROTOCOL: PppProtocol = PppProtocol::IPV6CP;

    fn reset_options(&mut self, rng: &mut SecureRng) {
        let own = Some(self.own).filter(|own| own.0 != 0);
        self.local = Some(own.unwrap_or_else(|| InterfaceIdentifier::random(rng, &[])));
        (self.remote, self.suggested, self.prompted) = (None, None, false);
    }

    fn write_request(&self, out: &mut Vec<u8>) {
        if let Some(local) = self.local {
            ConfigOption { kind: IDENTIFIER, data: &local.0.to_be_bytes() }.emit(out);
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
            if option.kind != IDENTIFIER || options[..n].iter().any(|before| before.kind == IDENTIFIER) {
                option.emit(&mut rejected);
                continue;
            }
            match parse_identifier(option.data) {
                // RFC 5072, 4.1: acknowledge any identifier that differs from this side's own.
                Some(one) if one.0 != 0 && Some(one) != self.local => {}
                _ if may_nak => {
                    let data = &self.suggest_peer_identifier(rng);
                    ConfigOption { kind: IDENTIFIER, data }.emit(&mut suggested);
                }
                _ => option.emit(&mut rejected),
            }
        }
        if !options.iter().any(|option| option.kind == IDENTIFIER) && !self.prompted {
            self.prompted = true;
            let data = &self.suggest_peer_identifier(rng);
            ConfigOption { kind: IDENTIFIER, data }.emit(&mut suggested);
        }
        ConfigureReply::from_options(rejected, suggested)
    }

    fn accept_request(&mut self, options: &[ConfigOption<'_>]) {
        let wanted = options.iter().find(|option| option.kind == IDENTIFIER);
        self.remote = wanted.and_then(|option| parse_identifier(option.data));
    }

    fn apply_nak(&mut self, options: &[ConfigOption<'_>], rng: &mut SecureRng) {
        let Some(local) = self.local else { return };
        let named = options.iter().find(|option| option.kind == IDENTIFIER);
        let Some(named) = named.and_then(|option| parse_identifier(option.data)) else { return };
        // If this side's own suggestion comes back, the link is looped. Then a random identifier is used.
        let usable = named.0 != 0 && Some(named) != self.suggested;
        self.local = Some(if usable { named } else { InterfaceIdentifier::random(rng, &[local]) });
    }

    fn apply_reject(&mut self, options: &[ConfigOption<'_>]) {
        if options.iter().any(|option| option.kind == IDENTIFIER) {
            self.local = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identifier_option(identifier: u64) -> Vec<u8> {
        let mut out = Vec::new();
        ConfigOption { kind: IDENTIFIER, data: &identifier.to_be_bytes() }.emit(&mut out);
        out
    }

    #[test]
    fn interface_identifiers_are_judged_as_the_rfc_has_it() {
        let mut rng = SecureRng::from_seed([3; 32]);
        let mut options = Ipv6cpOptions::new(InterfaceIdentifier(5), Some(InterfaceIdentifier(9)));
        options.reset_options(&mut rng);
        let mut judge = |octets: &[u8], options: &mut Ipv6cpOptions| {
            options.evaluate_request(&ConfigOption::parse_all_options(octets).unwrap(), true, &mut rng)
        };
        assert_eq!(judge(&identifier_option(6), &mut options), ConfigureReply::Ack);
        let suggested = ConfigureReply::Nak(identifier_option(9));
        assert_eq!(judge(&identifier_option(0), &mut options), suggested, "it asks for one");
        assert_eq!(judge(&identifier_option(5), &mut options), suggested, "it has this side's");
        assert_eq!(judge(&[], &mut options), suggested, "it is told to ask, once");
        assert_eq!(judge(&[], &mut options), ConfigureReply::Ack);
        options.accept_request(&[]);
        assert_eq!(options.agreed_identifiers(), None, "who has none has no address");
        assert_eq!(judge(&[1, 3, 7], &mut options), suggested, "a wrong length");
        assert_eq!(judge(&[2, 4, 0, 0x2d], &mut options), ConfigureReply::Reject(vec![2, 4, 0, 0x2d]));
        // A peer that repeats this side's suggestion gets a different one.
        let mut rng = SecureRng::from_seed([4; 32]);
        for (named, taken) in [(7, Some(7)), (9, None), (0, None)] {
            options.reset_options(&mut rng);
            options.evaluate_request(
                &ConfigOption::parse_all_options(&identifier_option(5)).unwrap(),
                true,
                &mut rng,
            );
            options.apply_nak(&ConfigOption::parse_all_options(&identifier_option(named)).unwrap(), &mut rng);
            let local = options.local.unwrap();
            match taken {
                Some(taken) => assert_eq!(local, InterfaceIdentifier(taken)),
                None => assert!(![0, 5, 9].contains(&local.0) && local.0 & 2 << 56 == 0),
            }
        }
    }
}
