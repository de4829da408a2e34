//! Imports options of pppd as pppd reads them (`getword` and `options_from_file` of its `options.c`): word by word,
//! across lines.

use super::ConfigImporter;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::net::{IpAddr, Ipv4Addr};
use core::str::Chars;

/// Options with an argument, of pppd 2.4.9 to 2.5.2 and its plugins.
#[rustfmt::skip]
const WITH_ARGUMENT: &[&str] = &[
    "+ua", "-as", "active-filter", "allow-ip", "allow-number", "asyncmap", "auth-down-script", "auth-up-script", "avpair",
    "bsdcomp", "bundle", "ca", "call", "callback", "capath", "cert", "chap-interval", "chap-max-challenge", "chap-restart",
    "chap-secrets", "chap-timeout", "child-timeout", "connect", "connect-delay", "crl", "crl-dir", "datarate",
    "defaultroute-metric", "defaultroute6-metric", "deflate", "disconnect", "domain", "eap-interval", "eap-max-rreq",
    "eap-max-sreq", "eap-restart", "eap-timeout", "endpoint", "escape", "file", "holdoff", "host-uniq", "idle", "ifname", "init",
    "ip-down-script", "ip-pre-up-script", "ip-up-script", "ipcp-max-configure", "ipcp-max-failure", "ipcp-max-terminate",
    "ipcp-restart", "ipparam", "ipv6", "ipv6-down-script", "ipv6-up-script", "ipv6cp-max-configure", "ipv6cp-max-failure",
    "ipv6cp-max-terminate", "ipv6cp-restart", "ipx-network", "ipx-node", "ipx-router-name", "ipx-routing", "ipxcp-max-configure",
    "ipxcp-max-failure", "ipxcp-max-terminate", "ipxcp-restart", "kdebug", "key", "lcp-echo-failure", "lcp-echo-interval",
    "lcp-max-configure", "lcp-max-failure", "lcp-max-terminate", "lcp-restart", "lcp-rtt-file", "linkname", "logfd", "logfile",
    "max-tls-version", "maxconnect", "maxfail", "maxoctets", "minconnect", "mo", "mo-direction", "mo-timeout", "mrru", "mru",
    "ms-dns", "ms-wins", "mschap-challenge", "mschap2-peer-challenge", "mtu", "name", "net-down-script", "net-init-script",
    "net-pre-up-script", "netmask", "ntlm_auth-helper", "pap-max-authreq", "pap-restart", "pap-secrets", "pap-timeout",
    "pass-filter", "password", "passwordfd", "pkcs12", "plugin", "pppoe-ac", "pppoe-host-uniq", "pppoe-mac", "pppoe-padi-attempts",
    "pppoe-padi-timeout", "pppoe-service", "pppoe-sess", "pppoe-verbose", "pppol2tp", "pppol2tp_debug_mask", "pppol2tp_ifname",
    "pppol2tp_reorderto", "pppol2tp_session_id", "pppol2tp_tunnel_id", "precompiled-active-filter", "precompiled-pass-filter",
    "privgroup", "promptprog", "pty", "qos", "radius-config-file", "realms-config-file", "record", "remotename", "remotenumber",
    "rp_pppoe_ac", "rp_pppoe_service", "rp_pppoe_sess", "rp_pppoe_verbose", "set", "socket", "srp-interval", "srp-pn-secret",
    "stop-bits", "tls-verify-method", "unit", "unset", "user", "vj-max-slots", "vrf", "welcome",
];

/// Options without an argument. pppd rejects a file with an unknown option.
#[rustfmt::skip]
const WITHOUT_ARGUMENT: &[&str] = &[
    "+chap", "+ipv6", "+ipx", "+mppe", "+mppe-128", "+mppe-40", "+mschap", "+mschap-v2", "+pap", "--help", "--version", "-ac",
    "-all", "-am", "-bsdcomp", "-ccp", "-chap", "-crtscts", "-d", "-defaultroute", "-defaultroute6", "-deflate", "-detach", "-ecp",
    "-h", "-ip", "-ipv6", "-ipx", "-mn", "-mppe", "-mppe-128", "-mppe-40", "-mru", "-mschap", "-mschap-v2", "-p", "-pap", "-pc",
    "-predictor1", "-proxyarp", "-v", "-vj", "-vjccomp", "auth", "cdtrcts", "chapms-strip-domain", "crtscts", "debug",
    "default-asyncmap", "default-mru", "defaultroute", "defaultroute6", "demand", "dryrun", "dump", "enable-session",
    "hide-password", "ipcp-accept-local", "ipcp-accept-remote", "ipcp-no-address", "ipcp-no-addresses", "ipv6cp-accept-local",
    "ipv6cp-accept-remote", "ipv6cp-noremote", "ipv6cp-nosend", "ipv6cp-use-ipaddr", "ipv6cp-use-persistent",
    "ipv6cp-use-remotenumber", "ipx", "ipxcp-accept-local", "ipxcp-accept-network", "ipxcp-accept-remote", "ktune",
    "lcp-echo-adaptive", "llc-encaps", "local", "lock", "login", "map-to-ifname", "map-to-ttyname", "master_detach", "modem", "mp",
    "mppe-stateful", "mpshortseq", "ms-lanman", "multilink", "need-peer-eap", "noaccomp", "noauth", "nobsdcomp", "noccp",
    "nocdtrcts", "nocrtscts", "nodefaultroute", "nodefaultroute6", "nodeflate", "nodeflatedraft", "nodetach", "noecp", "noendpoint",
    "noip", "noipdefault", "noipv6", "noipx", "noktune", "nolock", "nolog", "nologfd", "nomagic", "nomp", "nomppe", "nomppe-128",
    "nomppe-40", "nomppe-stateful", "nompshortseq", "nomultilink", "nopcomp", "nopersist", "nopredictor1", "noproxyarp",
    "noremoteip", "noreplacedefaultroute", "noresolvconf", "nosendip", "notty", "novj", "novjccomp", "papcrypt", "passive",
    "persist", "pppol2tp_lns_mode", "pppol2tp_recv_seq", "pppol2tp_send_seq", "predictor1", "proxyarp", "receive-all",
    "refuse-chap", "refuse-eap", "refuse-mschap", "refuse-mschap-v2", "refuse-pap", "replacedefaultroute", "require-chap",
    "require-eap", "require-mppe", "require-mppe-128", "require-mppe-40", "require-mschap", "require-mschap-v2", "require-pap",
    "show-options", "show-password", "silent", "srp-use-pseudonym", "sync", "tls-verify-key-usage", "up_sdnotify", "updetach",
    "usehostname", "usepeerdns", "usepeerwins", "vc-encaps", "xonxoff",
];

/// Maximum octets of a word in pppd.
const LONGEST_WORD: usize = 1023;

/// Options that restrict access: other files, system logins, allowed numbers (the MAC address for PPPoE), encryption,
/// and packet filters.
#[rustfmt::skip]
const KEEPING_OUT: &[&str] = &[
    "+mppe", "+mppe-128", "+mppe-40", "allow-number", "call", "enable-session", "file", "login", "pass-filter",
    "precompiled-pass-filter", "require-mppe", "require-mppe-128", "require-mppe-40",
];

/// Plugins that do not restrict access, or that implement PPPoE for pppd.
const HARMLESS_PLUGINS: &[&str] =
    &["dhcpv6relay.so", "minconn.so", "passwordfd.so", "pppoe.so", "radattr.so", "rp-pppoe.so"];

/// A word of the file and the line, from 1, of its begin.
struct PppdOptionWord {
    line: usize,
    text: String,
}

/// Splits a file into words. Quotes join a word, `\` escapes a character or begins an escape sequence, and `#` outside
/// quotes begins a comment.
fn split_words(text: &str) -> Vec<PppdOptionWord> {
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
                // `\` before a line feed continues the line.
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
        let text = read_word(&mut rest, &mut line);
        words.push(PppdOptionWord { line: begin, text });
    }
}

/// Reads a word up to its end.
fn read_word(rest: &mut Peekable<Chars<'_>>, line: &mut usize) -> String {
    let (mut text, mut quoted) = (String::new(), None);
    while let Some(&c) = rest.peek() {
        if quoted.is_none() && (c.is_ascii_whitespace() || c == '\u{b}' || c == '#') {
            break;
        }
        rest.next();
        match c {
            '\\' => read_escape(rest, line, &mut text),
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

/// Reads an escape sequence after `\`.
fn read_escape(rest: &mut Peekable<Chars<'_>>, line: &mut usize, text: &mut String) {
    let digits = |rest: &mut Peekable<Chars<'_>>, radix: u32, most: usize| {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = rest.next_if(|c| c.is_digit(radix)) else { break };
            value = value * radix + digit.to_digit(radix).unwrap_or(0);
        }
        // pppd keeps one octet.
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

/// Parses a number like pppd's `strtoul`: `0x` for hexadecimal, `0` for octal, trailing text is ignored. `None`: pppd
/// rejects the file.
fn parse_number(text: &str) -> Option<u32> {
    let rest = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let is_negative = rest.starts_with('-');
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let (radix, digits) =
        match hexadecimal.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit())) {
            Some(digits) => (16, digits),
            None if rest.starts_with('0') => (8, rest),
            None => (10, rest),
        };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let value = u64::from_str_radix(&digits[..end], radix).unwrap_or(u64::MAX);
    let value = if is_negative { value.wrapping_neg() } else { value };
    u32::try_from(value & u64::from(u32::MAX)).ok()
}

/// True if pppd accepts the word without an option: addresses, a device, a speed.
fn is_wild(word: &str) -> bool {
    let is_speed = !word.is_empty() && word.bytes().all(|octet| octet.is_ascii_digit());
    is_speed
        || word.contains(':')
        || word.starts_with('/')
        || word.starts_with("nic-")
        || word.starts_with("tty")
}

impl ConfigImporter {
    /// Imports options of pppd.
    pub(super) fn import_pppd(&mut self, text: &str) {
        let mut words = split_words(text).into_iter();
        let (mut dns, mut is_authenticated) = (Vec::new(), false);
        while let Some(PppdOptionWord { line, text: option }) = words.next() {
            let option = option.as_str();
            if option.len() > LONGEST_WORD {
                self.report_blocking_setting(
                    line,
                    "a word of more than 1023 octets, of which pppd reads only a part",
                );
                continue;
            }
            let has_argument = WITH_ARGUMENT.contains(&option);
            if !(has_argument || WITHOUT_ARGUMENT.contains(&option) || is_wild(option)) {
                self.report_blocking_setting(
                    line,
                    &format!("{option}: pppd does not know it and rejects the file"),
                );
                continue;
            }
            let argument = if has_argument { words.next().map(|word| word.text) } else { None };
            if has_argument && argument.is_none() {
                let what = format!("{option} without an argument: pppd rejects the file");
                self.report_blocking_setting(line, &what);
                continue;
            }
            if argument.as_ref().is_some_and(|argument| argument.len() > LONGEST_WORD) {
                self.report_blocking_setting(
                    line,
                    &format!(
                        "{option} with an argument of more than 1023 octets, of which pppd reads only a part"
                    ),
                );
                continue;
            }
            if KEEPING_OUT.contains(&option) {
                self.report_blocking_setting(line, option);
                continue;
            }
            let value = argument.as_deref().unwrap_or_default();
            let number = parse_number(value);
            match (option, number.filter(|number| i32::try_from(*number).is_ok())) {
                ("require-pap" | "+pap", _) => self.add_protocol("pap"),
                ("require-chap" | "+chap", _) => self.add_protocol("chap"),
                ("require-mschap-v2" | "+mschap-v2", _) => self.add_protocol("mschapv2"),
                ("require-eap", _) => self.add_protocol("eap"),
                ("lcp-echo-interval", Some(seconds)) => {
                    self.set_limit("keepalive", super::quote_toml(&format!("{seconds} s")));
                }
                ("lcp-echo-failure", Some(failures @ 1..)) => {
                    self.set_limit("keepalive_failures", format!("{failures}"));
                }
                // In pppd and here, 0 means unlimited.
                ("idle", Some(seconds)) => {
                    self.set_limit("idle_timeout", super::quote_toml(&format!("{seconds} s")))
                }
                ("maxconnect", Some(seconds)) => {
                    self.set_limit("session_timeout", super::quote_toml(&format!("{seconds} s")));
                }
                (limit @ ("lcp-echo-interval" | "lcp-echo-failure" | "idle" | "maxconnect"), None)
                    if number.is_none() || option == "maxconnect" =>
                {
                    self.report_blocking_setting(
                        line,
                        &format!("{limit} without a valid number: pppd rejects the file"),
                    );
                }
                ("ms-dns", _) if value.parse::<Ipv4Addr>().is_ok() => dns.extend(value.parse::<IpAddr>()),
                ("plugin", _) => self.import_plugin(line, value),
                ("+ipv6", _) => self.ipv6 = Some(true),
                ("ipv6", _) => {
                    self.ipv6 = Some(true);
                    self.report_unsupported(line, option);
                }
                ("noipv6" | "-ipv6", _) => self.ipv6 = Some(false),
                ("auth", _) => is_authenticated = true,
                // These options describe what this concentrator does anyway, or concern only the client's end.
                (
                    "lock" | "nodefaultroute" | "-defaultroute" | "noproxyarp" | "-proxyarp" | "nobsdcomp"
                    | "-bsdcomp" | "nodeflate" | "-deflate" | "noccp" | "-ccp" | "novj" | "-vj" | "novjccomp"
                    | "-vjccomp" | "noipx" | "nomppe" | "-mppe" | "refuse-pap" | "-pap" | "refuse-chap"
                    | "-chap" | "refuse-mschap" | "-mschap" | "refuse-mschap-v2" | "-mschap-v2"
                    | "refuse-eap" | "ipcp-accept-remote",
                    _,
                ) => {}
                // Do not repeat the argument: it may be a secret.
                _ => self.report_unsupported(line, option),
            }
        }
        // pppd uses the last two name servers.
        self.dns.extend(dns.iter().skip(dns.len().saturating_sub(2)));
        if dns.len() > 2 {
            self.left.push((0, "the last two ms-dns count, as in pppd".to_owned()));
        }
        // This is the order in which pppd requests the protocols.
        let order = ["eap", "mschapv2", "chap", "pap"];
        self.protocols.sort_by_key(|name| order.iter().position(|known| known == name));
        if is_authenticated && self.protocols.is_empty() {
            let what = "auth: pppd also accepts PAP; this concentrator accepts EAP, MS-CHAPv2 and CHAP, unless you \
                        set \"protocols\" in [authentication]";
            self.left.push((0, what.to_owned()));
        }
    }

    fn import_plugin(&mut self, line: usize, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        match name {
            "radius.so" => {
                self.radius = true;
                let what = "the configuration of radiusclient has the servers: write [[aaa.radius]]";
                self.left.push((line, what.to_owned()));
            }
            name if HARMLESS_PLUGINS.contains(&name) => {
                if !name.ends_with("pppoe.so") {
                    self.report_unsupported(line, &format!("plugin {name}"));
                }
            }
            // An unknown plugin may restrict access.
            name => self.report_blocking_setting(line, &format!("plugin {name}")),
        }
    }
}
