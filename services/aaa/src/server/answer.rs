//! Verdicts, written in the terms of the protocol that asked.

use super::shard::STATE_LEN;
use usher_diameter::ResultCode;
use usher_diameter::avp::{AvpBuf, AvpId};
use usher_diameter::codes;
use usher_diameter::eap::Dea;
use usher_diameter::nasreq::AuthRequestType;
use usher_radius::attribute::{Attributes, Vendor, kind, read_vendors, vendor};
use usher_radius::packet::Code;

/// A request that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// The RADIUS server's token.
    Radius(u64),
    /// The Diameter node's token, and what the request asked for.
    Diameter(u64, AuthRequestType),
}

/// What a request is answered.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    /// Go on: an EAP request, and the session it belongs to.
    Challenge { eap: &'a [u8], state: [u8; STATE_LEN] },
    /// Welcome.
    Accept { eap: Option<&'a [u8]>, msk: Option<&'a [u8; 64]>, reply: Attributes },
    /// Go away.
    Reject { eap: Option<&'a [u8]>, reply: Attributes },
}

/// The reply's code and attributes; `list` gives an empty list.
pub(super) fn radius(verdict: Verdict<'_>, list: impl FnOnce() -> Attributes) -> (Code, Attributes) {
    match verdict {
        Verdict::Challenge { eap, state } => {
            let mut a = list();
            a.push_eap(eap);
            let fits = a.push_bytes(kind::STATE, &state);
            debug_assert!(fits.is_ok(), "16 octets fit every attribute");
            (Code::ACCESS_CHALLENGE, a)
        }
        Verdict::Accept { eap, msk, reply: mut a } => {
            if let Some(eap) = eap {
                // RFC 3579 §2.6.5: a NAS would make an EAP-Request/Notification of it, behind the end.
                a.remove(kind::REPLY_MESSAGE);
                a.push_eap(eap);
            }
            if let Some(msk) = msk {
                a.push_msk(msk);
            }
            (Code::ACCESS_ACCEPT, a)
        }
        Verdict::Reject { eap, reply: mut a } => {
            if let Some(eap) = eap {
                a.push_eap(eap);
            }
            (Code::ACCESS_REJECT, a)
        }
    }
}

/// Auth-Session-State NO_STATE_MAINTAINED (RFC 6733 §8.11): the server remembers nobody it let in.
const NO_STATE_MAINTAINED: u32 = 1;

/// The answer's AVPs and its result code.
pub(super) fn diameter(verdict: &Verdict<'_>, request_type: AuthRequestType) -> (ResultCode, AvpBuf) {
    let mut dea = Dea { eap: None, ..Dea::new(request_type, &[]) };
    let (result, reply) = match verdict {
        Verdict::Challenge { eap, state } => {
            (dea.eap, dea.state) = (Some(*eap), Some(&state[..]));
            (ResultCode::MULTI_ROUND_AUTH, None)
        }
        Verdict::Accept { eap, msk, reply } => {
            (dea.eap, dea.msk) = (*eap, msk.map(|m| &m[..]));
            (ResultCode::SUCCESS, Some(reply))
        }
        Verdict::Reject { eap, .. } => {
            dea.eap = *eap;
            (ResultCode::AUTHENTICATION_REJECTED, None)
        }
    };
    let mut avps = dea.avps();
    avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
    if let Some(reply) = reply {
        attributes_as_avps(reply, &mut avps);
    }
    (result, avps)
}

/// Microsoft's keys (RFC 2548 §2.4), which RADIUS hides and Diameter says by EAP-Master-Session-Key.
pub(super) const HIDDEN_KEYS: [u8; 3] = [12, vendor::MS_MPPE_SEND_KEY, vendor::MS_MPPE_RECV_KEY];

/// RADIUS attributes as AVPs: the first 256 AVP codes are the attributes' numbers, their values are
/// written alike (RFC 6733 §4.1, RFC 7155 §4). Hidden values have no counterpart and are left out.
pub(super) fn attributes_as_avps(reply: &Attributes, avps: &mut AvpBuf) {
    const HIDDEN: [u8; 2] = [kind::USER_PASSWORD, kind::TUNNEL_PASSWORD];
    for a in reply.iter().filter(|a| a.kind != kind::VENDOR_SPECIFIC && !HIDDEN.contains(&a.kind)) {
        avps.push(AvpId::must(a.kind.into()), a.value);
    }
    let hidden = |v: &Vendor<'_>| v.vendor == vendor::MICROSOFT && HIDDEN_KEYS.contains(&v.kind);
    for v in read_vendors(reply.iter()).filter(|v| !hidden(v)) {
        avps.push(AvpId::of_vendor(v.vendor, v.kind.into(), false), v.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::AvpView;

    #[test]
    fn reply_attributes_become_avps_of_their_number() {
        let mut reply = Attributes::new();
        reply.push_u32(kind::SESSION_TIMEOUT, 600).push_user_password(b"hidden").unwrap();
        reply.push_vendor(9, 1, b"x").unwrap();
        let msk = [7; 64];
        let verdict = Verdict::Accept { eap: Some(&[3, 1, 0, 4]), msk: Some(&msk), reply };
        let (result, avps) = diameter(&verdict, AuthRequestType::AuthenticateOnly);
        assert_eq!(result, ResultCode::SUCCESS);
        let dea = Dea::parse(avps.view()).unwrap();
        assert_eq!(
            (dea.session_timeout, dea.msk, dea.eap),
            (Some(600), Some(&msk[..]), Some(&[3, 1, 0, 4][..]))
        );
        let vendor: Vec<AvpView<'_>> = avps.view().filter(|a| a.vendor == 9).collect();
        assert_eq!((vendor.len(), vendor[0].code, vendor[0].data), (1, 1, &b"x"[..]));
        assert!(avps.view().get(codes::USER_PASSWORD).is_none());
    }
}
