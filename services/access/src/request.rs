//! A login request to an AAA server.

use crate::{NasPort, UserCredentials};
use alloc::vec::Vec;
use usher_radius::attribute::AttributeList;

/// A borrowed login request.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// User-Name of at least one octet. For EAP it is the peer's identity, in every round (RFC 3579 §2.1). UTF-8 over
    /// Diameter.
    pub name: &'a [u8],
    /// The user's port.
    pub port: NasPort<'a>,
    /// The proof of the user's identity.
    pub proof: UserCredentials<'a>,
    /// The state of the previous reply. `None` in the first request.
    pub continues: Option<&'a LoginRoundState>,
    /// Further attributes, such as Connect-Info.
    pub attributes: Option<&'a AttributeList>,
}

impl<'a> AccessRequest<'a> {
    /// Returns the first request of a login, without a port.
    #[must_use]
    pub const fn new(name: &'a [u8], proof: UserCredentials<'a>) -> Self {
        let port = NasPort { number: None, id: None, calling_station: None, called_station: None, mtu: None };
        Self { name, port, proof, continues: None, attributes: None }
    }
}

/// The state that ties the rounds of a login together: State (RFC 2865 §5.24), and over Diameter the server's name.
/// Empty before the first round. [`AccessReply::fill_continuation`](crate::AccessReply::fill_continuation) fills it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoginRoundState(Vec<u8>);

impl LoginRoundState {
    /// Returns the state of a new login.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// Sets the server's name and its State. A name that is too long is omitted.
    pub(crate) fn set_host_and_state(&mut self, host: &[u8], state: &[u8]) {
        self.0.clear();
        self.0.reserve(1 + host.len() + state.len());
        let (length, host) = u8::try_from(host.len()).map_or((0, &[][..]), |length| (length, host));
        self.0.push(length);
        self.0.extend_from_slice(host);
        self.0.extend_from_slice(state);
    }
    /// The server's name and the State, each possibly empty.
    pub(crate) fn host_and_state(&self) -> (&[u8], &[u8]) {
        self.0.split_first().and_then(|(&n, rest)| rest.split_at_checked(n.into())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continuation_keeps_server_and_state() {
        let mut next = LoginRoundState::new();
        assert_eq!(next.host_and_state(), (&[][..], &[][..]));
        for (host, state, kept) in [(&b"aaa.example"[..], &b"state"[..], true), (&[7; 300], b"state", false)]
        {
            next.set_host_and_state(host, state);
            assert_eq!(next.host_and_state(), (if kept { host } else { &[] }, state));
        }
        assert_eq!(LoginRoundState(alloc::vec![200, 1]).host_and_state(), Default::default());
    }
}
