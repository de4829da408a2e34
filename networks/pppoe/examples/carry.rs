//! Runs a data plane with fixed sessions until the end of standard input, then prints its counters.
//! `benches/peers/pppoe` measures it.
//!
//! `carry user|ebpf[-xdp|-tc] concentrator|host INTERFACE PEER NUMBER HOST GATEWAY [DEVICE]`: PEER is the other end's
//! Ethernet address, NUMBER the SESSION_ID, HOST and GATEWAY the addresses of both ends. With `host`, all addresses but
//! its own are at the other end. DEVICE defaults to `carry0`.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use usher_pppoe::{
    AccessPortConfig, DataPlaneConfig, DataPlaneMode, DataPlaneSession, EbpfHook, PppoeDataPlane,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage =
        "usage: carry user|ebpf[-xdp|-tc] concentrator|host INTERFACE PEER NUMBER HOST GATEWAY [DEVICE]";
    let [mode, end, interface, peer, number, host, gateway, device @ ..] = &arguments[..] else {
        return Err(usage.into());
    };
    let mode = match &mode[..] {
        "user" => DataPlaneMode::User,
        "ebpf" => DataPlaneMode::Ebpf(EbpfHook::Auto),
        "ebpf-xdp" => DataPlaneMode::Ebpf(EbpfHook::Xdp),
        "ebpf-tc" => DataPlaneMode::Ebpf(EbpfHook::Tc),
        _ => return Err(usage.into()),
    };
    let octets: Result<Vec<u8>, _> = peer.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect();
    let peer = octets?.try_into().map_err(|_| "an Ethernet address has six octets")?;
    let (host, gateway): (Ipv4Addr, Ipv4Addr) = (host.parse()?, gateway.parse()?);
    let ports = vec![AccessPortConfig { interface: interface.clone() }];
    let device = device.first().map_or("carry0", String::as_str).to_owned();
    let config = DataPlaneConfig { ports, mode, device, report: None, closed: false };
    let plane = PppoeDataPlane::start(&config, Box::new(|_| {}))?;
    let session = DataPlaneSession {
        number: number.parse()?,
        port: 0,
        peer,
        mtu: plane.ports()[0].mtu - 8,
        ipv4: Some(host),
        gateway: Some(gateway),
        networks: Vec::new(),
        ipv6: Vec::new(),
        link_local: None,
        rate_up: None,
        rate_down: None,
        clamp_mss: true,
    };
    plane.install_session(match end.as_str() {
        "concentrator" => session,
        "host" => DataPlaneSession {
            ipv4: None,
            gateway: Some(host),
            networks: vec![(Ipv4Addr::UNSPECIFIED, 0)],
            ..session
        },
        _ => return Err(usage.into()),
    })?;
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for (name, count) in plane.counters()?.iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "{name} {count}")?;
    }
    writeln!(out, "{:?}", plane.session_usage(number.parse()?)?)?;
    Ok(())
}
