//! Entry points for fuzzers. Each returns false for a defect.

use crate::machine::{
    ChildlessPolicy, IkeCommand, IkeConnectionConfig, IkeEndpoint, IkeEndpointConfig, LocalAuth, NAT_SOCKET,
    RemoteAuth, SOCKET,
};
use crate::payload::{Identification, Proposal};
use crate::{IkeMessage, NON_ESP_MARKER};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use usher_core::{
    DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutput, OctetReader, SecureRng, Transmit,
};
use usher_crypto::SecretValue;

/// Parses octets as a message. A valid one must survive writing and parsing.
pub fn check_message(octets: &[u8]) -> bool {
    let Ok(message) = IkeMessage::parse(octets) else { return true };
    let mut buf = Vec::new();
    message.emit(&mut buf);
    !message.to_string().is_empty()
        && IkeMessage::parse(&buf).as_ref() == Ok(&message)
        && buf.len() == octets.len()
}

/// Gives these datagrams, each after a length of two octets, to an endpoint that initiates one IKE_SA and serves
/// others. It must send valid messages and keep its memory bounded.
pub fn check_endpoint(octets: &[u8]) -> bool {
    let key = || SecretValue::from(&b"key"[..]);
    let Ok(proposal) = Proposal::parse_ike_proposal("aes128-sha256-modp1024") else { return false };
    let connection = Arc::new(IkeConnectionConfig {
        name: "fuzz".to_string(),
        local: Identification::from_fqdn("a.test"),
        remote: None,
        from: None,
        local_auth: LocalAuth::Psk(key()),
        remote_auth: RemoteAuth::Psk(key()),
        proposals: [proposal].into(),
        children: Vec::new(),
        childless: ChildlessPolicy::Allow,
        mobike: false,
        fragmentation: true,
        address: false,
        rekey_after: None,
        liveness: None,
        unique: true,
    });
    let tickets = Some(Duration::from_secs(60));
    let config = IkeEndpointConfig { half_open: 4, cookies_from: 2, tickets, ..IkeEndpointConfig::default() };
    let mut endpoint = IkeEndpoint::new(config, SecureRng::from_seed([1; 32]));
    let [local, remote] = [1, 2].map(|n| SocketAddr::from((Ipv4Addr::new(192, 0, 2, n), 500)));
    let now = Instant::ZERO;
    let begin = IkeCommand::Initiate { token: 0, connection: connection.clone(), local, remote };
    let served = endpoint.handle_command(now, IkeCommand::Serve([connection].into()));
    if served.is_err() || endpoint.handle_command(now, begin).is_err() {
        return false;
    }
    let (mut reader, mut buf) = (OctetReader::new(octets), Vec::new());
    while let Ok(length) = reader.read_u16() {
        let data = reader.read_bytes(usize::from(length)).unwrap_or_else(|_| reader.take_rest());
        for socket in [SOCKET, NAT_SOCKET] {
            endpoint.handle_input(
                now,
                MachineInput::Datagram { path: DatagramPath { socket, local, remote }, data },
            );
        }
        while let Some(output) = endpoint.poll_output(&mut buf) {
            if let MachineOutput::Transmit(Transmit::Datagram { path }) = output {
                let marker = if path.socket == NAT_SOCKET { &NON_ESP_MARKER[..] } else { &[] };
                let Some(octets) = buf.strip_prefix(marker) else { return false };
                if IkeMessage::parse(octets).is_err() {
                    return false;
                }
            }
        }
    }
    let bounded = endpoint.sa_count() <= 5 && endpoint.half_open() <= 4;
    // All state must end by itself.
    for n in 0..20 {
        endpoint.handle_input(now + Duration::from_secs(60 * (n + 1)), MachineInput::Timeout);
        while endpoint.poll_output(&mut buf).is_some() {}
    }
    bounded && endpoint.sa_count() == 0
}
