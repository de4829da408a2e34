//! The users of connections, by IDENT.

use super::*;
use crate::IDENT_LISTENER;
use usher_ident::{ClientCommand, ClientConfig as AskerConfig, ClientEvent, IdentClient};
use usher_ident::{IdentPortPair, IdentQuery, PORT as IDENT};

const ASKER: &str = "198.51.100.7";

fn ident_config() -> String {
    let blocks = "[tracking.ports]\ninside = \"10.0.0.0/28\"\noutside = [\"192.0.2.9\"]\n";
    format!(
        "{LOCAL}{blocks}[ident]\nothers = \"user-name\"\nmasquerade = [\"{CONCENTRATOR}\"]\n[[ident.asker]]\nprefix = \"198.51.100.8\"\ndisclose = \"hidden\"\n"
    )
}

/// A concentrator with a connected user ann, redirected IDENT queries, and two IDENT clients.
struct IdentFixture {
    world: ConcentratorTestNetwork,
    askers: Vec<NetworkHostHandle<IdentClient>>,
}

impl IdentFixture {
    fn new() -> Self {
        let mut world = ConcentratorTestNetwork::new(&ident_config(), vec![ann_client(1)]);
        let askers = ["198.51.100.7", "198.51.100.8"].map(|address| {
            world.net.add_host(IdentClient::new(AskerConfig::default()), &[address.parse().unwrap()])
        });
        world.connect_and_wait(0);
        Self { world, askers: askers.to_vec() }
    }
    fn query_user(&mut self, who: usize, address: IpAddr, port: u16) -> String {
        // The network redirects connections to the address to the concentrator.
        self.world.net.add_listener(self.world.ac, IDENT_LISTENER, SocketAddr::new(address, IDENT));
        let question = IdentQuery {
            server: SocketAddr::new(address, IDENT),
            local: None,
            ports: IdentPortPair::new(port, 6667),
        };
        self.world.net.send_command(self.askers[who], ClientCommand::Query { token: 0, question }).unwrap();
        self.world.net.run_for(secs(10));
        let mut said = self.world.net.take_events(self.askers[who]);
        let (_, ClientEvent::Answered { answer, .. }) = said.remove(0);
        answer.map_or_else(|error| format!("{error:?}"), |answer| answer.to_string())
    }
}

#[test]
fn a_query_for_a_host_address_finds_its_user_on_any_port() {
    let mut site = IdentFixture::new();
    let entry = site.world.installed_sessions().into_values().next().unwrap();
    let address = IpAddr::V4(entry.ipv4.unwrap());
    for port in [1, 40_000] {
        assert_eq!(site.query_user(0, address, port), "ann (UNIX)");
    }
    assert_eq!(site.query_user(1, address, 1), "HIDDEN-USER", "as is set for that asker");
    assert_eq!(site.world.counter_value("ident_by_address"), 3);
    let other = Ipv4Addr::from_bits(entry.ipv4.unwrap().to_bits() ^ 1);
    assert_eq!(site.query_user(0, other.into(), 1), "NO-USER");
    let said = site.world.events().filter(|event| matches!(event, AccessConcentratorEvent::Ident(_))).count();
    assert_eq!(said, 4, "who asked is told, for the audit");
    site.world.close_sessions(PppoeSessionSelector::All);
    assert_eq!(site.query_user(0, address, 1), "NO-USER", "the session is over");
}

#[test]
fn a_block_of_ports_leads_to_its_host_by_computing() {
    let mut site = IdentFixture::new();
    let log = site.world.log_records();
    let begin = log.iter().find_map(|record| match record {
        SessionLogRecord::Begin(begin) => Some(begin.clone()),
        _ => None,
    });
    let block = begin.unwrap().block.expect("the log has it");
    let outside = IpAddr::V4(block.address);
    assert_eq!(site.query_user(0, outside, block.last), "ann (UNIX)");
    let beyond = if block.last == u16::MAX { block.first - 1 } else { block.last + 1 };
    assert_eq!(site.query_user(0, outside, beyond), "NO-USER");
    assert_eq!(site.world.counter_value("ident_by_block"), 1);
}

#[test]
fn a_connection_from_a_shared_address_needs_a_system_lookup() {
    let mut site = IdentFixture::new();
    let inner = IpAddr::V4(site.world.session_statuses()[0].ipv4.unwrap());
    site.world.net.on_job(site.world.ac, move |JobRequest { token, job: what, .. }| match what {
        ConcentratorJob::Translation(connection) => {
            assert_eq!(connection.remote, socket_address(ASKER, 6667));
            let inner = match connection.local.port() {
                6193 => Ok(Some(SocketAddr::new(inner, 1234))),
                6195 => Ok(Some(socket_address("10.0.0.77", 9))),
                6197 => Ok(None),
                _ => Err(()),
            };
            Some((millis(3), AccessConcentratorCommand::Translated { token, inner }))
        }
        ConcentratorJob::Log(_) => None,
    });
    let shared: IpAddr = CONCENTRATOR.parse().unwrap();
    assert_eq!(site.query_user(0, shared, 6193), "ann (UNIX)");
    assert_eq!(site.query_user(0, shared, 6195), "NO-USER");
    assert_eq!(site.query_user(0, shared, 6197), "NO-USER");
    assert_eq!(site.query_user(0, shared, 6199), "UNKNOWN-ERROR");
    assert_eq!(site.world.counter_value("ident_by_translation"), 1);
}
