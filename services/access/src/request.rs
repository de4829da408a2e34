//! A question to an AAA server: may this user in?

use crate::{LoginProof, NasPort};
use alloc::vec::Vec;
use usher_radius::attribute::AttributeList;

/// A question, borrowed from who asks it.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// User-Name: for EAP the identity that the peer gave, with every round (RFC 3579 §2.1). At least one octet; over
    /// Diameter UTF-8.
    pub name: &'a [u8],
    /// Where the user is.
    pub port: NasPort<'a>,
    /// What shows that it is that user.
    pub proof: LoginProof<'a>,
    /// What the reply before, which this answers, wants to be told again; `None`: this is the first question.
    pub continues: Option<&'a LoginContinuation>,
    /// What else is to be said, such as Connect-Info.
    pub attributes: Option<&'a AttributeList>,
}

impl<'a> AccessRequest<'a> {
    /// The first question for a user, without a port.
    #[must_use]
    pub const fn new(name: &'a [u8], proof: LoginProof<'a>) -> Self {
        let port = NasPort { number: None, id: None, calling_station: None, called_station: None, mtu: None };
        Self { name, port, proof, continues: None, attributes: None }
    }
}

/// What ties the rounds of one login together: State (RFC 2865 §5.24), and over Diameter the server that gave it.
/// Empty before the first round. [`Reply::continuation`](crate::AccessReply::fill_continuation) fills it in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoginContinuation(Vec<u8>);

impl LoginContinuation {
    /// Of a login that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// The server's name behind its length, and the State that it gave; a name that is too long is left out.
    pub(crate) fn set_state(&mut self, host: &[u8], state: &[u8]) {
        self.0.clear();
        self.0.reserve(1 + host.len() + state.len());
        let (length, host) = u8::try_from(host.len()).map_or((0, &[][..]), |length| (length, host));
        self.0.push(length);
        self.0.extend_from_slice(host);
        self.0.extend_from_slice(state);
    }
    /// The server's name and the State; empty where there is none.
    pub(crate) fn host_and_state(&self) -> (&[u8], &[u8]) {
        self.0.split_first().and_then(|(&n, rest)| rest.split_at_checked(n.into())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continuation_keeps_server_and_state() {
        let mut next = LoginContinuation::new();
        assert_eq!(next.host_and_state(), (&[][..], &[][..]));
        for (host, state, kept) in [(&b"aaa.example"[..], &b"state"[..], true), (&[7; 300], b"state", false)]
        {
            next.set_state(host, state);
            assert_eq!(next.host_and_state(), (if kept { host } else { &[] }, state));
        }
        assert_eq!(LoginContinuation(alloc::vec![200, 1]).host_and_state(), Default::default());
    }
}
