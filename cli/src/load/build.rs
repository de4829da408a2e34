//! From what was typed to what is run.

use super::args::{
    Accounting, Diameter, DiameterMethod, Eap, EapName, Load, LoadCommand, Nas, Radius, RadiusMethod, Tls,
    TlsVersion,
};
use crate::output::Failure;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_core::{Duration, SocketId, WallTime};
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Credentials, Resumption, Roots, Version, VersionRange, WallClock,
};
use usher_load::{
    Arrivals, Config, DiameterConfig, DiameterLogin, EapMethod, FrontConfig, Pace, PeapInner, Plan,
    RadiusConfig, RadiusLogin, RampConfig, RampPlan, TtlsInner, Users,
};
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Retransmission, ServerConfig};

const AUTHENTICATION_PORT: u16 = 1812;
const ACCOUNTING_PORT: u16 = 1813;
const DIAMETER_PORT: u16 = 3868;
const DIAMETER_TLS_PORT: u16 = 5658;
/// How much earlier than the next login the generator is woken: more than the coarseness of timers.
const SPIN: Duration = Duration::from_micros(2_500);
/// What a NAS tells of its link (RFC 2865 §5.12, §5.6, §5.41): EAP over 802.11.
const FRAMED_MTU: u32 = 1_400;
const SERVICE_FRAMED: u32 = 2;
const PORT_WIRELESS: u32 = 19;

/// All that a run needs.
pub(super) struct Job {
    pub(super) plan: Plan,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) yes: bool,
    pub(super) check: bool,
    pub(super) out: Option<PathBuf>,
    pub(super) command: &'static str,
    pub(super) method: String,
    pub(super) server: String,
    pub(super) open_loop: bool,
    pub(super) settings: BTreeMap<String, String>,
}

pub(super) fn job(command: &LoadCommand) -> Result<Job, Failure> {
    match command {
        LoadCommand::Radius(r) => radius(r),
        LoadCommand::Eap(e) => eap(e),
        LoadCommand::Diameter(d) => diameter(d),
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

fn now() -> WallTime {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_secs(unix.as_secs())
}

fn radius(r: &Radius) -> Result<Job, Failure> {
    let alone = r.method == RadiusMethod::Accounting;
    let port = if alone { ACCOUNTING_PORT } else { AUTHENTICATION_PORT };
    let address = resolve(&r.load.server, port)?;
    let login = match r.method {
        RadiusMethod::Pap => Some(RadiusLogin::Pap),
        RadiusMethod::Chap => Some(RadiusLogin::Chap),
        RadiusMethod::MsChapV2 => Some(RadiusLogin::MsChapV2),
        RadiusMethod::Accounting => None,
    };
    if alone && r.load.wrong_share.0 > 0.0 {
        return Err(Failure::usage(
            "accounting has no password: --wrong-share does not go with --method accounting",
        ));
    }
    let mut common = nas_attributes(&r.nas)?;
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    over_radius("radius", name(&r.method), &r.load, &r.nas, &r.accounting, address, login, None, common)
}

fn eap(e: &Eap) -> Result<Job, Failure> {
    let address = resolve(&e.load.server, AUTHENTICATION_PORT)?;
    let method = eap_method(e.method, &e.tls)?;
    if e.load.wrong_share.0 > 0.0 && !method.has_password() {
        return Err(Failure::usage("EAP-TLS has no password: --wrong-share does not go with it"));
    }
    let mut common = nas_attributes(&e.nas)?;
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    common.push_u32(kind::NAS_PORT_TYPE, PORT_WIRELESS);
    common.push_u32(kind::FRAMED_MTU, FRAMED_MTU);
    let anonymous = anonymous(&e.tls, &method)?;
    let login = Some(RadiusLogin::Eap(method));
    over_radius("eap", name(&e.method), &e.load, &e.nas, &e.accounting, address, login, anonymous, common)
}

#[allow(clippy::too_many_arguments, reason = "one place puts together what two commands share")]
fn over_radius(
    command: &'static str,
    method: String,
    load: &Load,
    nas: &Nas,
    accounting: &Accounting,
    address: SocketAddr,
    login: Option<RadiusLogin>,
    anonymous: Option<Arc<[u8]>>,
    common: Attributes,
) -> Result<Job, Failure> {
    let secret = secret(nas)?;
    let server = |address| {
        let mut server = ServerConfig::new(address, secret.clone());
        server.require_message_authenticator = !nas.no_message_authenticator;
        server
    };
    let mut client = client::Config::single(server(address));
    let mut addresses = vec![address];
    let sessions = sessions(accounting, login.is_none());
    if sessions.is_some() && login.is_some() {
        let at = match &accounting.accounting_server {
            Some(at) => resolve(at, ACCOUNTING_PORT)?,
            None => SocketAddr::new(address.ip(), ACCOUNTING_PORT),
        };
        client.servers.push(server(at));
        addresses.push(at);
    }
    client.retransmission = Retransmission::Backoff {
        initial: nas.irt.0,
        max: nas.mrt.0,
        max_count: nas.mrc,
        max_duration: nas.mrd.0,
        jitter: 0.1,
    };
    client.first_socket = SocketId(0);
    client.max_sockets = 1024;
    let front = FrontConfig::Radius(RadiusConfig {
        client,
        login,
        accounting: sessions,
        anonymous,
        common,
        epoch: now(),
    });
    finish(command, method, load, front, addresses, None)
}

fn diameter(d: &Diameter) -> Result<Job, Failure> {
    let port = if d.over_tls { DIAMETER_TLS_PORT } else { DIAMETER_PORT };
    let address = resolve(&d.load.server, port)?;
    let eap = |method| eap_method(method, &d.tls).map(|m| Some(DiameterLogin::Eap(m)));
    let login = match d.method {
        DiameterMethod::Pap => Some(DiameterLogin::Pap),
        DiameterMethod::Accounting => None,
        DiameterMethod::EapMd5 => eap(EapName::Md5)?,
        DiameterMethod::EapGtc => eap(EapName::Gtc)?,
        DiameterMethod::EapMsChapV2 => eap(EapName::MsChapV2)?,
        DiameterMethod::EapTls => eap(EapName::Tls)?,
        DiameterMethod::EapPeapMsChapV2 => eap(EapName::PeapMsChapV2)?,
        DiameterMethod::EapTtlsPap => eap(EapName::TtlsPap)?,
        DiameterMethod::EapTtlsMsChapV2 => eap(EapName::TtlsMsChapV2)?,
    };
    let has_password = match &login {
        Some(DiameterLogin::Pap) => true,
        Some(DiameterLogin::Eap(m)) => m.has_password(),
        None => false,
    };
    if d.load.wrong_share.0 > 0.0 && !has_password {
        return Err(Failure::usage("this method has no password: --wrong-share does not go with it"));
    }
    let anonymous = match &login {
        Some(DiameterLogin::Eap(m)) => anonymous(&d.tls, m)?,
        _ => None,
    };
    let behind = |host: &str| host.split_once('.').map_or(host, |(_, realm)| realm).to_owned();
    let front = FrontConfig::Diameter(DiameterConfig {
        address,
        local: local(address)?,
        server: d.peer.clone(),
        host: d.identity.clone(),
        realm: d.realm.clone().unwrap_or_else(|| behind(&d.identity)),
        destination: d.destination.clone().unwrap_or_else(|| behind(&d.peer)),
        connections: d.connections.get(),
        first: 0,
        accounting: sessions(&d.accounting, login.is_none()),
        login,
        anonymous,
        timeout: d.timeout.0,
        epoch: now(),
    });
    if d.load.threads > d.connections {
        return Err(Failure::usage(format!(
            "{} threads share {} connections: give --connections at least as many",
            d.load.threads, d.connections
        )));
    }
    let tls = if d.over_tls { Some(tls(&d.tls)?) } else { None };
    finish("diameter", name(&d.method), &d.load, front, vec![address], tls)
}

/// Our address on the way there; nothing is sent.
fn local(server: SocketAddr) -> Result<IpAddr, Failure> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).and_then(|s| s.connect(server).and_then(|()| s.local_addr()));
    socket.map(|a| a.ip()).map_err(|e| Failure::failed(format!("there is no way to {server}: {e}")))
}

fn finish(
    command: &'static str,
    method: String,
    load: &Load,
    front: FrontConfig,
    addresses: Vec<SocketAddr>,
    tls: Option<ClientConfig>,
) -> Result<Job, Failure> {
    let users = Arc::new(users(load, needs_password(&front))?);
    let arrivals = if load.regular { Arrivals::Regular } else { Arrivals::Exponential };
    for (option, rate) in [
        ("--rate", load.rate),
        ("--ramp-start", Some(load.ramp_start)),
        ("--ramp-most", Some(load.ramp_most)),
    ] {
        if rate.is_some_and(|r| !(r.is_finite() && r > 0.0)) {
            return Err(Failure::usage(format!("{option} is not a number above 0")));
        }
    }
    let pace = match load.rate {
        Some(rate) => Pace::Open { rate, arrivals },
        None => Pace::Closed { concurrency: load.concurrency.map_or(16, usize::from) },
    };
    if let (Pace::Closed { concurrency }, false) = (pace, load.ramp)
        && concurrency < load.threads.get()
    {
        return Err(Failure::usage(
            "--concurrency is less than --threads: each thread needs one login at least",
        ));
    }
    let duration = load.duration.map(|d| d.0).or(load.count.is_none().then(|| Duration::from_secs(10)));
    let warmup = load
        .warmup
        .map_or_else(|| if load.count.is_some() { Duration::ZERO } else { Duration::from_secs(1) }, |w| w.0);
    let ramp = load.ramp.then(|| RampPlan {
        search: RampConfig {
            start: load.ramp_start,
            most: load.ramp_most,
            success: load.ramp_success.0,
            p99: load.ramp_p99.0.as_secs_f64(),
            precision: load.ramp_precision.0.max(0.001),
        },
        arrivals,
        settle: load.ramp_settle.0,
        hold: load.ramp_hold.0,
    });
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: String| settings.insert(name.to_owned(), value);
    set("users", users.len().to_string());
    match (ramp, pace) {
        (Some(r), _) => {
            set("ramp", format!("{} % within {}", r.search.success * 100.0, load.ramp_p99.0));
        }
        (None, Pace::Open { rate, .. }) => {
            set("rate", format!("{rate} 1/s, {arrivals:?} gaps"));
            set("outstanding", load.outstanding.to_string());
        }
        (None, Pace::Closed { concurrency }) => {
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
    let config = Config {
        pace,
        warmup,
        duration,
        count: load.count,
        outstanding: load.outstanding.get(),
        patience: load.patience.0,
        spin: if load.relaxed { Duration::ZERO } else { SPIN },
        wrong_share: load.wrong_share.0,
        users,
        first: 0,
        step: 1,
        front,
    };
    Ok(Job {
        open_loop: ramp.is_some() || matches!(pace, Pace::Open { .. }),
        plan: Plan {
            load: config,
            threads: load.threads.get(),
            cores: load.cores.clone(),
            ramp,
            tls,
            server_pid: load.server_pid.map(u32::from),
            interval: Duration::from_millis(500),
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

fn needs_password(front: &FrontConfig) -> bool {
    match front {
        FrontConfig::Radius(r) => match &r.login {
            Some(RadiusLogin::Eap(m)) => m.has_password(),
            Some(_) => true,
            None => false,
        },
        FrontConfig::Diameter(d) => match &d.login {
            Some(DiameterLogin::Eap(m)) => m.has_password(),
            Some(DiameterLogin::Pap) => true,
            None => false,
        },
    }
}

fn users(load: &Load, needs_password: bool) -> Result<Users, Failure> {
    if let Some(path) = &load.users_file {
        let text = String::from_utf8(read(path, "users")?);
        let text = text.map_err(|_| Failure::usage(format!("{}: not UTF-8", path.display())))?;
        return Users::csv(&text).map_err(|e| Failure::usage(format!("{}: {e}", path.display())));
    }
    let Some(user) = &load.user else {
        return Err(Failure::usage(
            "who is to log in? Give --user NAME and --password, or --users-file FILE",
        ));
    };
    let password = load.password.clone().or_else(|| std::env::var("USHER_PASSWORD").ok());
    let password = match password {
        Some(password) => password,
        None if !needs_password => String::new(),
        None => return Err(Failure::usage("no password: give --password, or set USHER_PASSWORD")),
    };
    Users::template(user, &password, load.users.get()).map_err(|e| Failure::usage(format!("--user: {e}")))
}

fn secret(nas: &Nas) -> Result<Secret, Failure> {
    if let Some(secret) = &nas.secret {
        return Ok(Secret::new(secret.as_bytes()));
    }
    if let Some(path) = &nas.secret_file {
        let text = read(path, "the secret")?;
        let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(Failure::usage(format!(
                "{}: the first line, which is the secret, is empty",
                path.display()
            )));
        }
        return Ok(Secret::new(line));
    }
    match std::env::var("USHER_SECRET") {
        Ok(secret) if !secret.is_empty() => Ok(Secret::new(secret.as_bytes())),
        _ => {
            Err(Failure::usage("no secret: give --secret-file FILE or --secret SECRET, or set USHER_SECRET"))
        }
    }
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| Failure::usage(format!("{}: {what} cannot be read: {e}", path.display())))
}

fn resolve(server: &str, port: u16) -> Result<SocketAddr, Failure> {
    let found = match server.parse::<std::net::IpAddr>() {
        Ok(ip) => return Ok(SocketAddr::new(ip, port)),
        Err(_) if server.to_socket_addrs().is_ok() => server.to_socket_addrs(),
        Err(_) => (server, port).to_socket_addrs(),
    };
    let none = |e: String| Failure::usage(format!("{server}: {e}; write HOST, HOST:PORT or [ADDRESS]:PORT"));
    found.map_err(|e| none(e.to_string()))?.next().ok_or_else(|| none("no address".to_owned()))
}

fn nas_attributes(nas: &Nas) -> Result<Attributes, Failure> {
    let mut list = Attributes::new();
    list.push_text(kind::NAS_IDENTIFIER, &nas.nas_identifier)
        .map_err(|e| Failure::usage(format!("--nas-identifier: {e}")))?;
    Ok(list)
}

fn sessions(accounting: &Accounting, alone: bool) -> Option<usher_load::Accounting> {
    let session = usher_load::Accounting { interims: accounting.interims, every: accounting.interim_every.0 };
    (alone || accounting.accounting).then_some(session)
}

fn anonymous(tls: &Tls, method: &EapMethod) -> Result<Option<Arc<[u8]>>, Failure> {
    match &tls.anonymous {
        None => Ok(None),
        Some(name) if matches!(method, EapMethod::Peap(..) | EapMethod::Ttls(..)) => {
            Ok(Some(name.as_bytes().into()))
        }
        Some(_) => Err(Failure::usage("--anonymous goes with the methods that have a tunnel, PEAP and TTLS")),
    }
}

fn tls(tls: &Tls) -> Result<ClientConfig, Failure> {
    let Some(ca) = &tls.ca else {
        return Err(Failure::usage("--ca is missing: the server's certificate must end below an authority"));
    };
    let at = |path: &Path, e: usher_crypto::tls::TlsError| Failure::usage(format!("{}: {e}", path.display()));
    let roots = Roots::from_pem(&read(ca, "the authorities")?).map_err(|e| at(ca, e))?;
    let credentials = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let (chain, private) = (read(certificate, "the certificate")?, read(key, "the key")?);
            Some(Credentials::from_pem(&chain, &private).map_err(|e| at(certificate, e))?)
        }
        _ => None,
    };
    if tls.tls_min == TlsVersion::V13 && tls.tls_max == TlsVersion::V12 {
        return Err(Failure::usage("--tls-min is above --tls-max"));
    }
    let version = |v| if v == TlsVersion::V12 { Version::Tls12 } else { Version::Tls13 };
    let options = ClientOptions {
        versions: VersionRange { min: version(tls.tls_min), max: version(tls.tls_max) },
        credentials,
        roots,
        server_name: tls.server_name.clone(),
        resumption: tls.resume.then(|| Resumption { sessions: 1 << 20, ..Resumption::default() }),
        clock: WallClock::at(now()),
        key_log: None,
    };
    ClientConfig::new(options).map_err(|e| Failure::usage(format!("TLS: {e}")))
}

fn eap_method(name: EapName, options: &Tls) -> Result<EapMethod, Failure> {
    let with_tls = || {
        let config = tls(options)?;
        Ok::<_, Failure>(usher_load::Tls {
            config,
            fragment: options.fragment.into(),
            resume: options.resume,
        })
    };
    let ttls = |inner| Ok(EapMethod::Ttls(with_tls()?, inner));
    match name {
        EapName::Md5 => Ok(EapMethod::Md5),
        EapName::Gtc => Ok(EapMethod::Gtc),
        EapName::MsChapV2 => Ok(EapMethod::MsChapV2),
        EapName::Tls if options.certificate.is_none() => Err(Failure::usage(
            "EAP-TLS needs --certificate and --key: the users' certificate with its chain",
        )),
        EapName::Tls => Ok(EapMethod::Tls(with_tls()?)),
        EapName::PeapMsChapV2 => Ok(EapMethod::Peap(with_tls()?, PeapInner::MsChapV2)),
        EapName::PeapGtc => Ok(EapMethod::Peap(with_tls()?, PeapInner::Gtc)),
        EapName::TtlsPap => ttls(TtlsInner::Pap),
        EapName::TtlsChap => ttls(TtlsInner::Chap),
        EapName::TtlsMsChap => ttls(TtlsInner::MsChap),
        EapName::TtlsMsChapV2 => ttls(TtlsInner::MsChapV2),
        EapName::TtlsEapMd5 => ttls(TtlsInner::EapMd5),
        EapName::TtlsEapGtc => ttls(TtlsInner::EapGtc),
        EapName::TtlsEapMsChapV2 => ttls(TtlsInner::EapMsChapV2),
    }
}
