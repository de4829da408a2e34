//! Writes verdicts as RADIUS replies and Diameter answers.

use super::avps::attributes_as_avps;
use super::shard::STATE_LEN;
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_diameter::ResultCode;
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes;
use usher_diameter::eap::DiameterEapAnswer;
use usher_diameter::nasreq::AuthRequestType;
use usher_eap::packet::EapType;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::dictionary::RadiusDictionary;
use usher_radius::packet::PacketCode;

/// Identifies a pending request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestToken {
    /// The RADIUS server's token.
    Radius(u64),
    /// The Diameter node's token, and the request's Auth-Request-Type.
    Diameter(u64, AuthRequestType),
}

/// The reply to a request.
#[derive(Debug)]
pub(super) enum LoginVerdict<'a> {
    /// An EAP request, and the State of its session.
    Challenge { eap: &'a [u8], state: [u8; STATE_LEN] },
    /// The pending EAP request again: the peer's packet was ignored.
    Rechallenge { eap: &'a [u8], state: [u8; STATE_LEN] },
    /// Accept, with the EAP method if one was used.
    Accept {
        eap: Option<&'a [u8]>,
        msk: Option<&'a SecretValue<[u8; 64]>>,
        method: Option<EapType>,
        reply: AttributeList,
    },
    /// Reject.
    Reject { eap: Option<&'a [u8]>, reply: AttributeList },
}

/// Returns the reply's code and attributes. `list` provides an empty list.
pub(super) fn build_radius_reply(
    verdict: LoginVerdict<'_>,
    list: impl FnOnce() -> AttributeList,
) -> (PacketCode, AttributeList) {
    let again = matches!(verdict, LoginVerdict::Rechallenge { .. });
    match verdict {
        LoginVerdict::Challenge { eap, state } | LoginVerdict::Rechallenge { eap, state } => {
            let mut a = list();
            a.push_eap(eap);
            if again {
                a.push_u32(kind::ERROR_CAUSE, INVALID_EAP_PACKET_IGNORED);
            }
            // RFC 2865, 4.4, 5.24; RFC 2869, 2.3.1; RFC 3579, 2.1: one State, the EAP-Message and no service.
            let fits = a.push_bytes(kind::STATE, &state);
            debug_assert!(fits.is_ok(), "16 octets fit every attribute");
            (PacketCode::ACCESS_CHALLENGE, a)
        }
        LoginVerdict::Accept { eap, msk, reply: mut a, .. } => {
            if let Some(eap) = eap {
                // RFC 3579, 2.6.5: a NAS would turn Reply-Message into an EAP-Request/Notification after the end of
                // EAP.
                a.remove(kind::REPLY_MESSAGE);
                a.push_eap(eap);
            }
            if let Some(msk) = msk {
                a.push_msk(msk);
            }
            // RFC 2865, 4.2, 4.3: an acceptable login gets an Access-Accept, any other an Access-Reject.
            (PacketCode::ACCESS_ACCEPT, a)
        }
        LoginVerdict::Reject { eap, reply: mut a } => {
            // RFC 2865, 2, 4.3; RFC 3579, 2.2; RFC 5080, 2.6.1: no service and no State, but an EAP-Failure.
            if let Some(eap) = eap {
                a.push_eap(eap);
            }
            (PacketCode::ACCESS_REJECT, a)
        }
    }
}

/// Error-Cause 202: the RADIUS equivalent of EAP-Reissued-Payload (RFC 3579 §2.2, RFC 4072 §6).
pub(super) const INVALID_EAP_PACKET_IGNORED: u32 = 202;

/// Auth-Session-State NO_STATE_MAINTAINED (RFC 6733 §8.11): the server keeps no session of an accepted user.
pub(super) const NO_STATE_MAINTAINED: u32 = 1;

/// Returns the answer's AVPs and its result code. With `round`, the answer includes Multi-Round-Time-Out and the
/// accepted method.
pub(super) fn diameter_answer(
    verdict: &LoginVerdict<'_>,
    request_type: AuthRequestType,
    round: Option<Duration>,
    dictionary: Option<&RadiusDictionary>,
) -> (ResultCode, AvpBuf) {
    let mut dea = DiameterEapAnswer { eap: None, ..DiameterEapAnswer::new(request_type, &[]) };
    let seconds = round.map(|round| u32::try_from(round.as_secs()).unwrap_or(u32::MAX));
    let (result, reply) = match verdict {
        // RFC 4072, 2.8.2: 1001 carries an EAP request, never a Success or Failure.
        LoginVerdict::Challenge { eap, state } => {
            (dea.eap, dea.state, dea.multi_round_timeout) = (Some(*eap), Some(&state[..]), seconds);
            (ResultCode::MULTI_ROUND_AUTH, None)
        }
        LoginVerdict::Rechallenge { eap, state } => {
            (dea.reissued, dea.state, dea.multi_round_timeout) = (Some(*eap), Some(&state[..]), seconds);
            (ResultCode::MULTI_ROUND_AUTH, None)
        }
        LoginVerdict::Accept { eap, msk, method, reply } => {
            (dea.eap, dea.msk) = (*eap, msk.map(|m| &m[..]));
            dea.methods.extend(method.filter(|_| round.is_some()).map(|method| u64::from(method.0)));
            // RFC 4072, 3.2: authorization AVPs go with a code of success.
            (ResultCode::SUCCESS, Some(reply))
        }
        LoginVerdict::Reject { eap, .. } => {
            dea.eap = *eap;
            (ResultCode::AUTHENTICATION_REJECTED, None)
        }
    };
    let mut avps = dea.to_avps();
    avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
    if let Some(reply) = reply {
        attributes_as_avps(reply, dea.eap.is_some(), dictionary, &mut avps);
    }
    (result, avps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_diameter::AvpView;

    #[test]
    fn reply_attributes_become_avps_of_their_number() {
        let mut reply = AttributeList::new();
        reply.push_u32(kind::SESSION_TIMEOUT, 600).push_user_password(b"hidden").unwrap();
        reply.push_vendor(9, 1, b"x").unwrap();
        let msk = SecretValue::new([7; 64]);
        let (eap, method) = (Some(&[3, 1, 0, 4][..]), Some(EapType::TLS));
        let verdict = LoginVerdict::Accept { eap, msk: Some(&msk), method, reply };
        let (result, avps) = diameter_answer(&verdict, AuthRequestType::AuthenticateOnly, None, None);
        assert_eq!(result, ResultCode::SUCCESS);
        let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
        assert_eq!(
            (dea.session_timeout, dea.msk, dea.eap),
            (Some(600), Some(&msk[..]), Some(&[3, 1, 0, 4][..]))
        );
        let vendor: Vec<AvpView<'_>> = avps.as_sequence().filter(|a| a.vendor == 9).collect();
        assert_eq!((vendor.len(), vendor[0].code, vendor[0].data), (1, 1, &b"x"[..]));
        assert!(avps.as_sequence().get(codes::USER_PASSWORD).is_none());
    }

    /// RFC 6733 §8.19, RFC 4072 §2.7: only if configured, since studies count messages without them.
    #[test]
    fn a_dea_says_how_long_a_round_may_take_and_which_method_let_in() {
        let round = Some(Duration::from_secs(30));
        for (round, seconds, methods) in [(round, Some(30), vec![13]), (None, None, vec![])] {
            let said = |verdict| {
                let (result, avps) =
                    diameter_answer(&verdict, AuthRequestType::AuthenticateOnly, round, None);
                let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
                (result.0, dea.eap.is_some(), dea.reissued.is_some(), dea.multi_round_timeout, dea.methods)
            };
            let (eap, state) = (&[1, 2, 0, 6, 4, 0][..], [7; STATE_LEN]);
            assert_eq!(said(LoginVerdict::Challenge { eap, state }), (1001, true, false, seconds, vec![]));
            assert_eq!(said(LoginVerdict::Rechallenge { eap, state }), (1001, false, true, seconds, vec![]));
            let accept = LoginVerdict::Accept {
                eap: Some(&[3, 2, 0, 4]),
                msk: None,
                method: Some(EapType::TLS),
                reply: AttributeList::new(),
            };
            assert_eq!(said(accept), (2001, true, false, None, methods));
        }
    }
}
