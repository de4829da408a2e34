//! Builds the machine's configuration from a file: checks beyond its types, and keys and certificates.

use super::model::{
    AaaOutagePolicyName, ConcentratorConfigFile, EapMethod, IdentTable, NatModeName, PortBlocksTable,
};
use crate::api::{AccessConcentratorConfig, AddressingConfig, NatAddressConfig, SessionLimits};
use crate::track::PortBlockMapping;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use usher_access::pool::{PoolConfig, PoolRange};
use usher_access::{
    AaaOutagePolicy, AuthenticationBackend, LocalUsers, LoginFailureLimit, PORT_TYPE_ETHERNET, RateProfile,
    SubscriberConfig,
};
use usher_access_config::{AccessConfigBuilder, NasKind};
use usher_config::units::{PositiveCount, TimeSpan};
use usher_config::{ConfigEnvironment, KeyPathError, Prefix, name_hint};
use usher_core::{Duration, LinkLayerPortId};
use usher_crypto::tls::{ClientConfig, SharedWallClock};
use usher_eap::packet::EapType;
use usher_ident_service as ident;
use usher_ppp::LinkConfig;
use usher_ppp::auth::AuthenticationProtocol;
use usher_ppp::concentrator::{ConcentratorConfig, ConcentratorPort};
use usher_ppp::pppoe::{MacAddress, TokenBucketRate};

/// The NAS parameters. With this Framed-MTU the EAP packets of an AAA server fit a session's frame.
const NAS: NasKind = NasKind { called: "concentrator", port_type: PORT_TYPE_ETHERNET, framed_mtu: 1400 };
/// The placeholder address of a port before its interface is known.
const UNKNOWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 0]);

fn count_to_usize(count: PositiveCount) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX)
}

fn nonzero_duration(time: TimeSpan) -> Option<Duration> {
    Some(time.get()).filter(|time| !time.is_zero())
}

/// The machine's configuration, and TLS configurations of connections to AAA servers by address.
pub(super) type BuiltConfig = (AccessConcentratorConfig, BTreeMap<SocketAddr, ClientConfig>);

/// Builds the configuration, and reports faults.
pub(super) fn build_config(
    file: &ConcentratorConfigFile,
    base: &Path,
    outside: &dyn ConfigEnvironment,
    clock: &SharedWallClock,
) -> (Option<BuiltConfig>, Vec<KeyPathError>) {
    let mut builder = AccessConfigBuilder::new(base, outside, clock);
    let mut found = Vec::new();
    let config = build_machine_config(&mut builder, &mut found, file, base, outside);
    let (more, outgoing) = builder.finish();
    found.extend(more);
    (config.map(|config| (config, outgoing)), found)
}

fn build_machine_config(
    builder: &mut AccessConfigBuilder<'_>,
    found: &mut Vec<KeyPathError>,
    file: &ConcentratorConfigFile,
    base: &Path,
    outside: &dyn ConfigEnvironment,
) -> Option<AccessConcentratorConfig> {
    let pools = builder.build_pools(&file.pool, |_| Ok(()));
    check_interfaces(builder, &file.listen.interfaces);
    let ppp = build_ppp_config(builder, file);
    let addressing = build_addressing(builder, file, &pools);
    let judge = if file.aaa.is_some() { AuthenticationBackend::Aaa } else { AuthenticationBackend::Local };
    if judge == AuthenticationBackend::Aaa && !file.user.is_empty() {
        builder.report_fault(&["user"], "local users have no effect with [aaa]; keep one of both");
    }
    // The AAA server must answer while the host still retransmits its request: with PAP for about half a minute (RFC
    // 1661 §4.6).
    let aaa = file.aaa.as_ref().map(|table| builder.build_aaa(table, &NAS, file.limits.login.get() / 3));
    let users = LocalUsers {
        methods: file.authentication.eap_methods.iter().map(|method| eap_type(*method)).collect(),
        passwords: Arc::new(builder.read_passwords(&file.user)),
        failures: Some(&file.authentication).filter(|table| table.failures > 0).map(|table| {
            LoginFailureLimit::new(table.failures, table.failure_window.get(), table.lockout_time.get())
        }),
        ..LocalUsers::default()
    };
    let without_aaa = match file.authentication.without_aaa {
        AaaOutagePolicyName::Refuse => AaaOutagePolicy::Refuse,
        AaaOutagePolicyName::Grace => AaaOutagePolicy::Grace(file.authentication.grace_time.get()),
    };
    let mut rates: Vec<RateProfile> = Vec::new();
    for (i, rate) in file.rate.iter().enumerate() {
        let number = i.to_string();
        if rates.iter().any(|other| other.name == rate.name) {
            builder.report_fault(
                &["rate", &number, "name"],
                format!("two [[rate]] have the name \"{}\"", rate.name),
            );
        }
        let (up, down) =
            (rate.up.map(|rate| rate.bits_per_second()), rate.down.map(|rate| rate.bits_per_second()));
        rates.push(RateProfile { name: rate.name.clone(), up, down });
    }
    let blocks = file.tracking.as_ref().and_then(|tracking| tracking.ports.as_ref());
    let blocks = blocks.and_then(|table| self::build_port_blocks(builder, table));
    let ident = file.ident.as_ref().map(|table| self::build_ident_config(found, table, base, outside));
    check_data_plane(builder, file);
    if file.data.nat == NatModeName::Blocks
        && let Some(blocks) = &blocks
    {
        check_translated_pools(builder, &file.service.pools, &pools, blocks);
    }
    let translation =
        file.ident.as_ref().map(|table| NatAddressConfig { addresses: table.masquerade.clone() });
    let limits = &file.limits;
    Some(AccessConcentratorConfig {
        ppp,
        ports: file.listen.interfaces.clone(),
        judge,
        trusts_certificate_names: file.authentication.trust_certificate_names,
        subscribers: SubscriberConfig {
            aaa: match aaa {
                Some(made) => Some(made?),
                None => None,
            },
            users,
            without_aaa,
            pools,
            rates: Some(rates),
            session_timeout: nonzero_duration(limits.session_timeout),
            idle_timeout: nonzero_duration(limits.idle_timeout),
            traffic_interval: file.data.report.get(),
            ..SubscriberConfig::default()
        },
        addressing,
        limits: SessionLimits {
            sessions_per_user: usize::try_from(limits.sessions_per_user).unwrap_or(usize::MAX),
            excess: limits.excess,
            clamp_mss: file.data.clamp_mss,
        },
        logged: file.tracking.is_some(),
        blocks,
        ident: match ident {
            Some(made) => Some(made?),
            None => None,
        },
        translation: translation.unwrap_or_default(),
        // The host sets this field and the next two, from its data plane and from the log.
        lost: Vec::new(),
        unacknowledged_stops: Vec::new(),
    })
}

const fn eap_type(method: EapMethod) -> EapType {
    match method {
        EapMethod::Md5 => EapType::MD5,
        EapMethod::MsChapV2 => EapType::MSCHAPV2,
    }
}

fn check_interfaces(builder: &mut AccessConfigBuilder<'_>, interfaces: &[String]) {
    if interfaces.is_empty() {
        builder.report_fault(
            &["listen"],
            "\"interfaces\" is missing: name the network interfaces with hosts behind them, such as [\"eth1\"]",
        );
    }
    for (i, name) in interfaces.iter().enumerate() {
        let number = i.to_string();
        let at = ["listen", "interfaces", &number];
        // The kernel's limit of interface names (IFNAMSIZ).
        if name.is_empty() || name.len() > 15 || name.contains(['/', ' ', ':']) {
            builder.report_fault(&at, format!("\"{name}\" is not an interface name"));
        }
        if interfaces.iter().take(i).any(|other| other == name) {
            builder.report_fault(&at, format!("\"{name}\" is listed twice"));
        }
    }
}

fn build_ppp_config(
    builder: &mut AccessConfigBuilder<'_>,
    file: &ConcentratorConfigFile,
) -> ConcentratorConfig {
    let (service, limits) = (&file.service, &file.limits);
    let standard = ConcentratorConfig::default();
    if service.name.is_empty() || service.name.len() > 64 {
        builder.report_fault(&["service", "name"], "a concentrator's name has 1 to 64 octets");
    }
    for (i, name) in service.services.iter().enumerate() {
        if name.len() > 64 {
            let i = i.to_string();
            builder.report_fault(&["service", "services", &i], "a service's name has at most 64 octets");
        }
    }
    if file.authentication.protocols.is_empty() {
        builder.report_fault(
            &["authentication", "protocols"],
            "hosts need a protocol to log in; the default is [\"eap\", \"mschapv2\", \"chap\"]",
        );
    }
    let local_eap =
        file.aaa.is_none() && file.authentication.protocols.contains(&AuthenticationProtocol::Eap);
    if local_eap && file.authentication.eap_methods.is_empty() {
        builder.report_fault(
            &["authentication", "eap_methods"],
            "\"eap\" in \"protocols\" needs at least one method",
        );
    }
    if limits.sessions.get() > 65_534 {
        builder.report_fault(&["limits", "sessions"], "PPPoE allows at most 65534 sessions");
    }
    let rate = |per_second: PositiveCount| TokenBucketRate {
        per_second: per_second.get(),
        burst: per_second.get().saturating_mul(5),
    };
    let port = |n| ConcentratorPort { port: LinkLayerPortId(n), address: UNKNOWN, mtu: 1500 };
    ConcentratorConfig {
        name: service.name.clone(),
        ports: (0..).zip(&file.listen.interfaces).map(|(n, _)| port(n)).collect(),
        services: service.services.clone(),
        authentication: file.authentication.protocols.clone().into(),
        link: LinkConfig {
            echo_interval: limits.keepalive.get(),
            echo_failures: limits.keepalive_failures.get(),
            setup: limits.login.get(),
            ..standard.link
        },
        agent: service.trust_circuit_id,
        sessions: count_to_usize(limits.sessions),
        outside: count_to_usize(limits.half_open),
        sessions_per_station: count_to_usize(limits.sessions_per_station),
        excess: limits.excess,
        initiations_per_station: rate(limits.discovery_per_station),
        requests_per_station: rate(limits.discovery_per_station),
        initiations: rate(limits.discovery),
        initiations_per_circuit: TokenBucketRate {
            per_second: limits.discovery_per_station.get().saturating_mul(10),
            burst: limits.discovery_per_station.get().saturating_mul(50),
        },
        terminations: standard.terminations,
    }
}

fn build_addressing(
    builder: &mut AccessConfigBuilder<'_>,
    file: &ConcentratorConfigFile,
    pools: &[PoolConfig],
) -> AddressingConfig {
    let service = &file.service;
    let mut pool = |at: &[&str], name: &str, prefixes: bool| {
        let known = pools.iter().find(|pool| pool.name == name);
        let Some(known) = known else {
            let near = name_hint(name, pools.iter().map(|pool| pool.name.as_str()));
            return builder.report_fault(at, format!("there is no [[pool]] \"{name}\"{near}"));
        };
        let fits = known.ranges.iter().any(|range| match range {
            PoolRange::Prefixes { .. } => prefixes,
            PoolRange::Addresses { first, .. } => !prefixes && first.is_ipv4(),
        });
        // If all ranges of the pool are invalid, that has been reported already.
        if !fits && !known.ranges.is_empty() {
            let wanted = if prefixes {
                "prefixes, such as \"2001:db8:1::/48/64\""
            } else {
                "IPv4 addresses, such as \"10.0.0.0/16\""
            };
            builder.report_fault(at, format!("the [[pool]] \"{name}\" has no {wanted}"));
        }
    };
    for (i, name) in service.pools.iter().enumerate() {
        let i = i.to_string();
        pool(&["service", "pools", &i], name, false);
    }
    for (key, name) in [("prefix_pool", &service.prefix_pool), ("delegated_pool", &service.delegated_pool)] {
        if let Some(name) = name {
            pool(&["service", key], name, true);
        }
    }
    let ipv6 = service.ipv6.unwrap_or(service.prefix_pool.is_some() || service.delegated_pool.is_some());
    if service.address.is_none() && !service.pools.is_empty() {
        builder.report_fault(
            &["service"],
            "\"address\" is missing: set the concentrator's IPv4 address, such as \"10.0.0.1\"",
        );
    }
    if service.address.is_none() && !ipv6 {
        builder.report_fault(
            &["service"],
            "hosts would get no address: set \"address\" and \"pools\" for IPv4, \"prefix_pool\" for IPv6, or both",
        );
    }
    if service.address.is_some() && service.pools.is_empty() && file.aaa.is_none() {
        builder
            .report_fault(&["service"], "\"pools\" is missing: name the pools of IPv4 addresses for hosts");
    }
    AddressingConfig {
        local: service.address,
        pools: service.pools.clone(),
        ipv6,
        prefix_pool: service.prefix_pool.clone(),
        delegated_pool: service.delegated_pool.clone(),
        dns: service.dns.clone(),
    }
}

fn build_port_blocks(
    builder: &mut AccessConfigBuilder<'_>,
    table: &PortBlocksTable,
) -> Option<PortBlockMapping> {
    let at = ["tracking", "ports"];
    let inside = table.inside.parse::<PoolRange>().map_err(|error| error.to_string());
    let inside = inside.and_then(|range| match range {
        PoolRange::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) } => Ok((first, last)),
        _ => Err(format!("{} is not a range of IPv4 addresses, such as 100.64.0.0/20", table.inside)),
    });
    let inside = builder.ok_or_report(&[&at[..], &["inside"]].concat(), inside)?;
    for (i, address) in table.outside.iter().enumerate() {
        if table.outside.iter().take(i).any(|other| other == address) {
            let i = i.to_string();
            builder.report_fault(&[&at[..], &["outside", &i]].concat(), format!("{address} is listed twice"));
        }
    }
    let made = PortBlockMapping::new(inside, &table.outside, table.first).map_err(|error| error.0);
    builder.ok_or_report(&at, made)
}

fn build_ident_config(
    found: &mut Vec<KeyPathError>,
    table: &IdentTable,
    base: &Path,
    outside: &dyn ConfigEnvironment,
) -> Option<ident::IdentServiceConfig> {
    let mut askers = table.asker.clone();
    if let Some(disclose) = table.others {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let all =
            any.map(|network| ident::config::AskerTable { prefix: Prefix { network, bits: 0 }, disclose });
        askers.extend(all);
    }
    let file = ident::config::IdentConfigFile {
        asker: askers,
        hide: table.hide.clone(),
        token: table.token.clone(),
        ..ident::config::IdentConfigFile::default()
    };
    let (config, wrong) = ident::config::check_file(&file, base, outside);
    let below = |(keys, message): KeyPathError| {
        (core::iter::once("ident".to_string()).chain(keys).collect::<Vec<_>>(), message)
    };
    let whole = wrong.is_empty();
    found.extend(wrong.into_iter().map(below));
    config.filter(|_| whole)
}

/// Checks that every pool has port blocks: hosts without a block would go out untranslated.
fn check_translated_pools(
    builder: &mut AccessConfigBuilder<'_>,
    named: &[String],
    pools: &[PoolConfig],
    blocks: &PortBlockMapping,
) {
    for (i, name) in named.iter().enumerate() {
        let pool = pools.iter().find(|pool| pool.name == *name);
        let outside = pool.into_iter().flat_map(|pool| &pool.ranges).find(|range| match range {
            PoolRange::Addresses { first: IpAddr::V4(first), last: IpAddr::V4(last) } => {
                blocks.port_block_of_host(*first).is_none() || blocks.port_block_of_host(*last).is_none()
            }
            _ => false,
        });
        if let Some(range) = outside {
            let message = format!(
                "{range} of the [[pool]] \"{name}\" is not within \"inside\" of [tracking.ports]; only hosts within \
                 it are translated"
            );
            builder.report_fault(&["service", "pools", &i.to_string()], message);
        }
    }
}

fn check_data_plane(builder: &mut AccessConfigBuilder<'_>, file: &ConcentratorConfigFile) {
    let data = &file.data;
    if data.device.is_empty() || data.device.len() > 15 || data.device.contains(['/', ' ', ':']) {
        builder.report_fault(&["data", "device"], format!("\"{}\" is not a device name", data.device));
    }
    if data.report.get() < Duration::from_secs(1) {
        builder.report_fault(&["data", "report"], "the minimum is 1 s");
    }
    let ports = file.tracking.as_ref().and_then(|tracking| tracking.ports.as_ref());
    if data.nat == NatModeName::Blocks && ports.is_none() {
        builder.report_fault(
            &["data", "nat"],
            "\"blocks\" needs [tracking.ports], which assigns the port blocks",
        );
    }
    if let Some(tracking) = &file.tracking
        && tracking.folder.as_os_str().is_empty()
    {
        builder.report_fault(&["tracking", "folder"], "the session log needs a folder");
    }
    if let Some(ipfix) = file.tracking.as_ref().and_then(|tracking| tracking.ipfix.as_ref()) {
        if ipfix.collectors.is_empty() {
            let at = ["tracking", "ipfix", "collectors"];
            builder.report_fault(
                &at,
                "name a collector, such as [\"192.0.2.9:4739\"], or remove [tracking.ipfix]",
            );
        }
        if ipfix.message < 512 {
            let at = ["tracking", "ipfix", "message"];
            builder.report_fault(&at, "the minimum is 512 octets, which every path carries");
        }
        if ipfix.refresh.get().is_zero() {
            let at = ["tracking", "ipfix", "refresh"];
            builder.report_fault(
                &at,
                "the interval must not be 0 s: collectors need templates again; set one such as \"10 min\"",
            );
        }
    }
}
