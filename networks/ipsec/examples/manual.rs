//! One end of a tunnel with manual keys (RFC 4301 §4.5.1): AES-128-GCM in UDP. It runs until its standard input ends,
//! then prints its counters. `benches/peers/esp` measures it.
//!
//! `manual a|b LOCAL REMOTE` takes the addresses of the network between the two. The device is `esp0`. Traffic of `a`
//! is 10.1.0.0/16, of `b` 10.2.0.0/16; the caller sets addresses and routes. The keys are public, so nothing that is
//! sent is secret.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::SecureRng;
use usher_crypto::cipher::CipherAlgorithm;
use usher_esp::plane::{IpsecMode, OuterAddresses};
use usher_esp::{EspKeys, EspTransform, IpsecOperation, SaLifetime, SaPair, TrafficSelector};
use usher_ipsec::{EspTunnel, TunnelConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [end, local, remote] = &arguments[..] else { return Err("usage: manual a|b LOCAL REMOTE".into()) };
    let end: usize = match end.as_str() {
        "a" => 0,
        "b" => 1,
        other => return Err(format!("\"{other}\" is neither end: write a or b").into()),
    };
    let traffic = |end: usize| {
        let address = Ipv4Addr::new(10, end as u8 + 1, 0, 0);
        TrafficSelector::from_network(address.into(), 16).into_iter().collect::<Vec<_>>()
    };
    let keys = |octet: u8| EspKeys { cipher: vec![octet; 20].into(), integrity: Vec::new().into() };
    let address = |text: &str| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 4500));
    let cipher = Some(CipherAlgorithm::AesGcm);
    let other = 1 - end;
    let pair = SaPair {
        inbound: 0x1000 + end as u32,
        outbound: 0x1000 + other as u32,
        transform: EspTransform { cipher, integrity: None, extended_sequence_numbers: true },
        inbound_keys: keys(end as u8),
        outbound_keys: keys(other as u8),
        mode: IpsecMode::Tunnel,
        local: traffic(end),
        remote: traffic(other),
        outer: OuterAddresses { local: address(local)?, remote: address(remote)?, encapsulated: true },
        policy: None,
        lifetime: SaLifetime::default(),
        window: SaPair::WINDOW,
        replaces: None,
        after_peer: false,
        follow: false,
    };
    let config = TunnelConfig { device: "esp0".to_owned(), raw: Vec::new(), ..TunnelConfig::default() };
    let tunnel = EspTunnel::start(&config, SecureRng::from_seed([0; 32]), Box::new(|_| {}))?;
    tunnel.apply_operation(IpsecOperation::Install(pair.into()))?;
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let (packets, moved) = tunnel.counters();
    for (name, count) in packets.iter().chain(moved.iter()).filter(|(_, count)| *count > 0) {
        writeln!(out, "{name} {count}")?;
    }
    Ok(())
}
