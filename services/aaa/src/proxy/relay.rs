//! Changes of a packet from hop to hop (RFC 2865 §2.3). Encrypted values depend on each hop's secret; each hop has
//! its own Message-Authenticator and Proxy-State.

use alloc::vec::Vec;
use usher_radius::attribute::{
    AttributeList, RawAttribute, ValueTooLong, kind, read_vendor, reveal_password, reveal_salted, vendor,
};
use usher_radius::client::RadiusReply;
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// A packet cannot be forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RadiusRelayError {
    /// An encrypted value cannot be decrypted: the secrets differ.
    #[error("cannot decrypt a hidden value; do both sides have the same secret?")]
    Hidden,
    /// A value exceeds its attribute.
    #[error(transparent)]
    TooLong(#[from] ValueTooLong),
}

/// Attributes that an Accounting-Request must not have (RFC 2866 §4.1, RFC 3579 §3.3).
const NOT_OF_ACCOUNTING: [u8; 5] =
    [kind::USER_PASSWORD, kind::CHAP_PASSWORD, kind::REPLY_MESSAGE, kind::STATE, kind::EAP_MESSAGE];

/// Writes a request for a home server: the filtered attributes, this name, and this Proxy-State after those already
/// there.
///
/// # Errors
/// An encrypted value cannot be decrypted, or the name is too long.
pub fn relay_request(
    request: &RadiusRequest,
    given: &AttributeList,
    name: &[u8],
    mark: &[u8],
    out: &mut AttributeList,
) -> Result<(), RadiusRelayError> {
    for a in given.iter() {
        match a.kind {
            kind::MESSAGE_AUTHENTICATOR => {}
            _ if request.code == PacketCode::ACCOUNTING_REQUEST && NOT_OF_ACCOUNTING.contains(&a.kind) => {}
            kind::USER_NAME => {
                out.push_bytes(a.kind, name)?;
            }
            kind::USER_PASSWORD => {
                let (secret, authenticator) = (request.secret.as_bytes(), &request.request_authenticator);
                let clear =
                    reveal_password(secret, authenticator, a.value).map_err(|_| RadiusRelayError::Hidden)?;
                out.push_user_password(&clear)?;
            }
            _ => {
                out.push_bytes(a.kind, a.value)?;
            }
        }
    }
    // RFC 2865, 2.3: the challenge was the authenticator, which the next hop does not have.
    if request.code == PacketCode::ACCESS_REQUEST
        && given.get(kind::CHAP_PASSWORD).is_some()
        && given.get(kind::CHAP_CHALLENGE).is_none()
    {
        out.push_bytes(kind::CHAP_CHALLENGE, &request.request_authenticator)?;
    }
    // RFC 2865, 2.3, 5.33; RFC 2866, 2.1: one Proxy-State is added, after those that are there.
    out.push_bytes(kind::PROXY_STATE, mark)?;
    Ok(())
}

/// Writes a home server's answer for the client and encrypts its values again. The server adds the Proxy-States of
/// the request.
///
/// # Errors
/// An encrypted value cannot be decrypted.
pub fn relay_response(response: &RadiusReply, out: &mut AttributeList) -> Result<(), RadiusRelayError> {
    for a in response.attributes.iter() {
        match a.kind {
            // RFC 2865, 2.3, 5.33; RFC 2866, 2.1: the client gets its own Proxy-States only.
            kind::MESSAGE_AUTHENTICATOR | kind::PROXY_STATE => {}
            kind::TUNNEL_PASSWORD => {
                let (&tag, salted) = a.value.split_first().ok_or(RadiusRelayError::Hidden)?;
                out.push_tunnel_password(tag, &decrypt_salted_value(response, salted)?)?;
            }
            kind::VENDOR_SPECIFIC => vendor_specific(a, out, response)?,
            _ => {
                out.push_bytes(a.kind, a.value)?;
            }
        }
    }
    Ok(())
}

fn decrypt_salted_value(response: &RadiusReply, value: &[u8]) -> Result<Vec<u8>, RadiusRelayError> {
    reveal_salted(response.secret.as_bytes(), &response.request_authenticator, value)
        .map_err(|_| RadiusRelayError::Hidden)
}

/// Writes a Vendor-Specific attribute. Each of Microsoft's keys is encrypted again in an attribute of its own.
fn vendor_specific(
    a: RawAttribute<'_>,
    out: &mut AttributeList,
    response: &RadiusReply,
) -> Result<(), RadiusRelayError> {
    let Some((vendor::MICROSOFT, mut rest)) = read_vendor(a.value) else {
        out.push_bytes(a.kind, a.value)?;
        return Ok(());
    };
    while let Some((&[kind, length], _)) = rest.split_first_chunk::<2>()
        && let Some((attribute, after)) = rest.split_at_checked(length.into())
        && let Some(value) = attribute.get(2..)
    {
        match kind {
            vendor::MS_MPPE_SEND_KEY | vendor::MS_MPPE_RECV_KEY => {
                out.push_vendor_salted(vendor::MICROSOFT, kind, &decrypt_salted_value(response, value)?)?;
            }
            vendor::MS_CHAP_MPPE_KEYS => {
                let (secret, authenticator) = (response.secret.as_bytes(), &response.request_authenticator);
                let mut clear =
                    reveal_password(secret, authenticator, value).map_err(|_| RadiusRelayError::Hidden)?;
                // Zeros at the end belong to the key; they are no padding.
                clear.resize(value.len(), 0);
                out.push_vendor_hidden(vendor::MICROSOFT, kind, &clear)?;
            }
            _ => {
                out.push_vendor(vendor::MICROSOFT, kind, value)?;
            }
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::bench::TestMachine;
    use usher_core::{DatagramPath, Instant, Machine, MachineInput, Seed, SocketId, Transmit};
    use usher_radius::SharedSecret;
    use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
    use usher_radius::server::{self, ClientConfig, RadiusServer};

    /// A client and a server with one secret.
    struct RadiusClientServerPair {
        client: TestMachine<RadiusClient>,
        server: TestMachine<RadiusServer>,
    }

    impl RadiusClientServerPair {
        fn new(secret: &[u8], seed: u64) -> Self {
            let server = ServerConfig::new("10.0.0.2:1812".parse().unwrap(), SharedSecret::new(secret));
            let client = RadiusClient::new(
                client::RadiusClientConfig::for_server(server),
                Seed::new(seed).derive_secure_rng("client", 0),
            );
            let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, SharedSecret::new(secret));
            let config = server::RadiusServerConfig::new(vec![network]);
            let server = RadiusServer::new(config, Seed::new(seed).derive_secure_rng("server", 0)).unwrap();
            Self { client: TestMachine::new(client.unwrap()), server: TestMachine::new(server) }
        }
        fn send_request(&mut self, attributes: AttributeList) -> RadiusRequest {
            self.make_request(PacketCode::ACCESS_REQUEST, attributes)
        }
        fn make_request(&mut self, code: PacketCode, attributes: AttributeList) -> RadiusRequest {
            let (token, target) = (1, RequestTarget::Server(0));
            let command = client::RadiusClientCommand::Request { token, target, code, attributes };
            self.client.handle_command(Instant::ZERO, command).unwrap();
            let mut data = Vec::new();
            let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut data) else {
                panic!("nothing sent")
            };
            let path = datagram_path("10.0.0.1:5000");
            self.server.handle_input(Instant::ZERO, MachineInput::Datagram { path, data: &data });
            let server::RadiusServerEvent::Request(r) = self.server.poll_event().unwrap();
            r
        }
        fn send_answer(&mut self, token: u64, attributes: AttributeList) -> RadiusReply {
            let code = PacketCode::ACCESS_ACCEPT;
            let command = server::RadiusServerCommand::Respond { token, code, attributes };
            self.server.handle_command(Instant::ZERO, command).unwrap();
            let mut data = Vec::new();
            assert!(self.server.poll_transmit(&mut data).is_some());
            let path = datagram_path("10.0.0.2:1812");
            self.client.handle_input(Instant::ZERO, MachineInput::Datagram { path, data: &data });
            match self.client.poll_event() {
                Some(client::RadiusClientEvent::Response(r)) => r,
                other => panic!("{other:?}"),
            }
        }
    }
    fn datagram_path(remote: &str) -> DatagramPath {
        let remote = remote.parse().unwrap();
        DatagramPath { socket: SocketId::from_number(0), local: "10.9.9.9:1".parse().unwrap(), remote }
    }

    #[test]
    fn hidden_values_pass_two_hops_of_different_secrets() {
        let (mut near, mut far) =
            (RadiusClientServerPair::new(b"near secret", 1), RadiusClientServerPair::new(b"another, far", 2));
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, "bob@example.org").unwrap();
        a.push_user_password(b"a password of more than sixteen octets").unwrap();
        a.push_bytes(kind::CHAP_PASSWORD, &[7; 17]).unwrap();
        a.push_bytes(kind::PROXY_STATE, b"earlier").unwrap();
        let first = near.send_request(a);
        let mut passed = AttributeList::new();
        relay_request(&first, &first.attributes, b"bob", b"mark", &mut passed).unwrap();
        let second = far.send_request(passed);
        assert_eq!(*second.user_password().unwrap().unwrap(), b"a password of more than sixteen octets");
        assert_eq!(second.attributes.get(kind::USER_NAME), Some(&b"bob"[..]));
        assert_eq!(second.attributes.get(kind::CHAP_CHALLENGE), Some(&first.request_authenticator[..]));
        let states: Vec<_> = second.attributes.get_all(kind::PROXY_STATE).collect();
        assert_eq!(states, [&b"earlier"[..], b"mark"]);
        assert_eq!(second.attributes.get_all(kind::MESSAGE_AUTHENTICATOR).count(), 1, "made anew");

        let mut reply = AttributeList::new();
        let mut msk = [0; 64];
        (0..64).for_each(|i| msk[i as usize] = i);
        reply.push_msk(&msk).push_tunnel_password(3, b"tunnel").unwrap();
        let mut keys = [5; 32];
        keys[24..].fill(0);
        reply.push_vendor_hidden(vendor::MICROSOFT, vendor::MS_CHAP_MPPE_KEYS, &keys).unwrap();
        reply.push_vendor(9, 1, b"shell").unwrap();
        reply.push_bytes(kind::CLASS, b"class").unwrap();
        let answered = far.send_answer(second.token, reply);
        let mut back = AttributeList::new();
        relay_response(&answered, &mut back).unwrap();
        let heard = near.send_answer(first.token, back);
        assert_eq!(heard.mppe_keys().unwrap().unwrap().msk(), Some(msk.into()));
        assert_eq!(heard.tunnel_password().unwrap().unwrap(), b"tunnel");
        let hidden = heard.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_MPPE_KEYS).unwrap();
        let clear = reveal_password(b"near secret", &heard.request_authenticator, hidden).unwrap();
        assert_eq!(clear, keys[..24]);
        assert_eq!(heard.attributes.get_vendor(9, 1), Some(&b"shell"[..]));
        assert_eq!(heard.attributes.get_all(kind::PROXY_STATE).collect::<Vec<_>>(), [b"earlier"]);
    }

    #[test]
    fn a_value_of_another_secret_stops_here() {
        let mut hop = RadiusClientServerPair::new(b"near secret", 1);
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, "bob").unwrap().push_bytes(kind::USER_PASSWORD, &[1; 15]).unwrap();
        let asked = hop.send_request(a);
        let mut out = AttributeList::new();
        assert_eq!(
            relay_request(&asked, &asked.attributes, b"bob", b"m", &mut out),
            Err(RadiusRelayError::Hidden)
        );
        let mut reply = AttributeList::new();
        reply.push_vendor(vendor::MICROSOFT, vendor::MS_MPPE_RECV_KEY, &[0x80, 1, 2]).unwrap();
        let heard = hop.send_answer(asked.token, reply);
        assert_eq!(relay_response(&heard, &mut AttributeList::new()), Err(RadiusRelayError::Hidden));
    }

    /// RFC 2865 §2.3 and §5, RFC 2866 §2.1: attributes of others stay unchanged and in order; one Proxy-State is
    /// appended.
    #[test]
    fn what_is_not_ours_to_change_is_passed_on_as_it_is() {
        for code in [PacketCode::ACCESS_REQUEST, PacketCode::ACCOUNTING_REQUEST] {
            let mut a = AttributeList::new();
            for (kind, value) in [
                (kind::PROXY_STATE, &b"\0one"[..]),
                (kind::CLASS, b"c1"),
                (kind::PROXY_STATE, b"two"),
                (kind::CLASS, b"c2"),
                (200, b"?"),
                (kind::CHAP_CHALLENGE, &[7; 20]),
            ] {
                a.push_bytes(kind, value).unwrap();
            }
            let first = RadiusClientServerPair::new(b"near secret", 1).make_request(code, a.clone());
            let mut passed = AttributeList::new();
            relay_request(&first, &first.attributes, b"", b"mark", &mut passed).unwrap();
            a.push_bytes(kind::PROXY_STATE, b"mark").unwrap();
            assert_eq!(passed, a, "{code}");
        }
        let mut reply = AttributeList::new();
        reply.push_bytes(kind::STATE, b"s").unwrap().push_bytes(kind::CLASS, b"c").unwrap();
        reply.push_bytes(kind::CLASS, b"d").unwrap();
        let mut hop = RadiusClientServerPair::new(b"far secret", 2);
        let asked = hop.send_request(AttributeList::new());
        let heard = hop.send_answer(asked.token, reply.clone());
        let mut back = AttributeList::new();
        relay_response(&heard, &mut back).unwrap();
        assert_eq!(back, reply);
    }

    /// RFC 2866 §4.1, RFC 3579 §3.3.
    #[test]
    fn what_no_accounting_request_has_is_left_behind() {
        let mut a = AttributeList::new();
        a.push_user_password(b"pw").unwrap().push_bytes(kind::CHAP_PASSWORD, &[1; 17]).unwrap();
        a.push_text(kind::REPLY_MESSAGE, "hello").unwrap().push_bytes(kind::STATE, b"s").unwrap();
        a.push_eap(&[2, 1, 0, 4]).push_text(kind::ACCT_SESSION_ID, "1").unwrap();
        let first =
            RadiusClientServerPair::new(b"near secret", 1).make_request(PacketCode::ACCOUNTING_REQUEST, a);
        let mut passed = AttributeList::new();
        relay_request(&first, &first.attributes, b"", b"mark", &mut passed).unwrap();
        let kinds: Vec<u8> = passed.iter().map(|a| a.kind).collect();
        assert_eq!(kinds, [kind::ACCT_SESSION_ID, kind::PROXY_STATE]);
    }
}
