//! Options of pppd, as pppd reads them (`getword` and `options_from_file` of its `options.c`): word by word, whatever line they stand on.

use super::Importer;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::net::{IpAddr, Ipv4Addr};
use core::str::Chars;

/// Options that are followed by a word of their own, of pppd 2.4.9 to 2.5.2 and of the plugins that come with it.
#[rustfmt::skip]
const WITH_ARGUMENT: &[&str] = &[
    "+ua", "-am", "-as", "active-filter", "allow-ip", "allow-number", "asyncmap", "auth-down-script", "auth-up-script", "avpair",
    "bsdcomp", "bundle", "ca", "call", "capath", "cert", "chap-interval", "chap-max-challenge", "chap-restart", "chap-secrets",
    "chap-timeout", "child-timeout", "connect", "connect-delay", "crl", "crl-dir", "datarate", "defaultroute-metric",
    "defaultroute6-metric", "deflate", "disconnect", "domain", "eap-interval", "eap-max-rreq", "eap-max-sreq", "eap-restart",
    "eap-timeout", "endpoint", "escape", "file", "holdoff", "host-uniq", "idle", "ifname", "init", "ip-down-script",
    "ip-pre-up-script", "ip-up-script", "ipcp-max-configure", "ipcp-max-failure", "ipcp-max-terminate", "ipcp-restart", "ipparam",
    "ipv6", "ipv6-down-script", "ipv6-up-script", "ipv6cp-max-configure", "ipv6cp-max-failure", "ipv6cp-max-terminate",
    "ipv6cp-restart", "kdebug", "key", "lcp-echo-failure", "lcp-echo-interval", "lcp-max-configure", "lcp-max-failure",
    "lcp-max-terminate", "lcp-restart", "lcp-rtt-file", "linkname", "logfd", "logfile", "max-tls-version", "maxconnect", "maxfail",
    "maxoctets", "minconnect", "mo", "mo-direction", "mo-timeout", "mrru", "mru", "ms-dns", "ms-wins", "mtu", "name", "net-down-script",
    "net-init-script", "net-pre-up-script", "netmask", "pap-max-authreq", "pap-restart", "pap-secrets", "pap-timeout", "pass-filter",
    "passwordfd", "password", "pkcs12", "plugin", "pppoe-ac", "pppoe-host-uniq", "pppoe-mac", "pppoe-padi-attempts",
    "pppoe-padi-timeout", "pppoe-service", "pppoe-sess", "pppoe-verbose", "precompiled-active-filter", "precompiled-pass-filter",
    "privgroup", "pty", "radius-config-file", "realms-config-file", "record", "remotename", "remotenumber", "rp_pppoe_ac",
    "rp_pppoe_service", "rp_pppoe_sess", "rp_pppoe_verbose", "set", "socket", "stop-bits", "tls-verify-method", "unit", "unset", "user",
    "vj-max-slots", "vrf", "welcome",
];

/// Options without which more would be let in: other files, whoever is let in by the system as well, numbers (by PPPoE the MAC address),
/// encryption, and packets.
#[rustfmt::skip]
const KEEPING_OUT: &[&str] = &[
    "+mppe", "+mppe-128", "+mppe-40", "allow-number", "call", "enable-session", "file", "login", "pass-filter",
    "precompiled-pass-filter", "require-mppe", "require-mppe-128", "require-mppe-40",
];

/// Plugins that keep no host out, or are how pppd meets PPPoE.
const HARMLESS_PLUGINS: &[&str] =
    &["dhcpv6relay.so", "minconn.so", "passwordfd.so", "pppoe.so", "radattr.so", "rp-pppoe.so"];

/// A word of the file and the line, from 1, on which it begins.
struct OptionWord {
    line: usize,
    text: String,
}

/// The words of a file. Quotes keep a word together, `\` stands before what is meant literally or by a letter or number, and `#` outside of
/// quotes begins a comment.
fn words(text: &str) -> Vec<OptionWord> {
    let mut words = Vec::new();
    let (mut line, mut rest) = (1, text.chars().peekable());
    loop {
        while let Some(&c) = rest.peek() {
            match c {
                '\n' => line += 1,
                '#' => {
                    while rest.next_if(|c| *c != '\n').is_some() {}
                    continue;
                }
                // A line's end behind `\` is none.
                '\\' => {
                    let mut ahead = rest.clone();
                    ahead.next();
                    if ahead.next() != Some('\n') {
                        break;
                    }
                    rest.next();
                    line += 1;
                }
                c if c.is_ascii_whitespace() || c == '\u{b}' => {}
                _ => break,
            }
            rest.next();
        }
        if rest.peek().is_none() {
            return words;
        }
        let begin = line;
        let text = word(&mut rest, &mut line);
        words.push(OptionWord { line: begin, text });
    }
}

/// One word, up to what ends it.
fn word(rest: &mut Peekable<Chars<'_>>, line: &mut usize) -> String {
    let (mut text, mut quoted) = (String::new(), None);
    while let Some(&c) = rest.peek() {
        if quoted.is_none() && (c.is_ascii_whitespace() || c == '\u{b}' || c == '#') {
            break;
        }
        rest.next();
        match c {
            '\\' => escaped(rest, line, &mut text),
            c if quoted == Some(c) => quoted = None,
            '"' | '\'' if quoted.is_none() => quoted = Some(c),
            c => {
                *line += usize::from(c == '\n');
                text.push(c);
            }
        }
    }
    text
}

/// What `\` stands before.
fn escaped(rest: &mut Peekable<Chars<'_>>, line: &mut usize, text: &mut String) {
    let digits = |rest: &mut Peekable<Chars<'_>>, radix: u32, most: usize| {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = rest.next_if(|c| c.is_digit(radix)) else { break };
            value = value * radix + digit.to_digit(radix).unwrap_or(0);
        }
        // An octet of pppd's.
        char::from(u8::try_from(value & 0xff).unwrap_or(0))
    };
    match rest.peek().copied() {
        None => return,
        Some('0'..='7') => return text.push(digits(rest, 8, 3)),
        Some('x') => {
            rest.next();
            return text.push(digits(rest, 16, 2));
        }
        Some(_) => {}
    }
    match rest.next() {
        Some('\n') => *line += 1,
        Some('a') => text.push('\u{7}'),
        Some('b') => text.push('\u{8}'),
        Some('f') => text.push('\u{c}'),
        Some('n') => text.push('\n'),
        Some('r') => text.push('\r'),
        Some('s') => text.push(' '),
        Some('t') => text.push('\t'),
        c => text.extend(c),
    }
}

/// A number as `strtol` takes it: `0x` for hexadecimal, `0` for octal ones.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

impl Importer {
    /// Takes options of pppd.
    pub(super) fn options(&mut self, text: &str) {
        let mut words = words(text).into_iter();
        let (mut dns, mut is_authenticated) = (Vec::new(), false);
        while let Some(OptionWord { line, text: option }) = words.next() {
            let option = option.as_str();
            let has_argument = WITH_ARGUMENT.contains(&option);
            let argument = if has_argument { words.next().map(|word| word.text) } else { None };
            if has_argument && argument.is_none() {
                self.leave(line, &format!("{option} without a word behind it"));
                continue;
            }
            if KEEPING_OUT.contains(&option) {
                self.stop(line, option);
                continue;
            }
            let value = argument.as_deref().unwrap_or_default();
            match (option, number(value)) {
                ("require-pap" | "+pap", _) => self.protocol("pap"),
                ("require-chap" | "+chap", _) => self.protocol("chap"),
                ("require-mschap-v2" | "+mschap-v2", _) => self.protocol("mschapv2"),
                ("require-eap", _) => self.protocol("eap"),
                ("lcp-echo-interval", Some(seconds)) => {
                    self.limit("keepalive", super::quoted(&format!("{seconds} s")));
                }
                ("lcp-echo-failure", Some(failures @ 1..)) => {
                    self.limit("keepalive_failures", format!("{failures}"));
                }
                // 0 is without end here and there.
                ("idle", Some(seconds)) => self.limit("idle_timeout", super::quoted(&format!("{seconds} s"))),
                ("maxconnect", Some(seconds)) => {
                    self.limit("session_timeout", super::quoted(&format!("{seconds} s")));
                }
                ("ms-dns", _) if value.parse::<Ipv4Addr>().is_ok() => dns.extend(value.parse::<IpAddr>()),
                ("plugin", _) => self.plugin(line, value),
                ("+ipv6", _) => self.ipv6 = Some(true),
                ("ipv6", _) => {
                    self.ipv6 = Some(true);
                    self.leave(line, option);
                }
                ("noipv6" | "-ipv6", _) => self.ipv6 = Some(false),
                ("auth", _) => is_authenticated = true,
                // What is so anyway, or of a link's other end.
                (
                    "lock" | "nodefaultroute" | "-defaultroute" | "noproxyarp" | "-proxyarp" | "nobsdcomp"
                    | "-bsdcomp" | "nodeflate" | "-deflate" | "noccp" | "-ccp" | "novj" | "-vj" | "novjccomp"
                    | "-vjccomp" | "noipx" | "nomppe" | "-mppe" | "refuse-pap" | "-pap" | "refuse-chap"
                    | "-chap" | "refuse-mschap" | "-mschap" | "refuse-mschap-v2" | "-mschap-v2"
                    | "refuse-eap" | "ipcp-accept-remote",
                    _,
                ) => {}
                // What stands behind it may be a secret.
                _ => self.leave(line, option),
            }
        }
        // The last two, the second of them last.
        self.dns.extend(dns.iter().skip(dns.len().saturating_sub(2)));
        if dns.len() > 2 {
            self.left.push((0, "of more than two ms-dns the last two hold, as in pppd".to_owned()));
        }
        // In the order in which pppd asks for them.
        let order = ["eap", "mschapv2", "chap", "pap"];
        self.protocols.sort_by_key(|name| order.iter().position(|known| known == name));
        if is_authenticated && self.protocols.is_empty() {
            let what = "auth: pppd takes PAP, too; here hosts show who they are by EAP, MS-CHAPv2 or CHAP, unless [authentication] protocols says otherwise";
            self.left.push((0, what.to_owned()));
        }
    }

    fn plugin(&mut self, line: usize, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        match name {
            "radius.so" => {
                self.radius = true;
                let what = "the servers of radiusclient's own file are not known here: write [[aaa.radius]]";
                self.left.push((line, what.to_owned()));
            }
            name if HARMLESS_PLUGINS.contains(&name) => {
                if !name.ends_with("pppoe.so") {
                    self.leave(line, &format!("plugin {name}"));
                }
            }
            // It may ask more of hosts than pppd does.
            name => self.stop(line, &format!("plugin {name}")),
        }
    }
}
