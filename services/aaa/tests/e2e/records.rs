//! Accounting records of an access server.

use crate::build::{
    aaa_config, diameter_nas, diameter_server, radius_nas, station_mac, test_network, test_users, user_name,
};
use crate::world::AaaTestNetwork;
use usher_aaa::ledger::{Ledger, LedgerConfig};
use usher_aaa::store::MemoryStore;
use usher_core::{CommandError, Duration, LinkLayerPortId, Seed};
use usher_diameter::codes::application;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_nas::authenticator::{self, AuthenticatorCommand, AuthenticatorEvent};
use usher_nas::{AaaConfig, AccountingRecordKind, DiameterConnections, StationAccountingRecord, StationId};

fn nas_record(kind: AccountingRecordKind, number: u32) -> StationAccountingRecord {
    let station = StationId::Frame { port: LinkLayerPortId(3), mac: station_mac(0) };
    let lasted = Duration::from_secs(10 * u64::from(number));
    StationAccountingRecord {
        name: user_name(0),
        lasted,
        ..StationAccountingRecord::new(kind, station, "00c0ffee".into(), number)
    }
}

/// Two access servers, by RADIUS and by Diameter. `connections` are the latter's.
fn access_configs(
    radius: bool,
    connections: Option<DiameterConnections>,
) -> (authenticator::AuthenticatorConfig, usher_aaa::AaaServerConfig) {
    let users = test_users(Seed::new(1), 1);
    if radius {
        return (radius_nas(1), aaa_config(users));
    }
    let accounting = DiameterApplication::for_accounting(application::ACCOUNTING);
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

/// Does the server's jobs until there are no more events.
fn run_host_jobs(w: &mut AaaTestNetwork, ledger: &mut Ledger, store: &mut MemoryStore) {
    let until = w.now().duration_since(usher_core::Instant::ZERO).as_secs() + 2;
    for _ in 0..20 {
        w.run_to(w.now() + Duration::from_millis(1));
        for job in w.take_jobs() {
            if let usher_core::JobRequest {
                token, job: usher_aaa::AaaServerJob::Account { record }, ..
            } = job
            {
                let durable = ledger.commit_record(w.now(), store, &record);
                w.net
                    .send_command(w.servers[0], usher_aaa::AaaServerCommand::Accounted { token, durable })
                    .unwrap();
            }
        }
    }
    w.run_until(until);
}

fn accounting_results(w: &AaaTestNetwork) -> Vec<(u64, bool)> {
    let end = |e: &AuthenticatorEvent| match e {
        AuthenticatorEvent::Accounted { token, is_acknowledged: kept } => Some((*token, *kept)),
        _ => None,
    };
    w.nas_events.iter().filter_map(|(_, _, e)| end(e)).collect()
}

#[test]
fn start_interim_and_stop_are_one_session_of_the_store() {
    for radius in [true, false] {
        let (nas, server) = access_configs(radius, None);
        let mut w = test_network(1, nas, &[server]);
        let (mut ledger, mut store) = (Ledger::new(LedgerConfig::default()), MemoryStore::new());
        w.run_until(1);
        for (token, kind) in [
            (7, AccountingRecordKind::Start),
            (8, AccountingRecordKind::Interim),
            (9, AccountingRecordKind::Stop),
        ] {
            let command =
                AuthenticatorCommand::Account { token, record: nas_record(kind, (token - 7) as u32) };
            w.net.send_command(w.nas, command).unwrap();
            run_host_jobs(&mut w, &mut ledger, &mut store);
        }
        assert_eq!(accounting_results(&w), [(7, true), (8, true), (9, true)], "RADIUS: {radius}");
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
        let (nas, server) = access_configs(radius, None);
        let mut w = test_network(1, nas, &[server]);
        w.run_until(1);
        // This server's host stores no records, so it does not answer.
        w.net
            .send_command(
                w.nas,
                AuthenticatorCommand::Account {
                    token: 5,
                    record: nas_record(AccountingRecordKind::Start, 0),
                },
            )
            .unwrap();
        w.run_until(100);
        assert_eq!(accounting_results(&w), [(5, false)], "RADIUS: {radius}");
        assert_eq!((w.net[w.nas].counters().records, w.net[w.nas].counters().kept), (1, 0));
    }
}

#[test]
fn connections_of_single_sessions_take_no_records() {
    let (nas, server) = access_configs(false, Some(DiameterConnections::PerSession));
    let mut w = test_network(1, nas, &[server]);
    w.run_until(1);
    let command =
        AuthenticatorCommand::Account { token: 5, record: nas_record(AccountingRecordKind::Start, 0) };
    assert!(matches!(w.net.send_command(w.nas, command), Err(CommandError::Invalid(_))));
}
