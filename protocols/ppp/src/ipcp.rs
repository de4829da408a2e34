//! The options of the IP Control Protocol: addresses (RFC 1332 §3.3) and name servers (RFC 1877).

use crate::negotiation::{ConfigureReply, ControlProtocolOptions};
use crate::packet::{ConfigOption, PppProtocol};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use usher_core::SecureRng;
use usher_core::address::is_host_address;

/// IP-Address.
const ADDRESS: u8 = 3;
/// Primary and Secondary DNS Server Address.
const DNS: [u8; 2] = [129, 131];

/// The IPCP options of a link, in either mode.
#[derive(Debug)]
pub(crate) struct IpcpOptions {
    side: IpcpMode,
    /// The address of the next request; `None`: the peer rejected the option.
    local: Option<Ipv4Addr>,
    /// The peer's acknowledged address.
    remote: Ipv4Addr,
    /// The name servers to request (client) or to give (concentrator).
    dns: [Option<Ipv4Addr>; 2],
}

#[derive(Debug)]
enum IpcpMode {
    /// Assigns the peer an address.
    Assigning { own: Ipv4Addr, peer: Ipv4Addr },
    /// Requests an address, and name servers if `dns`.
    Requesting { dns: bool },
}

impl IpcpOptions {
    /// Returns the options of the assigning side, with at most two name servers.
    pub(crate) fn for_assigning_side(own: Ipv4Addr, peer: Ipv4Addr, dns: &[Ipv4Addr]) -> Self {
        let dns = [dns.first().copied(), dns.get(1).copied()];
        Self { side: IpcpMode::Assigning { own, peer }, local: Some(own), remote: peer, dns }
    }
    /// Returns the options of the requesting side.
    pub(crate) const fn for_requesting_side(dns: bool) -> Self {
        Self {
            side: IpcpMode::Requesting { dns },
            local: None,
            remote: Ipv4Addr::UNSPECIFIED,
            dns: [None; 2],
        }
    }
    /// Returns this side's address and the peer's once both are agreed; `None`: there is none.
    pub(crate) fn agreed_addresses(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let local = self.local.filter(|address| is_host_address((*address).into()))?;
        Some((local, self.remote))
    }
    /// Returns the agreed name servers.
    pub(crate) fn name_servers(&self) -> Vec<Ipv4Addr> {
        self.dns.into_iter().flatten().filter(|address| !address.is_unspecified()).collect()
    }
}

fn parse_address(data: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from)
}

impl ControlProtocolOptions for IpcpOptions {
    const PROTOCOL: PppProtocol = PppProtocol::IPCP;

    fn reset_options(&mut self, _: &mut SecureRng) {
        match self.side {
            IpcpMode::Assigning { own, .. } => self.local = Some(own),
            IpcpMode::Requesting { dns } => {
                self.local = Some(Ipv4Addr::UNSPECIFIED);
                self.dns = [dns.then_some(Ipv4Addr::UNSPECIFIED); 2];
                self.remote = Ipv4Addr::UNSPECIFIED;
            }
        }
    }

    fn write_request(&self, out: &mut Vec<u8>) {
        if let Some(local) = self.local {
            ConfigOption { kind: ADDRESS, data: &local.octets() }.emit(out);
        }
        if let IpcpMode::Requesting { .. } = self.side {
            for (kind, server) in DNS.into_iter().zip(self.dns) {
                if let Some(server) = server {
                    ConfigOption { kind, data: &server.octets() }.emit(out);
                }
            }
        }
    }

    fn evaluate_request(
        &mut self,
        options: &[ConfigOption<'_>],
        may_nak: bool,
        _: &mut SecureRng,
    ) -> ConfigureReply {
        let (mut rejected, mut suggested) = (Vec::new(), Vec::new());
        for (n, option) in options.iter().enumerate() {
            let again = options[..n].iter().any(|before| before.kind == option.kind);
            let wanted = parse_address(option.data);
            let right = match (&self.side, option.kind) {
                (IpcpMode::Assigning { peer, .. }, ADDRESS) => Some(*peer),
                (IpcpMode::Assigning { .. }, kind) => {
                    DNS.iter().position(|one| *one == kind).and_then(|n| self.dns[n])
                }
                // The requesting side accepts any address of the peer. If the peer has none, this side cannot assign it
                // one.
                (IpcpMode::Requesting { .. }, ADDRESS) => wanted.filter(|address| !address.is_unspecified()),
                (IpcpMode::Requesting { .. }, _) => None,
            };
            match right {
                Some(right) if !again => {
                    if wanted == Some(right) {
                    } else if may_nak {
                        // RFC 1332, 3.3; RFC 1877, 1.1, 1.3: the Nak gives the address or name server.
                        let data = &right.octets();
                        ConfigOption { kind: option.kind, data }.emit(&mut suggested);
                    } else {
                        option.emit(&mut rejected);
                    }
                }
                // RFC 1661, 5.4: other options, such as Van Jacobson compression, are rejected.
                _ => option.emit(&mut rejected),
            }
        }
        if let IpcpMode::Assigning { peer, .. } = &self.side
            && may_nak
            && !options.iter().any(|option| option.kind == ADDRESS)
        {
            // RFC 1332, 3.3: the missing address option is appended to the Nak, so that the peer asks for it.
            ConfigOption { kind: ADDRESS, data: &peer.octets() }.emit(&mut suggested);
        }
        ConfigureReply::from_options(rejected, suggested)
    }

    fn accept_request(&mut self, options: &[ConfigOption<'_>]) {
        if let IpcpMode::Requesting { .. } = self.side {
            let wanted = options.iter().find(|option| option.kind == ADDRESS);
            self.remote =
                wanted.and_then(|option| parse_address(option.data)).unwrap_or(Ipv4Addr::UNSPECIFIED);
        }
    }

    fn apply_nak(&mut self, options: &[ConfigOption<'_>], _: &mut SecureRng) {
        // The assigning side keeps its one address, whatever the peer suggests.
        let IpcpMode::Requesting { .. } = self.side else { return };
        for option in options {
            let Some(value) = parse_address(option.data) else { continue };
            if option.kind == ADDRESS {
                self.local = self.local.map(|_| value);
            } else if let Some(n) = DNS.iter().position(|one| *one == option.kind) {
                self.dns[n] = self.dns[n].map(|_| value);
            }
        }
    }

    fn apply_reject(&mut self, options: &[ConfigOption<'_>]) {
        for option in options {
            if option.kind == ADDRESS {
                if let IpcpMode::Requesting { .. } = self.side {
                    self.local = None;
                }
            } else if let Some(n) = DNS.iter().position(|one| *one == option.kind) {
                self.dns[n] = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_host_can_have_is_none() {
        let given = |text: &str| {
            let mut options = IpcpOptions::for_requesting_side(false);
            let mut rng = SecureRng::from_seed([1; 32]);
            options.reset_options(&mut rng);
            let data = &text.parse::<Ipv4Addr>().unwrap().octets();
            options.apply_nak(&[ConfigOption { kind: ADDRESS, data }], &mut rng);
            options.agreed_addresses().map(|(local, _)| local.to_string())
        };
        assert_eq!(given("192.0.2.7").as_deref(), Some("192.0.2.7"));
        for wrong in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }
}
