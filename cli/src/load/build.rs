//! From what was typed to what is run.

mod ike;
mod pppoe;

use super::args::{
    AccountingArgs, DiameterLoadArgs, DiameterMethod, DiameterTransportArg, EapLoadArgs, EapMethodName,
    LoadArgs, LoadCommand, MihLoadArgs, MihRequestKind, NasArgs, RadiusLoadArgs, RadiusMethod, SctpOrder,
    TlsArgs,
};
use super::value::MethodShareArg;
use crate::output::CommandFailure;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_core::{Duration, TransportProtocol, WallTime};
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsResumptionConfig, TlsVersionRange,
    TrustRoots,
};
use usher_load::{
    DiameterConfig, DiameterLogin, DiameterTransport, EapMethod, GeneratorConfig, GeneratorNasFleet,
    LoadExpectation, LoadProtocolConfig, LoadRampPlan, LoadRunPlan, LoginArrivals, LoginPace, MihConfig,
    MihRequest, PeapInnerMethod, RadiusConfig, RadiusLogin, RampConfig, StreamPolicy, TtlsInnerMethod,
    UserCredentialTable,
};
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{self, RetransmissionPolicy, ServerConfig};

const AUTHENTICATION_PORT: u16 = 1812;
const ACCOUNTING_PORT: u16 = 1813;
const DIAMETER_PORT: u16 = 3868;
const DIAMETER_TLS_PORT: u16 = 5658;
/// How much earlier than the next login the generator is woken: more than the coarseness of timers.
const SPIN: Duration = Duration::from_micros(2_500);
/// Attributes of a NAS about its link (RFC 2865 §5.12, §5.6, §5.41): EAP over 802.11.
const FRAMED_MTU: u32 = 1_400;
const SERVICE_FRAMED: u32 = 2;
const PORT_WIRELESS: u32 = 19;

/// All that a run needs.
pub(super) struct PreparedLoad {
    pub(super) plan: LoadRunPlan,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) yes: bool,
    pub(super) check: bool,
    pub(super) out: Option<PathBuf>,
    pub(super) command: &'static str,
    pub(super) method: String,
    pub(super) server: String,
    /// Where there are several.
    pub(super) methods: Vec<String>,
    /// Logins come from one socket, and may do so by trains.
    pub(super) trains: bool,
    pub(super) expect: Vec<LoadExpectation>,
    pub(super) open_loop: bool,
    pub(super) settings: BTreeMap<String, String>,
}

pub(super) fn prepare_load(command: &LoadCommand) -> Result<PreparedLoad, CommandFailure> {
    match command {
        LoadCommand::Radius(r) => prepare_radius(r),
        LoadCommand::Eap(e) => prepare_eap(e),
        LoadCommand::Diameter(d) => prepare_diameter(d),
        LoadCommand::Ike(i) => ike::prepare_ike(i),
        LoadCommand::Mih(m) => prepare_mih(m),
        LoadCommand::Pppoe(p) => pppoe::prepare_pppoe(p),
    }
}

fn possible_value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

fn now() -> WallTime {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_secs(unix.as_secs())
}

/// The methods of a command with their names and shares: one, or those of `--mix`, each read by `of`.
fn weighted_methods<T>(
    load: &LoadArgs,
    one: impl FnOnce() -> Result<(String, T), CommandFailure>,
    known: &str,
    of: impl Fn(&str) -> Option<T>,
) -> Result<Vec<(String, f64, T)>, CommandFailure> {
    if load.mix.is_empty() {
        let (name, method) = one()?;
        return Ok(vec![(name, 1.0, method)]);
    }
    let read = |part: &MethodShareArg| {
        let method = of(&part.method).ok_or_else(|| {
            CommandFailure::usage_error(format!(
                "--mix: unknown method {:?}; the methods are {known}",
                part.method
            ))
        })?;
        Ok((part.method.clone(), part.share, method))
    };
    load.mix.iter().map(read).collect()
}

fn prepare_radius(r: &RadiusLoadArgs) -> Result<PreparedLoad, CommandFailure> {
    let alone = r.method == RadiusMethod::Accounting && r.load.mix.is_empty();
    let port = if alone { ACCOUNTING_PORT } else { AUTHENTICATION_PORT };
    let address = resolve_load_target(&r.load.server, port)?;
    let plain = |method: RadiusMethod| match method {
        RadiusMethod::Pap => Some(RadiusLogin::Pap),
        RadiusMethod::Chap => Some(RadiusLogin::Chap),
        RadiusMethod::MsChapV2 => Some(RadiusLogin::MsChapV2),
        RadiusMethod::Accounting => None,
    };
    if alone && r.load.wrong_share.0 > 0.0 {
        return Err(CommandFailure::usage_error(
            "--wrong-share needs a password or certificate; --method accounting has none",
        ));
    }
    let one = || Ok((possible_value_name(&r.method), plain(r.method)));
    let named = |name: &str| RadiusMethod::from_str(name, true).ok().and_then(plain).map(Some);
    let all = weighted_methods(&r.load, one, "pap, chap, mschapv2 (with EAP: usher load eap --mix)", named)?;
    let users = Arc::new(read_users(&r.load, !alone)?);
    let logins = all.into_iter().filter_map(|(name, share, login)| Some((name, share, login?))).collect();
    let mut common = AttributeList::new();
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    over_radius("radius", &r.load, &r.nas, &r.accounting, address, logins, users, None, common)
}

/// A method of `usher load eap --mix`, before its certificates are read.
#[derive(Clone, Copy)]
enum EapMixMethod {
    Plain(RadiusMethod),
    Eap(EapMethodName),
}

fn prepare_eap(e: &EapLoadArgs) -> Result<PreparedLoad, CommandFailure> {
    let address = resolve_load_target(&e.load.server, AUTHENTICATION_PORT)?;
    let one = || match e.method {
        Some(method) => Ok((possible_value_name(&method), EapMixMethod::Eap(method))),
        None => Err(CommandFailure::usage_error("give --method or --mix")),
    };
    let mixed = |text: &str| match RadiusMethod::from_str(text, true) {
        Ok(RadiusMethod::Accounting) => None,
        Ok(plain) => Some(EapMixMethod::Plain(plain)),
        Err(_) => {
            let eap = text.strip_prefix("eap-").unwrap_or(text);
            EapMethodName::from_str(eap, true).ok().map(EapMixMethod::Eap)
        }
    };
    let known =
        "pap, chap, mschapv2, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap-mschapv2, peap-gtc and ttls-...";
    let all = weighted_methods(&e.load, one, known, mixed)?;
    let password = |m: &EapMixMethod| !matches!(m, EapMixMethod::Eap(EapMethodName::Tls));
    let users = Arc::new(read_users(&e.load, all.iter().any(|(_, _, m)| password(m)))?);
    // Certificates are read once, for all methods.
    let mut read = None;
    let mut logins = Vec::new();
    for (name, share, method) in all {
        let login = match method {
            EapMixMethod::Plain(RadiusMethod::Chap) => RadiusLogin::Chap,
            EapMixMethod::Plain(RadiusMethod::MsChapV2) => RadiusLogin::MsChapV2,
            EapMixMethod::Plain(_) => RadiusLogin::Pap,
            EapMixMethod::Eap(name) => {
                RadiusLogin::Eap(build_eap_method(name, &e.tls, &e.load, &users, &mut read)?)
            }
        };
        logins.push((name, share, login));
    }
    let mut common = AttributeList::new();
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    common.push_u32(kind::NAS_PORT_TYPE, PORT_WIRELESS);
    common.push_u32(kind::FRAMED_MTU, FRAMED_MTU);
    let tunnel = logins.iter().any(|(_, _, l)| matches!(l, RadiusLogin::Eap(m) if m.has_tunnel()));
    let anonymous = anonymous_identity(&e.tls, tunnel)?;
    over_radius("eap", &e.load, &e.nas, &e.accounting, address, logins, users, anonymous, common)
}

#[allow(clippy::too_many_arguments, reason = "one place puts together what two commands share")]
fn over_radius(
    command: &'static str,
    load: &LoadArgs,
    nas: &NasArgs,
    accounting: &AccountingArgs,
    address: SocketAddr,
    logins: Vec<(String, f64, RadiusLogin)>,
    users: Arc<UserCredentialTable>,
    anonymous: Option<Arc<[u8]>>,
    mut common: AttributeList,
) -> Result<PreparedLoad, CommandFailure> {
    let secret = read_shared_secret(nas)?;
    let server = |address| {
        let mut server = ServerConfig::new(address, secret.clone());
        server.require_message_authenticator = !nas.no_message_authenticator;
        server
    };
    let mut client = client::RadiusClientConfig::for_server(server(address));
    let mut addresses = vec![address];
    let sessions = accounting_config(accounting, logins.is_empty());
    if sessions.is_some() && !logins.is_empty() {
        let at = match &accounting.accounting_server {
            Some(at) => resolve_load_target(at, ACCOUNTING_PORT)?,
            None => SocketAddr::new(address.ip(), ACCOUNTING_PORT),
        };
        client.servers.push(server(at));
        addresses.push(at);
    }
    client.retransmission = RetransmissionPolicy::Backoff {
        initial: nas.irt.0,
        max: nas.mrt.0,
        max_count: nas.mrc,
        max_duration: nas.mrd.0,
        jitter: 0.1,
    };
    client.max_sockets = 1024;
    let fleet = build_fleet(load, nas, address)?;
    let longest =
        fleet.as_ref().map_or(nas.nas_identifier.clone(), |f| format!("{}-{}", f.identifier, f.count));
    let mut identifier = AttributeList::new();
    identifier
        .push_text(kind::NAS_IDENTIFIER, &longest)
        .map_err(|e| CommandFailure::usage_error(format!("--nas-identifier: {e}")))?;
    if fleet.is_none() {
        common.extend(&identifier);
    }
    let deniable = |login: &RadiusLogin| match login {
        RadiusLogin::Eap(method) => method.is_deniable(),
        _ => true,
    };
    let mix: Vec<_> = logins.iter().map(|(name, share, l)| method_share(name, *share, deniable(l))).collect();
    let what = if mix.is_empty() { "accounting".to_owned() } else { describe_mix(load, &mix) };
    let trains = fleet.is_none() && !nas.no_offload;
    let front = LoadProtocolConfig::Radius(RadiusConfig {
        client,
        fleet,
        logins: logins.into_iter().map(|(_, _, login)| login).collect(),
        accounting: sessions,
        anonymous,
        common,
    });
    let mut job = assemble_load(command, what, load, front, mix, users, addresses, None)?;
    job.plan.offload = !nas.no_offload;
    job.trains = trains;
    let set = &mut job.settings;
    set.insert("offload".to_owned(), (!nas.no_offload).to_string());
    if let Some(nas) = nas.nas {
        set.insert("access servers".to_owned(), nas.to_string());
    }
    Ok(job)
}

fn method_share(name: &str, weight: f64, deniable: bool) -> usher_load::MethodShare {
    usher_load::MethodShare { name: name.to_owned(), weight, deniable }
}

/// The method, or the methods with their shares.
fn describe_mix(load: &LoadArgs, mix: &[usher_load::MethodShare]) -> String {
    let all: f64 = mix.iter().map(|s| s.weight).sum();
    let each = mix.iter().map(|s| match load.mix.is_empty() {
        true => s.name.clone(),
        false => format!("{} {:.0} %", s.name, 100.0 * s.weight / all),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The access servers, where they are told apart; each address must be ours.
fn build_fleet(
    load: &LoadArgs,
    nas: &NasArgs,
    server: SocketAddr,
) -> Result<Option<GeneratorNasFleet>, CommandFailure> {
    let Some(count) = nas.nas.map(usize::from) else { return Ok(None) };
    if load.threads.get() > count {
        return Err(CommandFailure::usage_error(format!(
            "{} threads cannot share {count} access servers: --nas must be at least --threads",
            load.threads
        )));
    }
    if count > 16_384 {
        return Err(CommandFailure::usage_error("--nas is at most 16384: each access server takes a socket"));
    }
    let most = load.concurrency.map_or(16, usize::from);
    if load.rate.is_none() && !load.ramp && most > count * 256 {
        return Err(CommandFailure::usage_error(format!(
            "--concurrency {most} exceeds the identifiers of {count} access servers, 256 each; use --nas {}",
            most.div_ceil(256)
        )));
    }
    let fleet = GeneratorNasFleet {
        count,
        first: 0,
        identifier: nas.nas_identifier.clone(),
        address: nas.nas_address,
    };
    if nas.nas_address.is_some_and(|a| a.is_ipv4() != server.is_ipv4()) {
        return Err(CommandFailure::usage_error(
            "--nas-address must be of the same family as the server's address",
        ));
    }
    for address in (0..count).filter_map(|i| fleet.nas_address(i)) {
        UdpSocket::bind((address, 0)).map_err(|e| {
            CommandFailure::usage_error(format!(
                "--nas-address: cannot send from {address}: {e}; all {count} addresses must be this \
                 machine's, as those of 127.0.0.0/8 are"
            ))
        })?;
    }
    Ok(Some(fleet))
}

fn prepare_diameter(d: &DiameterLoadArgs) -> Result<PreparedLoad, CommandFailure> {
    let over_tls = d.over_tls || d.transport == DiameterTransportArg::Tls;
    let port = if over_tls { DIAMETER_TLS_PORT } else { DIAMETER_PORT };
    let address = resolve_load_target(&d.load.server, port)?;
    let by_sctp = d.transport == DiameterTransportArg::Sctp;
    if !by_sctp && d.nagle {
        return Err(CommandFailure::usage_error("--nagle needs --transport sctp"));
    }
    let transport = if by_sctp { sctp_transport(d)? } else { DiameterTransport::Stream };
    let one = || Ok((possible_value_name(&d.method), d.method));
    let mixed = |text: &str| {
        let method = DiameterMethod::from_str(text, true).ok()?;
        (method != DiameterMethod::Accounting).then_some(method)
    };
    let known =
        "pap, eap-md5, eap-gtc, eap-mschapv2, eap-tls, eap-peap-mschapv2, eap-ttls-pap, eap-ttls-mschapv2";
    let all = weighted_methods(&d.load, one, known, mixed)?;
    let password = |m: &DiameterMethod| !matches!(m, DiameterMethod::EapTls | DiameterMethod::Accounting);
    let users = Arc::new(read_users(&d.load, all.iter().any(|(_, _, m)| password(m)))?);
    let mut read = None;
    let mut logins = Vec::new();
    let mut mix = Vec::new();
    for (name, share, method) in all {
        let mut eap =
            |method| build_eap_method(method, &d.tls, &d.load, &users, &mut read).map(DiameterLogin::Eap);
        let login = match method {
            DiameterMethod::Pap => DiameterLogin::Pap,
            DiameterMethod::Accounting => continue,
            DiameterMethod::EapMd5 => eap(EapMethodName::Md5)?,
            DiameterMethod::EapGtc => eap(EapMethodName::Gtc)?,
            DiameterMethod::EapMsChapV2 => eap(EapMethodName::MsChapV2)?,
            DiameterMethod::EapTls => eap(EapMethodName::Tls)?,
            DiameterMethod::EapPeapMsChapV2 => eap(EapMethodName::PeapMsChapV2)?,
            DiameterMethod::EapTtlsPap => eap(EapMethodName::TtlsPap)?,
            DiameterMethod::EapTtlsMsChapV2 => eap(EapMethodName::TtlsMsChapV2)?,
        };
        let deniable = match &login {
            DiameterLogin::Pap => true,
            DiameterLogin::Eap(method) => method.is_deniable(),
        };
        mix.push(method_share(&name, share, deniable));
        logins.push(login);
    }
    if d.load.wrong_share.0 > 0.0 && logins.is_empty() {
        return Err(CommandFailure::usage_error(
            "--wrong-share needs a password or certificate; --method accounting has none",
        ));
    }
    let tunnel = logins.iter().any(|l| matches!(l, DiameterLogin::Eap(m) if m.has_tunnel()));
    let anonymous = anonymous_identity(&d.tls, tunnel)?;
    let front = LoadProtocolConfig::Diameter(DiameterConfig {
        address,
        transport,
        local: local_address(address)?,
        server: d.peer.clone(),
        host: d.identity.clone(),
        realm: d.realm.clone().unwrap_or_else(|| realm_of_host(&d.identity)),
        destination: d.destination.clone().unwrap_or_else(|| realm_of_host(&d.peer)),
        connections: d.connections.get(),
        first: 0,
        accounting: accounting_config(&d.accounting, logins.is_empty()),
        logins,
        anonymous,
        timeout: d.timeout.0,
    });
    if d.load.threads > d.connections {
        return Err(CommandFailure::usage_error(format!(
            "{} threads cannot share {} connections: --connections must be at least --threads",
            d.load.threads, d.connections
        )));
    }
    let tls = if over_tls { Some(build_connection_tls_config(&d.tls)?) } else { None };
    let what = if mix.is_empty() { "accounting".to_owned() } else { describe_mix(&d.load, &mix) };
    let mut job = assemble_load("diameter", what, &d.load, front, mix, users, vec![address], tls)?;
    job.plan.sctp_nodelay = !d.nagle;
    Ok(job)
}

/// An association as it is asked for, where the kernel has any.
fn sctp_transport(d: &DiameterLoadArgs) -> Result<DiameterTransport, CommandFailure> {
    if !usher_sctp::is_available() {
        return Err(CommandFailure::runtime_error(usher_sctp::SctpUnavailable));
    }
    let policy = match d.order {
        SctpOrder::One => StreamPolicy::SingleStream,
        SctpOrder::Session => StreamPolicy::BySession,
        SctpOrder::Unordered => StreamPolicy::Unordered,
    };
    Ok(DiameterTransport::Message { streams: d.streams, policy })
}

fn prepare_mih(m: &MihLoadArgs) -> Result<PreparedLoad, CommandFailure> {
    let load = &m.load;
    let given = [
        ("--user", load.user.is_some()),
        ("--users-file", load.users_file.is_some()),
        ("--mix", !load.mix.is_empty()),
        ("--wrong-share", load.wrong_share.0 > 0.0),
    ];
    if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
        return Err(CommandFailure::usage_error(format!(
            "{option} does not apply: an MIH function has no logins"
        )));
    }
    let address = resolve_load_target(&load.server, usher_mih::PORT)?;
    usher_mih_service::config::parse_identifier(&m.id)
        .map_err(|e| CommandFailure::usage_error(format!("--id: {e}")))?;
    if load.threads > m.functions {
        return Err(CommandFailure::usage_error(format!(
            "{} threads cannot share {} functions: --functions must be at least --threads",
            load.threads, m.functions
        )));
    }
    if m.request == MihRequestKind::Indication && (m.tcp || m.no_ack) && load.rate.is_none() && !load.ramp {
        return Err(CommandFailure::usage_error(
            "indications without acknowledgements end once they are sent, so they have no pace: give --rate \
             or --ramp",
        ));
    }
    let transport = if m.tcp { TransportProtocol::Tcp } else { TransportProtocol::Udp };
    let front = LoadProtocolConfig::Mih(MihConfig {
        address,
        transport,
        ack: !m.tcp && !m.no_ack,
        request: match m.request {
            MihRequestKind::Discover => MihRequest::Discover,
            MihRequestKind::Register => MihRequest::Register,
            MihRequestKind::Parameters => MihRequest::Parameters,
            MihRequestKind::Indication => MihRequest::Indication,
        },
        identity: m.id.clone(),
        functions: m.functions.get(),
        first: 0,
        retransmission: m.retransmission.0,
        retransmissions: m.retransmissions,
        timeout: m.timeout.0,
    });
    let nobody = UserCredentialTable::from_template("function", "", 1)
        .map_err(|e| CommandFailure::usage_error(format!("{e}")))?;
    let what = format!("{} over {}", possible_value_name(&m.request), transport.name().to_uppercase());
    let mut job = assemble_load("mih", what, load, front, Vec::new(), Arc::new(nobody), vec![address], None)?;
    job.settings.insert("functions".to_owned(), m.functions.to_string());
    let ack = if m.tcp || m.no_ack { "none" } else { "MIH's" };
    job.settings.insert("acknowledgements".to_owned(), ack.to_owned());
    Ok(job)
}

/// The part of a host's name after the first dot.
pub(crate) fn realm_of_host(host: &str) -> String {
    host.split_once('.').map_or(host, |(_, realm)| realm).to_owned()
}

/// Our address on the way there; nothing is sent.
fn local_address(server: SocketAddr) -> Result<IpAddr, CommandFailure> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).and_then(|s| s.connect(server).and_then(|()| s.local_addr()));
    socket.map(|a| a.ip()).map_err(|e| CommandFailure::runtime_error(format!("no route to {server}: {e}")))
}

#[allow(clippy::too_many_arguments, reason = "one place puts together what all commands share")]
fn assemble_load(
    command: &'static str,
    method: String,
    load: &LoadArgs,
    front: LoadProtocolConfig,
    mix: Vec<usher_load::MethodShare>,
    users: Arc<UserCredentialTable>,
    addresses: Vec<SocketAddr>,
    tls: Option<ClientConfig>,
) -> Result<PreparedLoad, CommandFailure> {
    if load.wrong_share.0 > 0.0 && !mix.iter().any(|s| s.deniable) {
        return Err(CommandFailure::usage_error(
            "--wrong-share needs passwords, or EAP-TLS with a certificate for each user",
        ));
    }
    for expectation in &load.expect {
        let needs = match expectation {
            e if e.needs_load_ramp() && !load.ramp => "--ramp",
            e if e.needs_server() && load.server_pid.is_none() => "--server-pid",
            _ => continue,
        };
        return Err(CommandFailure::usage_error(format!("--expect '{expectation}' needs {needs}")));
    }
    let arrivals = match load.burst {
        Some(size) => LoginArrivals::Bursts(size.get()),
        None if load.regular => LoginArrivals::Regular,
        None => LoginArrivals::Exponential,
    };
    for (option, rate) in [
        ("--rate", load.rate),
        ("--ramp-start", Some(load.ramp_start)),
        ("--ramp-most", Some(load.ramp_most)),
    ] {
        if rate.is_some_and(|r| !(r.is_finite() && r > 0.0)) {
            return Err(CommandFailure::usage_error(format!("{option} must be a number above 0")));
        }
    }
    let pace = match load.rate {
        Some(rate) => LoginPace::Open { rate, arrivals },
        None => LoginPace::Closed { concurrency: load.concurrency.map_or(16, usize::from) },
    };
    if let (LoginPace::Closed { concurrency }, false) = (pace, load.ramp)
        && concurrency < load.threads.get()
    {
        return Err(CommandFailure::usage_error(
            "--concurrency must be at least --threads: each thread needs a login",
        ));
    }
    let duration = load.duration.map(|d| d.0).or(load.count.is_none().then(|| Duration::from_secs(10)));
    let warmup = load
        .warmup
        .map_or_else(|| if load.count.is_some() { Duration::ZERO } else { Duration::from_secs(1) }, |w| w.0);
    let ramp = load.ramp.then(|| LoadRampPlan {
        search: RampConfig {
            start: load.ramp_start,
            most: load.ramp_most,
            success: load.ramp_success.0,
            p99: load.ramp_p99.0.as_secs_f64(),
            precision: load.ramp_precision.0.max(0.001),
            repeats: load.ramp_repeats,
        },
        arrivals,
        settle: load.ramp_settle.0,
        measurement_time: load.ramp_hold.0,
    });
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: String| settings.insert(name.to_owned(), value);
    set("users", users.len().to_string());
    match (ramp, pace) {
        (Some(r), _) => {
            set("ramp", format!("{} % within {}", r.search.success * 100.0, load.ramp_p99.0));
        }
        (None, LoginPace::Open { rate, .. }) => {
            set("rate", format!("{rate} 1/s, {}", arrivals.describe()));
            set("outstanding", load.outstanding.to_string());
        }
        (None, LoginPace::Closed { concurrency }) => {
            set("concurrency", concurrency.to_string());
        }
    }
    if ramp.is_none() {
        set("warmup", warmup.to_string());
        duration.map(|d| set("duration", d.to_string()));
        load.count.map(|n| set("count", n.to_string()));
    }
    set("wrong share", load.wrong_share.0.to_string());
    set("threads", load.threads.to_string());
    let config = GeneratorConfig {
        pace,
        warmup,
        duration,
        count: load.count,
        outstanding: load.outstanding.get(),
        drain_timeout: load.patience.0,
        spin: if load.relaxed { Duration::ZERO } else { SPIN },
        wrong_share: load.wrong_share.0,
        users,
        first: 0,
        step: 1,
        // With a single method, statistics by method would repeat the totals.
        mix: if mix.len() > 1 { mix } else { Vec::new() },
        front,
    };
    let interval = Duration::from_millis(500);
    // Lengthen the interval of a long run, so that its course has at most the 600 points that a figure shows.
    let course = duration.map_or(interval, |d| Duration::from_nanos(d.as_nanos() / 600).max(interval));
    Ok(PreparedLoad {
        methods: config.mix.iter().map(|s| s.name.clone()).collect(),
        trains: false,
        expect: load.expect.clone(),
        open_loop: ramp.is_some() || matches!(pace, LoginPace::Open { .. }),
        plan: LoadRunPlan {
            load: config,
            threads: load.threads.get(),
            cores: load.cores.clone(),
            ramp,
            tls,
            server_pid: load.server_pid.map(u32::from),
            interval,
            timeline_interval: if ramp.is_some() { interval } else { course },
            sctp_nodelay: true,
            offload: true,
            interface: None,
            rounds: 0,
        },
        addresses,
        yes: load.yes,
        check: !load.no_check,
        out: load.out.clone(),
        command,
        method,
        server: load.server.clone(),
        settings,
    })
}

fn read_users(load: &LoadArgs, needs_password: bool) -> Result<UserCredentialTable, CommandFailure> {
    if let Some(path) = &load.users_file {
        let text = String::from_utf8(read_file(path, "users")?);
        let text = text
            .map_err(|_| CommandFailure::usage_error(format!("{}: the file is not UTF-8", path.display())))?;
        return UserCredentialTable::from_csv(&text)
            .map_err(|e| CommandFailure::usage_error(format!("{}: {e}", path.display())));
    }
    let Some(user) = &load.user else {
        return Err(CommandFailure::usage_error(
            "no user: give --user NAME and --password, or --users-file FILE",
        ));
    };
    let password = load.password.clone().or_else(|| std::env::var("USHER_PASSWORD").ok());
    let password = match password {
        Some(password) => password,
        None if !needs_password => String::new(),
        None => {
            return Err(CommandFailure::usage_error("no password: give --password, or set USHER_PASSWORD"));
        }
    };
    UserCredentialTable::from_template(user, &password, load.users.get())
        .map_err(|e| CommandFailure::usage_error(format!("--user: {e}")))
}

fn read_shared_secret(nas: &NasArgs) -> Result<SharedSecret, CommandFailure> {
    if let Some(secret) = &nas.secret {
        return Ok(SharedSecret::new(secret.as_bytes()));
    }
    if let Some(path) = &nas.secret_file {
        let text = read_file(path, "the secret")?;
        let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(CommandFailure::usage_error(format!(
                "{}: the first line is empty, and it must hold the secret",
                path.display()
            )));
        }
        return Ok(SharedSecret::new(line));
    }
    match std::env::var("USHER_SECRET") {
        Ok(secret) if !secret.is_empty() => Ok(SharedSecret::new(secret.as_bytes())),
        _ => Err(CommandFailure::usage_error(
            "no secret: give --secret-file FILE or --secret SECRET, or set USHER_SECRET",
        )),
    }
}

fn read_file(path: &Path, what: &str) -> Result<Vec<u8>, CommandFailure> {
    std::fs::read(path)
        .map_err(|e| CommandFailure::usage_error(format!("{}: cannot read {what}: {e}", path.display())))
}

fn resolve_load_target(server: &str, port: u16) -> Result<SocketAddr, CommandFailure> {
    let found = match server.parse::<std::net::IpAddr>() {
        Ok(ip) => return Ok(SocketAddr::new(ip, port)),
        Err(_) if server.to_socket_addrs().is_ok() => server.to_socket_addrs(),
        Err(_) => (server, port).to_socket_addrs(),
    };
    let none = |e: String| {
        CommandFailure::usage_error(format!(
            "cannot resolve {server}: {e}; write HOST, HOST:PORT or [ADDRESS]:PORT"
        ))
    };
    found.map_err(|e| none(e.to_string()))?.next().ok_or_else(|| none("no address".to_owned()))
}

fn accounting_config(accounting: &AccountingArgs, alone: bool) -> Option<usher_load::LoginAccounting> {
    let session =
        usher_load::LoginAccounting { interims: accounting.interims, every: accounting.interim_every.0 };
    (alone || accounting.accounting).then_some(session)
}

fn anonymous_identity(tls: &TlsArgs, tunnel: bool) -> Result<Option<Arc<[u8]>>, CommandFailure> {
    match &tls.anonymous {
        None => Ok(None),
        Some(name) if tunnel => Ok(Some(name.as_bytes().into())),
        Some(_) => Err(CommandFailure::usage_error("--anonymous needs a method with a tunnel: PEAP or TTLS")),
    }
}

/// Authorities, and what a certificate is to be used with.
struct TlsClientConfigBuilder<'a> {
    roots: TrustRoots,
    options: &'a TlsArgs,
}

impl<'a> TlsClientConfigBuilder<'a> {
    fn from_options(options: &'a TlsArgs) -> Result<Self, CommandFailure> {
        let Some(ca) = &options.ca else {
            return Err(CommandFailure::usage_error(
                "--ca is missing: it names the authorities of the server's certificate",
            ));
        };
        if options.tls_min > options.tls_max {
            return Err(CommandFailure::usage_error("--tls-min is above --tls-max"));
        }
        let roots =
            TrustRoots::from_pem(&read_file(ca, "the authorities")?).map_err(|e| tls_failure(ca, e))?;
        Ok(Self { roots, options })
    }

    /// With these credentials; `sessions`: of how many users one may be taken up again.
    fn client_config(
        &self,
        credentials: Option<TlsCredentials>,
        sessions: usize,
    ) -> Result<ClientConfig, CommandFailure> {
        let options = TlsClientOptions {
            versions: TlsVersionRange { min: self.options.tls_min, max: self.options.tls_max },
            credentials,
            roots: self.roots.clone(),
            server_name: self.options.server_name.clone(),
            resumption: self
                .options
                .resume
                .then(|| TlsResumptionConfig { sessions, ..TlsResumptionConfig::default() }),
            clock: SharedWallClock::from_time(now()),
            key_log: None,
        };
        ClientConfig::new(options).map_err(|e| CommandFailure::usage_error(format!("TLS: {e}")))
    }
}

fn tls_failure(path: &Path, e: usher_crypto::tls::TlsError) -> CommandFailure {
    CommandFailure::usage_error(format!("{}: {e}", path.display()))
}

fn read_credentials(certificate: &Path, key: &Path) -> Result<TlsCredentials, CommandFailure> {
    let (chain, private) = (read_file(certificate, "the certificate")?, read_file(key, "the key")?);
    TlsCredentials::from_pem(&chain, &private)
        .map_err(|e| tls_failure(if e.concerns_private_key() { key } else { certificate }, e))
}

/// The TLS of a connection.
fn build_connection_tls_config(options: &TlsArgs) -> Result<ClientConfig, CommandFailure> {
    let own = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => Some(read_credentials(Path::new(certificate), Path::new(key))?),
        _ => None,
    };
    TlsClientConfigBuilder::from_options(options)?.client_config(own, 1 << 20)
}

/// Where a name of a file has a place for the user.
fn has_user_placeholder(file: &str) -> bool {
    file.contains("{}") || file.contains("{name}")
}

/// Users' certificates: one for all, if there is any, or one a user.
fn read_certificates(
    options: &TlsArgs,
    load: &LoadArgs,
    users: &UserCredentialTable,
) -> Result<(Option<TlsCredentials>, Vec<TlsCredentials>), CommandFailure> {
    let given = options.certificate.as_deref().zip(options.key.as_deref());
    let own = given
        .is_some_and(|(certificate, key)| has_user_placeholder(certificate) || has_user_placeholder(key));
    let listed = (0..users.len()).any(|i| users.certificate_files(i).is_some());
    let one = match given {
        Some((certificate, key)) if !own => Some(read_credentials(Path::new(certificate), Path::new(key))?),
        _ => None,
    };
    let mut each = Vec::new();
    if own || listed {
        let beside = load.users_file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        for i in 0..users.len() {
            let name = String::from_utf8_lossy(users.get(i).0);
            let (certificate, key) = match (users.certificate_files(i), given) {
                (Some((certificate, key)), _) => (beside.join(certificate), beside.join(key)),
                (None, Some((certificate, key))) => {
                    if name.contains(['/', '\0'])
                        && (certificate.contains("{name}") || key.contains("{name}"))
                    {
                        return Err(CommandFailure::usage_error(format!(
                            "the user name {name} cannot be part of a file name ({{name}})"
                        )));
                    }
                    let place =
                        |p: &str| PathBuf::from(p.replace("{}", &i.to_string()).replace("{name}", &name));
                    (place(certificate), place(key))
                }
                (None, None) => {
                    return Err(CommandFailure::usage_error(format!(
                        "the user {name} has no certificate in --users-file; give --certificate and --key \
                         for users without one"
                    )));
                }
            };
            each.push(read_credentials(&certificate, &key)?);
        }
    }
    Ok((one, each))
}

/// The TLS of users' logins: one configuration for all, or one a user.
fn users_tls(
    options: &TlsArgs,
    load: &LoadArgs,
    users: &UserCredentialTable,
) -> Result<usher_load::EapTlsConfig, CommandFailure> {
    let trust = TlsClientConfigBuilder::from_options(options)?;
    let (one, each) = read_certificates(options, load, users)?;
    let each =
        each.into_iter().map(|own| trust.client_config(Some(own), 2)).collect::<Result<Vec<_>, _>>()?;
    let config = match each.first() {
        Some(first) => first.clone(),
        None => trust.client_config(one, 1 << 20)?,
    };
    Ok(usher_load::EapTlsConfig {
        config,
        each: each.into(),
        fragment: options.fragment.into(),
        resume: options.resume,
    })
}

/// A method; what TLS needs is read into `tls` once.
fn build_eap_method(
    name: EapMethodName,
    options: &TlsArgs,
    load: &LoadArgs,
    users: &UserCredentialTable,
    tls: &mut Option<usher_load::EapTlsConfig>,
) -> Result<EapMethod, CommandFailure> {
    let listed = || (0..users.len()).any(|i| users.certificate_files(i).is_some());
    if name == EapMethodName::Tls && options.certificate.is_none() && !listed() {
        return Err(CommandFailure::usage_error(
            "EAP-TLS needs --certificate and --key, for all users or for each: {} or {name} in the file \
             names, or the columns CERTIFICATE,KEY of --users-file",
        ));
    }
    let mut with_tls = || match tls {
        Some(tls) => Ok(tls.clone()),
        None => users_tls(options, load, users).map(|read| tls.insert(read).clone()),
    };
    let mut ttls = |inner| Ok(EapMethod::Ttls(with_tls()?, inner));
    match name {
        EapMethodName::Md5 => Ok(EapMethod::Md5),
        EapMethodName::Gtc => Ok(EapMethod::Gtc),
        EapMethodName::MsChapV2 => Ok(EapMethod::MsChapV2),
        EapMethodName::Tls => Ok(EapMethod::Tls(with_tls()?)),
        EapMethodName::PeapMsChapV2 => Ok(EapMethod::Peap(with_tls()?, PeapInnerMethod::MsChapV2)),
        EapMethodName::PeapGtc => Ok(EapMethod::Peap(with_tls()?, PeapInnerMethod::Gtc)),
        EapMethodName::TtlsPap => ttls(TtlsInnerMethod::Pap),
        EapMethodName::TtlsChap => ttls(TtlsInnerMethod::Chap),
        EapMethodName::TtlsMsChap => ttls(TtlsInnerMethod::MsChap),
        EapMethodName::TtlsMsChapV2 => ttls(TtlsInnerMethod::MsChapV2),
        EapMethodName::TtlsEapMd5 => ttls(TtlsInnerMethod::EapMd5),
        EapMethodName::TtlsEapGtc => ttls(TtlsInnerMethod::EapGtc),
        EapMethodName::TtlsEapMsChapV2 => ttls(TtlsInnerMethod::EapMsChapV2),
    }
}
