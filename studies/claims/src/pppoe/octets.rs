//! What encapsulations add to an IP packet: computed from their headers.

use super::{FindingResult, of_parts, verdict_if};
use crate::data::Claim;
use crate::judge::{FindingError, Verdict};
use crate::measure::estimate_mean;
use crate::results::VariantView;
use usher_ppp::pppoe::{MacAddress, PppoeCode, PppoeFrame, PppoeStage};

const IPV4: usize = 20;
const TCP: usize = 20;
const ETHERNET: usize = 14;
/// A study in which PPPoE goes by an 802.11 cell.
const WLAN: &str = "pppoe-wlan";

/// Octets of PPPoE and PPP around an IP packet (RFC 2516 §4, RFC 1661 §2): of a frame as it is sent.
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

/// Octets of PPTP around an IP packet, fewest and most: an outer IPv4 header; enhanced GRE with its key (8) and a sequence number
/// (4), with or without an acknowledgement number (4) (RFC 2637 §4.1); PPP's protocol field, compressed to one octet at best, with
/// address and control at worst (RFC 1661 §6.5, RFC 1662 §3.1).
const fn pptp_overhead() -> [usize; 2] {
    [IPV4 + 8 + 4 + 1, IPV4 + 8 + 4 + 4 + 4]
}

/// Octets of IP by TLS over TCP, fewest and most: outer IPv4 and TCP headers, without options and with time stamps (12, RFC 7323
/// §3); a record's header (5), and of TLS 1.3 with AES-GCM a content type and a tag (1 + 16, RFC 8446 §5.2), or of TLS 1.0 with AES-CBC and HMAC-SHA1 a code and up
/// to 16 of padding (20 + 16, RFC 2246 §6.2.3.2). How packets are told apart in the stream, two octets or more, is not counted.
const fn tls_overhead() -> [usize; 2] {
    [IPV4 + TCP + 5 + 1 + 16, IPV4 + TCP + 12 + 5 + 20 + 16]
}

pub(super) fn judge_overhead(_: &Claim, view: &VariantView<'_>) -> FindingResult {
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
        "PPPoE adds {own} octets to an IP packet, PPTP {} to {}, IP over TLS {} to {}: of a packet of 1500 octets {:.1} %, {:.1} % and {:.1} % at least. \
         In {WLAN} {:.2} % of the sessions failed to be set up over an 802.11 cell.",
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
