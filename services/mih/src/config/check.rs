//! Checks that types cannot express.

use super::model::{InterfaceTable, MihConfigFile};
use crate::link::{InterfaceConfig, LinkThresholdConfig};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_config::{KeyPathError, Prefix};
use usher_mih::{MAX_MIHF_ID, MihfId};

/// The function's identifier and its interfaces.
pub(super) type CheckedFunctionConfig = (Option<MihfId>, Vec<InterfaceConfig>);

/// Minimum size of a datagram: it must hold the header, the identifiers and some payload.
const SHORTEST: u64 = 548;
/// Maximum size of a UDP payload.
const LONGEST: u64 = 65_507;

/// Checks a file and returns the result with its faults.
pub(super) fn check_file(file: &MihConfigFile) -> (Option<CheckedFunctionConfig>, Vec<KeyPathError>) {
    let mut found: Vec<KeyPathError> = Vec::new();
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let id = file
        .id
        .as_ref()
        .and_then(|text| parse_identifier(text).map_err(|message| found.push((keys(&["id"]), message))).ok());
    for (key, listen) in [("udp", &file.listen.udp), ("tcp", &file.listen.tcp)] {
        for (i, address) in listen.iter().enumerate() {
            if listen.iter().take(i).any(|earlier| earlier == address) {
                let message = format!("{address} is listed twice; remove one of them");
                found.push((keys(&["listen", key, &i.to_string()]), message));
            }
        }
    }
    for (i, allow) in file.allow.iter().enumerate() {
        let same = |other: &Prefix| other.bits == allow.prefix.bits && other.contains(allow.prefix.network);
        if let Some(earlier) = file.allow.iter().take(i).position(|other| same(&other.prefix)) {
            let message =
                format!("{} is also the prefix of allow[{earlier}]; remove one of them", allow.prefix);
            found.push((keys(&["allow", &i.to_string(), "prefix"]), message));
        }
    }
    let mut interfaces = Vec::new();
    for (i, table) in file.interface.iter().enumerate() {
        let number = i.to_string();
        let at = |key: &[&str]| keys(&[&["interface", &number], key].concat());
        if file.interface.iter().take(i).any(|other| other.name == table.name) {
            found.push((at(&["name"]), format!("{} is listed twice; remove one of them", table.name)));
        }
        interfaces.extend(check_interface(table, &at, &mut found));
    }
    for (i, peer) in file.peer.iter().enumerate() {
        let number = i.to_string();
        let at = |key: &str| keys(&["peer", &number, key]);
        if let Err(message) = parse_identifier(&peer.id) {
            found.push((at("id"), message));
        }
        if file.id.as_ref() == Some(&peer.id) {
            found.push((at("id"), format!("{} is the id of this function itself", peer.id)));
        }
        if file.peer.iter().take(i).any(|other| other.id == peer.id) {
            found.push((at("id"), format!("{} is listed twice; remove one of them", peer.id)));
        }
        if peer.address.is_unspecified() || peer.port == 0 {
            found.push((at("address"), "give the address of a host, and a port other than 0".to_owned()));
        }
        let families = file.listen.udp.iter().chain(&file.listen.tcp).map(SocketAddr::ip);
        let same = |own: IpAddr| own.is_ipv4() == peer.address.is_ipv4();
        let own: Vec<IpAddr> = families.filter(|own| same(*own)).collect();
        if !file.listen.udp.is_empty() && own.is_empty() {
            let message = format!("[listen] needs an address of the same family as {}", peer.address);
            found.push((at("address"), message));
        } else if !own.is_empty() && own.iter().all(IpAddr::is_loopback) && !peer.address.is_loopback() {
            let message = format!(
                "[listen] has only loopback addresses, which cannot reach {}; add an address of this host, or \
                 0.0.0.0 and [::]",
                peer.address
            );
            found.push((at("address"), message));
        }
    }
    found.extend(super::handover::check_handover(file));
    let message = file.limits.message.bytes();
    if !(SHORTEST..=LONGEST).contains(&message) {
        let text = format!("give {SHORTEST} B to {LONGEST} B, such as the path's MTU (RFC 5677, 6.1)");
        found.push((keys(&["limits", "message"]), text));
    }
    if file.timers.retransmissions > u32::from(u8::MAX) {
        found.push((keys(&["timers", "retransmissions"]), "give at most 255; the standard has 2".to_owned()));
    }
    for (key, time) in [("refresh", file.timers.refresh), ("retry", file.timers.retry)] {
        if time.get() < usher_core::Duration::from_millis(100) {
            found.push((
                keys(&["timers", key]),
                "give at least 100 ms; less would flood the peers".to_owned(),
            ));
        }
    }
    (found.is_empty().then_some((id, interfaces)), found)
}

fn check_interface(
    table: &InterfaceTable,
    at: &dyn Fn(&[&str]) -> Vec<String>,
    found: &mut Vec<KeyPathError>,
) -> Option<InterfaceConfig> {
    if table.name.is_empty() || table.name.len() > 15 || table.name.contains(['/', ' ']) {
        let message = format!(
            "\"{}\" is not an interface name: it has 1 to 15 characters, without blanks and slashes",
            table.name
        );
        found.push((at(&["name"]), message));
    }
    let mut mac = |key: &str, text: &Option<String>| {
        let text = text.as_ref()?;
        let mac = parse_mac(text);
        if mac.is_none() {
            let message = format!("\"{text}\" is not a MAC address such as \"02:00:00:00:00:01\"");
            found.push((at(&[key]), message));
        }
        mac
    };
    let (address, poa) = (mac("address", &table.address), mac("poa", &table.poa));
    if let Some(watch) = &table.watch {
        let mut wrong = |key: &str, message: &str| found.push((at(&["watch", key]), message.to_owned()));
        if !watch.below.is_finite() {
            wrong("below", "give a finite number");
        }
        if !(watch.hysteresis.is_finite() && watch.hysteresis >= 0.0) {
            wrong("hysteresis", "give a number of 0 or more");
        }
        if watch.interval.get() < usher_core::Duration::from_millis(10) {
            wrong("interval", "give at least 10 ms; shorter intervals load the processor");
        }
    }
    let watch = table.watch.as_ref().map(|watch| LinkThresholdConfig {
        file: watch.file.clone(),
        below: watch.below,
        hysteresis: watch.hysteresis,
        interval: watch.interval.get(),
        time_to_loss: watch.within.get(),
    });
    Some(InterfaceConfig {
        name: table.name.clone(),
        technology: table.link_type.map(super::model::LinkTypeName::link_type),
        address,
        poa,
        allow_actions: table.allow_actions,
        watch,
    })
}

/// Parses a MAC address: six pairs of hexadecimal digits separated by colons.
#[must_use]
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut pairs = text.split(':');
    for octet in &mut mac {
        let pair = pairs.next().filter(|pair| pair.len() == 2)?;
        *octet = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(mac)
}

/// Parses an MIHF identifier: a host name or a network access identifier (RFC 5677, 4.2; RFC 4282, 2.1).
///
/// # Errors
/// A sentence with the expected form.
pub fn parse_identifier(text: &str) -> Result<MihfId, String> {
    let (user, host) = text.rsplit_once('@').map_or((None, text), |(user, host)| (Some(user), host));
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let part = |user: &str| !user.is_empty() && user.bytes().all(|b| b.is_ascii_graphic() && b != b'@');
    if user.is_none_or(part) && host.split('.').all(label) && text.len() <= MAX_MIHF_ID {
        return MihfId::new(text).map_err(|e| e.to_string());
    }
    Err(format!(
        "\"{text}\" is not an MIHF identifier: give a host name or a network access identifier such as \
         \"mn1@example.org\", with at most {MAX_MIHF_ID} characters"
    ))
}
