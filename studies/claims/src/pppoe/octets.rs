//! The overhead of encapsulations around an IP packet, computed from their headers.

use super::{FindingResult, of_parts, verdict_if};
use crate::data::Claim;
use crate::judge::{FindingError, Verdict};
use crate::measure::estimate_mean;
use crate::results::VariantResults;
use usher_ppp::pppoe::{MacAddress, PppoeCode, PppoeFrame, PppoeStage};

const IPV4: usize = 20;
const TCP: usize = 20;
const ETHERNET: usize = 14;
/// A study of PPPoE over an 802.11 cell.
const WLAN: &str = "pppoe-wlan";

/// Returns the octets of PPPoE and PPP around an IP packet (RFC 2516 §4, RFC 1661 §2), from an encoded frame.
fn pppoe_overhead() -> usize {
    const PACKET: usize = 100;
    let mut frame = Vec::new();
    let payload = [&[0x00, 0x21][..], &[0; PACKET]].concat();
    PppoeFrame {
        destination: MacAddress::BROADCAST,
        source: MacAddress::BROADCAST,
        stage: PppoeStage::Session,
        code: PppoeCode::SESSION,
        session: 1,
        payload: &payload,
    }
    .emit(&mut frame);
    frame.len() - ETHERNET - PACKET
}

/// Returns the minimum and maximum octets of PPTP around an IP packet. They consist of an outer IPv4 header, enhanced
/// GRE and PPP's protocol field. GRE has its key (8), a sequence number (4), and optionally an acknowledgement number
/// (4) (RFC 2637 §4.1). The protocol field has one octet if compressed, and address and control at most (RFC 1661 §6.5,
/// RFC 1662 §3.1).
const fn pptp_overhead() -> [usize; 2] {
    [IPV4 + 8 + 4 + 1, IPV4 + 8 + 4 + 4 + 4]
}

/// Returns the minimum and maximum octets of TLS over TCP around an IP packet. They consist of outer IPv4 and TCP
/// headers, without options or with time stamps (12, RFC 7323 §3), and a record's overhead.
///
/// A record has a header (5). TLS 1.3 with AES-GCM adds a content type and a tag (1 + 16, RFC 8446 §5.2). TLS 1.0 with
/// AES-CBC and HMAC-SHA1 adds a MAC and up to 16 of padding (20 + 16, RFC 2246 §6.2.3.2). The framing of packets in the
/// stream, two octets or more, is not included.
const fn tls_overhead() -> [usize; 2] {
    [IPV4 + TCP + 5 + 1 + 16, IPV4 + TCP + 12 + 5 + 20 + 16]
}

pub(super) fn judge_overhead(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    if !view.has_study(WLAN) {
        return Err(view.missing_study(WLAN));
    }
    let (own, pptp, tls) = (pppoe_overhead(), pptp_overhead(), tls_overhead());
    let sessions = view.measured_choices(WLAN, &["protection"]).into_iter().flat_map(|(_, all)| all);
    let shares: Vec<f64> = sessions
        .filter_map(|(_, measured)| Some(estimate_mean(measured.get("failures.session")?).mean))
        .collect();
    let Some(worst) = shares.iter().copied().reduce(f64::max) else {
        return Err(FindingError::NotComparable(format!("{WLAN} has no failures.session.")));
    };
    let parts = [
        ("fewer octets than PPTP".to_owned(), verdict_if(own < pptp[0])),
        ("fewer octets than IP over TLS".to_owned(), verdict_if(own < tls[0])),
        ("runs over 802.11".to_owned(), if worst == 0.0 { Verdict::Reproduced } else { Verdict::Differs }),
    ];
    let reason = format!(
        "PPPoE adds {own} octets to an IP packet, PPTP {} to {}, and IP over TLS {} to {}. Their shares of a \
         packet of 1500 octets are at least {:.1} %, {:.1} % and {:.1} %. In {WLAN}, the setup of {:.2} % of the \
         sessions over an 802.11 cell failed.",
        pptp[0],
        pptp[1],
        tls[0],
        tls[1],
        own as f64 / 15.0,
        pptp[0] as f64 / 15.0,
        tls[0] as f64 / 15.0,
        worst * 100.0
    );
    Ok(of_parts(format!("{own} octets, {} and {}", pptp[0], tls[0]), &reason, &parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encapsulations_cost_what_their_headers_have() {
        assert_eq!(pppoe_overhead(), usize::from(usher_ppp::pppoe::OVERHEAD));
        assert_eq!((pptp_overhead(), tls_overhead()), ([33, 40], [62, 93]));
    }
}
