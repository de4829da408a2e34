//! Sections that charon rejects. An unknown key or an invalid value discards the whole connection: `parse_rules` of
//! `vici_config.c` in strongSwan 5.9.8, behind `load_conns.c` of swanctl. Keys are case-sensitive, in lower case.

use super::settings::{SourceLine, SwanctlSection};
use super::words::{
    is_section_of_side, leading_number, parse_prefix, parse_swanctl_time, split_volume,
    unspecified_address_families,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// The reason why charon rejects a connection or a pool.
pub(super) struct CharonRejection {
    pub(super) position: SourceLine,
    /// The sentence after its name.
    pub(super) why: String,
}

/// charon's reading of a connection.
#[derive(Default)]
pub(super) struct ConnectionParseResult {
    /// The first refusal.
    pub(super) refusal: Option<CharonRejection>,
    /// Settings that only releases after 5.9.8 know.
    pub(super) later: Vec<(SourceLine, String)>,
    /// Settings that charon may read differently from ours.
    pub(super) unclear: Vec<(SourceLine, String)>,
}

/// The type of a value in charon.
#[derive(Clone, Copy)]
enum CharonValueKind {
    Boolean,
    Number,
    /// A binary number.
    Binary,
    Time,
    Volume,
    Mark,
    SetMark,
    InterfaceId,
    Padding,
    Action,
    Auth,
    /// One of these words, case-insensitive.
    Words(&'static [&'static str]),
    Identity,
    Text,
    Host,
    Selector,
    Proposal(ProposalProtocol),
    /// A file, which is not read here.
    File,
    /// Depends on how strongSwan was built.
    BuildOption,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProposalProtocol {
    Ike,
    Esp,
    Ah,
}

/// The result of reading a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ValueParseResult {
    Readable,
    Unreadable,
    /// Valid in releases after 5.9.8.
    Later,
    Unclear,
}

type SwanctlKeyKinds = &'static [(&'static str, CharonValueKind)];

/// Keys that swanctl sends as lists.
const LISTS: &[&str] = &[
    "local_addrs",
    "remote_addrs",
    "proposals",
    "esp_proposals",
    "ah_proposals",
    "local_ts",
    "remote_ts",
    "vips",
    "pools",
    "groups",
    "cert_policy",
    "certs",
    "cacerts",
    "pubkeys",
];

const CONNECTION_LISTS: SwanctlKeyKinds = &[
    ("local_addrs", CharonValueKind::Text),
    ("remote_addrs", CharonValueKind::Text),
    ("proposals", CharonValueKind::Proposal(ProposalProtocol::Ike)),
    ("vips", CharonValueKind::Host),
    ("pools", CharonValueKind::Text),
];

const CONNECTION_KEYS: SwanctlKeyKinds = &[
    ("version", CharonValueKind::Number),
    ("aggressive", CharonValueKind::Boolean),
    ("pull", CharonValueKind::Boolean),
    ("dscp", CharonValueKind::Binary),
    ("encap", CharonValueKind::Boolean),
    ("mobike", CharonValueKind::Boolean),
    ("dpd_delay", CharonValueKind::Time),
    ("dpd_timeout", CharonValueKind::Time),
    ("fragmentation", CharonValueKind::Words(&["yes", "accept", "no", "force"])),
    ("childless", CharonValueKind::Words(&["allow", "never", "force"])),
    ("send_certreq", CharonValueKind::Boolean),
    ("send_cert", CharonValueKind::Words(&["ifasked", "always", "never"])),
    ("keyingtries", CharonValueKind::Number),
    ("unique", CharonValueKind::Words(&["never", "no", "replace", "keep"])),
    ("local_port", CharonValueKind::Number),
    ("remote_port", CharonValueKind::Number),
    ("reauth_time", CharonValueKind::Time),
    ("rekey_time", CharonValueKind::Time),
    ("over_time", CharonValueKind::Time),
    ("rand_time", CharonValueKind::Time),
    ("ppk_id", CharonValueKind::Identity),
    ("ppk_required", CharonValueKind::Boolean),
    ("if_id_in", CharonValueKind::InterfaceId),
    ("if_id_out", CharonValueKind::InterfaceId),
    ("mediation", CharonValueKind::BuildOption),
    ("mediated_by", CharonValueKind::BuildOption),
    ("mediation_peer", CharonValueKind::BuildOption),
];

const ROUND_LISTS: SwanctlKeyKinds = &[
    ("groups", CharonValueKind::Identity),
    ("cert_policy", CharonValueKind::Identity),
    ("certs", CharonValueKind::File),
    ("cacerts", CharonValueKind::File),
    ("pubkeys", CharonValueKind::File),
];

const ROUND_KEYS: SwanctlKeyKinds = &[
    ("auth", CharonValueKind::Auth),
    ("id", CharonValueKind::Identity),
    ("ca_id", CharonValueKind::Identity),
    ("aaa_id", CharonValueKind::Identity),
    ("eap_id", CharonValueKind::Identity),
    ("xauth_id", CharonValueKind::Identity),
    ("revocation", CharonValueKind::Words(&["strict", "ifuri", "relaxed"])),
    ("round", CharonValueKind::Number),
];

const CERTIFICATE_KEYS: SwanctlKeyKinds = &[
    ("handle", CharonValueKind::Text),
    ("slot", CharonValueKind::Number),
    ("module", CharonValueKind::Text),
    ("file", CharonValueKind::Text),
];

const CHILD_LISTS: SwanctlKeyKinds = &[
    ("ah_proposals", CharonValueKind::Proposal(ProposalProtocol::Ah)),
    ("esp_proposals", CharonValueKind::Proposal(ProposalProtocol::Esp)),
    ("local_ts", CharonValueKind::Selector),
    ("remote_ts", CharonValueKind::Selector),
];

const CHILD_KEYS: SwanctlKeyKinds = &[
    ("updown", CharonValueKind::Text),
    ("hostaccess", CharonValueKind::Boolean),
    ("mode", CharonValueKind::Words(&["tunnel", "transport", "transport_proxy", "beet", "drop", "pass"])),
    ("policies", CharonValueKind::Boolean),
    ("policies_fwd_out", CharonValueKind::Boolean),
    ("replay_window", CharonValueKind::Number),
    ("rekey_time", CharonValueKind::Time),
    ("life_time", CharonValueKind::Time),
    ("rand_time", CharonValueKind::Time),
    ("rekey_bytes", CharonValueKind::Volume),
    ("life_bytes", CharonValueKind::Volume),
    ("rand_bytes", CharonValueKind::Volume),
    ("rekey_packets", CharonValueKind::Number),
    ("life_packets", CharonValueKind::Number),
    ("rand_packets", CharonValueKind::Number),
    ("dpd_action", CharonValueKind::Action),
    ("start_action", CharonValueKind::Action),
    ("close_action", CharonValueKind::Action),
    ("ipcomp", CharonValueKind::Boolean),
    ("inactivity", CharonValueKind::Time),
    ("reqid", CharonValueKind::Number),
    ("mark_in", CharonValueKind::Mark),
    ("mark_in_sa", CharonValueKind::Boolean),
    ("mark_out", CharonValueKind::Mark),
    ("set_mark_in", CharonValueKind::SetMark),
    ("set_mark_out", CharonValueKind::SetMark),
    ("tfc_padding", CharonValueKind::Padding),
    ("priority", CharonValueKind::Number),
    ("interface", CharonValueKind::Text),
    ("hw_offload", CharonValueKind::Words(&["no", "yes", "auto"])),
    ("sha256_96", CharonValueKind::Boolean),
    ("copy_df", CharonValueKind::Boolean),
    ("copy_ecn", CharonValueKind::Boolean),
    ("copy_dscp", CharonValueKind::Words(&["no", "in", "out", "yes"])),
    ("if_id_in", CharonValueKind::InterfaceId),
    ("if_id_out", CharonValueKind::InterfaceId),
    // Labels are valid, since strongSwan may be built with SELinux. A later step stops the import because of them.
    ("label", CharonValueKind::Identity),
    ("label_mode", CharonValueKind::Words(&["system", "simple", "selinux"])),
];

/// Keys, and words of values, of releases after 5.9.8.
const LATER_CONNECTION_KEYS: &[&str] = &["ocsp"];
const LATER_CHILD_KEYS: &[&str] = &["icmp", "per_cpu_sas"];
const LATER_WORDS: &[(&str, &str)] =
    &[("childless", "prefer"), ("mode", "iptfs"), ("hw_offload", "crypto"), ("hw_offload", "packet")];

const POOL_ATTRIBUTES: &[&str] = &[
    "addrs",
    "address",
    "dns",
    "nbns",
    "dhcp",
    "netmask",
    "server",
    "subnet",
    "split_include",
    "split_exclude",
];

/// Reads a connection as charon does.
pub(super) fn read_connection(connection: &SwanctlSection) -> ConnectionParseResult {
    let mut reading = ConnectionParseResult::default();
    reading.read_values(connection, (CONNECTION_KEYS, CONNECTION_LISTS, LATER_CONNECTION_KEYS));
    for (name, section) in &connection.sections {
        if name.eq_ignore_ascii_case("children") {
            // charon ignores values beside the CHILD_SAs, and sections within them.
            for (_, child) in &section.sections {
                reading.read_values(child, (CHILD_KEYS, CHILD_LISTS, LATER_CHILD_KEYS));
            }
        } else if is_section_of_side(name, "local") || is_section_of_side(name, "remote") {
            reading.read_values(section, (ROUND_KEYS, ROUND_LISTS, &[]));
            for (name, certificate) in &section.sections {
                reading.read_certificate(name, certificate);
            }
        } else {
            reading.set_first_refusal(section.line, alloc::format!("has an unknown section {name}"));
        }
    }
    reading
}

/// Returns the reason why charon rejects a pool, if any.
pub(super) fn find_pool_refusal(pool: &SwanctlSection) -> Option<CharonRejection> {
    let is_known = |key: &str| POOL_ATTRIBUTES.contains(&key) || is_number(key);
    let (key, _, place) =
        pool.values.iter().find(|(key, value, _)| !(is_known(key) || split_list_items(value).is_empty()))?;
    Some(CharonRejection { position: *place, why: alloc::format!("has an unknown attribute {key}") })
}

impl ConnectionParseResult {
    fn set_first_refusal(&mut self, place: SourceLine, why: String) {
        self.refusal.get_or_insert(CharonRejection { position: place, why });
    }

    /// Reads values by the keys, the lists and the later keys of a section.
    fn read_values(
        &mut self,
        section: &SwanctlSection,
        (keys, lists, later): (SwanctlKeyKinds, SwanctlKeyKinds, &[&str]),
    ) {
        for (key, value, place) in &section.values {
            let is_list = LISTS.iter().any(|list| list.eq_ignore_ascii_case(key));
            let items = if is_list { split_list_items(value) } else { Vec::from([value.as_str()]) };
            // swanctl does not send an empty list, so charon does not check it.
            if items.is_empty() {
                continue;
            }
            let known = if is_list { lists } else { keys };
            let Some((_, kind)) = known.iter().find(|(name, _)| name == key) else {
                if later.contains(&key.as_str()) {
                    self.later.push((*place, key.clone()));
                } else {
                    self.set_first_refusal(*place, alloc::format!("has an unknown key {key}"));
                }
                continue;
            };
            for item in items {
                let shown = || alloc::format!("{key} = {item}");
                match kind.read_value(key, item) {
                    ValueParseResult::Readable => {}
                    ValueParseResult::Later => self.later.push((*place, shown())),
                    ValueParseResult::Unclear => self.unclear.push((*place, shown())),
                    ValueParseResult::Unreadable => {
                        self.set_first_refusal(
                            *place,
                            alloc::format!("has a value that charon cannot read, {}", shown()),
                        );
                    }
                }
            }
        }
    }

    /// Reads the certificates of a round, each in its own section.
    fn read_certificate(&mut self, name: &str, section: &SwanctlSection) {
        if !(is_section_of_side(name, "cert") || is_section_of_side(name, "cacert")) {
            return self.set_first_refusal(section.line, alloc::format!("has an unknown section {name}"));
        }
        self.read_values(section, (CERTIFICATE_KEYS, &[], &[]));
        if section.value("handle").is_some() == section.value("file").is_some() {
            self.set_first_refusal(section.line, alloc::format!("needs either handle or file in {name}"));
        }
    }
}

/// Returns the items of a list. Only spaces are trimmed.
fn split_list_items(value: &str) -> Vec<&str> {
    value.split(',').map(|item| item.trim_matches(' ')).filter(|item| !item.is_empty()).collect()
}

fn is_number(text: &str) -> bool {
    leading_number(text, 0).1.is_empty()
}

/// True if a text is one of these words, case-insensitive.
fn is_one_of_words(words: &[&str], text: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

impl CharonValueKind {
    /// The number of octets that charon reads. It ignores further ones.
    const fn octet_limit(self) -> usize {
        match self {
            Self::Number | Self::Binary | Self::Time | Self::Volume | Self::Padding => 15,
            Self::Mark | Self::SetMark | Self::InterfaceId => 31,
            Self::Auth | Self::Host => 63,
            Self::Text | Self::File => usize::MAX,
            _ => 511,
        }
    }

    fn read_value(self, key: &str, value: &str) -> ValueParseResult {
        if matches!(self, Self::File) {
            return ValueParseResult::Readable;
        }
        // charon uses the C locale, where only ASCII is printable.
        if !value.bytes().all(|octet| matches!(octet, b' '..=b'~')) {
            return ValueParseResult::Unreadable;
        }
        if value.len() > self.octet_limit() {
            return ValueParseResult::Unclear;
        }
        let is_readable = match self {
            Self::Boolean => {
                is_one_of_words(&["yes", "true", "enabled", "1", "no", "false", "disabled", "0"], value)
            }
            Self::Number => is_number(value),
            Self::Binary => leading_number(value, 2).1.is_empty(),
            Self::Time => parse_swanctl_time(value).is_some(),
            Self::Volume => split_volume(value).is_some(),
            Self::Mark => is_valid_mark(value, &["%unique-dir", "%unique"]),
            Self::SetMark => is_valid_mark(value, &["%same"]),
            Self::InterfaceId => is_one_of_words(&["%unique", "%unique-dir"], value) || is_number(value),
            Self::Padding => value == "mtu" || is_number(value),
            Self::Action => is_valid_child_action(value),
            Self::Auth => is_valid_auth_method(value),
            Self::Words(words) => {
                let later = LATER_WORDS.iter().filter(|(name, _)| *name == key).map(|(_, word)| word);
                if later.into_iter().any(|word| word.eq_ignore_ascii_case(value)) {
                    return ValueParseResult::Later;
                }
                is_one_of_words(words, value)
            }
            Self::Host => {
                unspecified_address_families(value) != [false, false] || value.parse::<IpAddr>().is_ok()
            }
            Self::Selector => is_valid_traffic_selector(value),
            Self::Proposal(protocol) => return validate_proposal(protocol, value),
            Self::BuildOption => return ValueParseResult::Unclear,
            Self::Identity | Self::Text | Self::File => true,
        };
        if is_readable { ValueParseResult::Readable } else { ValueParseResult::Unreadable }
    }
}

/// True for a mark with its mask: a number, or one of these words.
fn is_valid_mark(value: &str, words: &[&str]) -> bool {
    let (mark, mask) = value.split_once('/').unwrap_or((value, ""));
    (is_one_of_words(words, mark) || is_number(mark)) && is_number(mask)
}

fn is_valid_child_action(value: &str) -> bool {
    let flags = || value.split('|').map(|flag| flag.trim_matches(' ')).filter(|flag| !flag.is_empty());
    is_one_of_words(&["start", "restart", "route", "trap", "none", "clear"], value)
        || flags().all(|flag| is_one_of_words(&["none", "trap", "start"], flag))
}

fn is_valid_auth_method(value: &str) -> bool {
    let begins = |word: &&str| is_section_of_side(value, word);
    ["ike:", "pubkey", "rsa", "ecdsa", "bliss"].iter().any(|word| value.starts_with(word))
        || value.eq_ignore_ascii_case("psk")
        || ["xauth", "eap"].iter().any(begins)
}

/// True for valid networks. Protocols, ports and ranges cannot be expressed in ours, whatever charon makes of them.
fn is_valid_traffic_selector(value: &str) -> bool {
    let address = value.split('/').next().unwrap_or_default();
    value == "dynamic"
        || value.contains(['[', '-', '%'])
        || parse_prefix(value).is_some()
        || address.parse::<IpAddr>().is_ok()
}

/// The kind of an algorithm's word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AlgorithmKind {
    Cipher,
    /// An AEAD cipher.
    Combined,
    /// GMAC: AEAD without encryption.
    Gmac,
    /// An integrity algorithm that implies a pseudorandom function.
    Integrity,
    /// An integrity algorithm that implies none.
    IntegrityOnly,
    Prf,
    KeyExchange,
    NoKeyExchange,
    /// An additional key exchange.
    Further,
    SequenceNumbers,
}

/// True for `aes256gcm16` and the like: a cipher with its key size and ICV size.
fn is_combined(word: &str) -> bool {
    let (rest, is_aes) = match (word.strip_prefix("aes"), word.strip_prefix("camellia")) {
        (Some(rest), _) => (rest, true),
        (_, Some(rest)) => (rest, false),
        _ => return matches!(word, "chacha20poly1305" | "chacha20poly1305compat"),
    };
    let sizes = ["128", "192", "256"];
    let Some(rest) = sizes.iter().find_map(|size| rest.strip_prefix(size)) else { return false };
    let check = match (rest.strip_prefix("ccm"), rest.strip_prefix("gcm").filter(|_| is_aes)) {
        (Some(check), _) | (_, Some(check)) => check,
        _ => return false,
    };
    matches!(check, "8" | "64" | "12" | "96" | "16" | "128") || (is_aes && check.is_empty())
}

#[rustfmt::skip]
fn algorithm_kind(word: &str) -> Option<AlgorithmKind> {
    Some(match word {
        "null" | "des" | "3des" | "cast128" | "aes" | "aes128" | "aes192" | "aes256" | "aes128ctr" | "aes192ctr" | "aes256ctr"
        | "blowfish" | "blowfish128" | "blowfish192" | "blowfish256" | "camellia" | "camellia128" | "camellia192" | "camellia256"
        | "camellia128ctr" | "camellia192ctr" | "camellia256ctr" | "serpent" | "serpent128" | "serpent192" | "serpent256"
        | "twofish" | "twofish128" | "twofish192" | "twofish256" => AlgorithmKind::Cipher,
        "aes128gmac" | "aes192gmac" | "aes256gmac" => AlgorithmKind::Gmac,
        "sha" | "sha1" | "sha1_160" | "sha256" | "sha2_256" | "sha384" | "sha2_384" | "sha512" | "sha2_512" | "md5" | "md5_128"
        | "aesxcbc" | "camelliaxcbc" | "aescmac" => AlgorithmKind::Integrity,
        "sha256_96" | "sha2_256_96" => AlgorithmKind::IntegrityOnly,
        "prfsha1" | "prfsha256" | "prfsha384" | "prfsha512" | "prfmd5" | "prfaesxcbc" | "prfcamelliaxcbc" | "prfaescmac" => AlgorithmKind::Prf,
        "modpnull" | "modp768" | "modp1024" | "modp1536" | "modp2048" | "modp3072" | "modp4096" | "modp6144" | "modp8192" | "ecp192"
        | "ecp224" | "ecp256" | "ecp384" | "ecp521" | "modp1024s160" | "modp2048s224" | "modp2048s256" | "ecp224bp" | "ecp256bp"
        | "ecp384bp" | "ecp512bp" | "curve25519" | "x25519" | "curve448" | "x448" | "ntru112" | "ntru128" | "ntru192" | "ntru256"
        | "newhope128" => AlgorithmKind::KeyExchange,
        "none" | "modpnone" => AlgorithmKind::NoKeyExchange,
        "noesn" | "esn" => AlgorithmKind::SequenceNumbers,
        word if is_combined(word) => AlgorithmKind::Combined,
        _ => return None,
    })
}

/// Returns the kind of a word of releases after 5.9.8: ML-KEM, or an additional key exchange with the prefix `ke1_`
/// to `ke7_`.
fn newer_release_algorithm_kind(word: &str) -> Option<AlgorithmKind> {
    let further =
        word.strip_prefix("ke").and_then(|rest| rest.strip_prefix(['1', '2', '3', '4', '5', '6', '7']));
    let method = further.and_then(|rest| rest.strip_prefix('_'));
    let is_method = matches!(method.unwrap_or(word), "mlkem512" | "mlkem768" | "mlkem1024")
        || method
            .and_then(algorithm_kind)
            .is_some_and(|kind| matches!(kind, AlgorithmKind::KeyExchange | AlgorithmKind::NoKeyExchange));
    is_method.then_some(if method.is_some() { AlgorithmKind::Further } else { AlgorithmKind::KeyExchange })
}

/// Reads a proposal. Each word has to be known, and the algorithms must be complete and consistent.
fn validate_proposal(protocol: ProposalProtocol, text: &str) -> ValueParseResult {
    if text.eq_ignore_ascii_case("default") {
        return ValueParseResult::Readable;
    }
    let (mut kinds, mut is_later) = (Vec::new(), false);
    for word in text.split('-').map(|word| word.trim_matches(' ')).filter(|word| !word.is_empty()) {
        let later = newer_release_algorithm_kind(word);
        is_later |= later.is_some();
        let Some(kind) = algorithm_kind(word).or(later) else { return ValueParseResult::Unreadable };
        kinds.push(kind);
    }
    let has = |any: &[AlgorithmKind]| kinds.iter().any(|kind| any.contains(kind));
    let (classic, combined) =
        (has(&[AlgorithmKind::Cipher]), has(&[AlgorithmKind::Combined, AlgorithmKind::Gmac]));
    let integrity = has(&[AlgorithmKind::Integrity, AlgorithmKind::IntegrityOnly]);
    let is_whole = match protocol {
        ProposalProtocol::Ah => integrity || has(&[AlgorithmKind::Gmac]),
        ProposalProtocol::Esp => classic != combined,
        ProposalProtocol::Ike => {
            classic != combined
                && (combined || integrity)
                && has(&[AlgorithmKind::Prf, AlgorithmKind::Integrity])
                && has(&[AlgorithmKind::KeyExchange])
        }
    };
    match (is_whole, is_later) {
        (true, true) => ValueParseResult::Later,
        (true, false) => ValueParseResult::Readable,
        (false, _) => ValueParseResult::Unreadable,
    }
}
