//! Records of accounting that an access server sends.

use crate::build::{aaa_config, diameter_nas, diameter_server, mac, radius_nas, user_name, users, world};
use crate::world::World;
use usher_aaa::ledger::{Ledger, LedgerConfig};
use usher_aaa::store::Memory;
use usher_core::{CommandError, Duration, PortId, Seed};
use usher_diameter::codes::application;
use usher_diameter::peer::capabilities::Application;
use usher_nas::authenticator::{self, Command, Event};
use usher_nas::{AaaConfig, Connections, Record, RecordKind, StationId};

fn record(kind: RecordKind, number: u32) -> Record {
    let station = StationId::Frame { port: PortId(3), mac: mac(0) };
    let lasted = Duration::from_secs(10 * u64::from(number));
    Record { name: user_name(0), lasted, ..Record::new(kind, station, "00c0ffee".into(), number) }
}

/// An access server by RADIUS, and one by Diameter; `connections` are the latter's.
fn access(radius: bool, connections: Option<Connections>) -> (authenticator::Config, usher_aaa::Config) {
    let users = users(Seed::new(1), 1);
    if radius {
        return (radius_nas(1), aaa_config(users));
    }
    let accounting = Application::acct(application::ACCOUNTING);
    let (mut nas, mut server) = (diameter_nas(1), diameter_server(0, users));
    if let AaaConfig::Diameter(config) = &mut nas.aaa {
        config.node.local.applications.push(accounting);
        config.connections = connections.unwrap_or(config.connections);
    }
    if let Some(node) = &mut server.diameter {
        node.local.applications.push(accounting);
    }
    (nas, server)
}

/// Does what a host does for its server until nothing more happens.
fn serve(w: &mut World, ledger: &mut Ledger, store: &mut Memory) {
    let until = w.now().since(usher_core::Instant::ZERO).as_secs() + 2;
    for _ in 0..20 {
        w.run_to(w.now() + Duration::from_millis(1));
        for job in w.jobs() {
            if let usher_core::Job { token, what: usher_aaa::Job::Account { record }, .. } = job {
                let durable = ledger.serve(w.now(), store, &record);
                w.net.command(w.servers[0], usher_aaa::Command::Accounted { token, durable }).unwrap();
            }
        }
    }
    w.run_until(until);
}

fn ends(w: &World) -> Vec<(u64, bool)> {
    let end = |e: &Event| match e {
        Event::Accounted { token, kept } => Some((*token, *kept)),
        _ => None,
    };
    w.nas_events.iter().filter_map(|(_, _, e)| end(e)).collect()
}

#[test]
fn start_interim_and_stop_are_one_session_of_the_store() {
    for radius in [true, false] {
        let (nas, server) = access(radius, None);
        let mut w = world(1, nas, &[server]);
        let (mut ledger, mut store) = (Ledger::new(LedgerConfig::default()), Memory::new());
        w.run_until(1);
        for (token, kind) in [(7, RecordKind::Start), (8, RecordKind::Interim), (9, RecordKind::Stop)] {
            let command = Command::Account { token, record: record(kind, (token - 7) as u32) };
            w.net.command(w.nas, command).unwrap();
            serve(&mut w, &mut ledger, &mut store);
        }
        assert_eq!(ends(&w), [(7, true), (8, true), (9, true)], "RADIUS: {radius}");
        let rows: Vec<_> = store.sessions().collect();
        assert_eq!(rows.len(), 1, "RADIUS: {radius}");
        assert_eq!(rows[0].username.as_bytes(), user_name(0));
        assert!(rows[0].acctstoptime.is_some(), "{:?}", rows[0]);
        assert_eq!(rows[0].acctsessiontime, 20, "{:?}", rows[0]);
        assert_eq!((w.net[w.nas].counters().records, w.net[w.nas].counters().kept), (3, 3));
    }
}

#[test]
fn a_record_that_nobody_acknowledges_is_lost() {
    for radius in [true, false] {
        let (nas, server) = access(radius, None);
        let mut w = world(1, nas, &[server]);
        w.run_until(1);
        // The host of this server keeps nothing, so that it does not answer.
        w.net.command(w.nas, Command::Account { token: 5, record: record(RecordKind::Start, 0) }).unwrap();
        w.run_until(100);
        assert_eq!(ends(&w), [(5, false)], "RADIUS: {radius}");
        assert_eq!((w.net[w.nas].counters().records, w.net[w.nas].counters().kept), (1, 0));
    }
}

#[test]
fn connections_of_single_sessions_take_no_records() {
    let (nas, server) = access(false, Some(Connections::PerSession));
    let mut w = world(1, nas, &[server]);
    w.run_until(1);
    let command = Command::Account { token: 5, record: record(RecordKind::Start, 0) };
    assert!(matches!(w.net.command(w.nas, command), Err(CommandError::Invalid(_))));
}
