//! The stations as users of AAA servers.

use super::super::error::ScenarioRunError;
use super::super::topology::NetworkTopology;
use std::collections::BTreeSet;
use usher_aaa::AuthMethod;
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, UserRows};
use usher_aaa_config::LoadedAaaConfig;
use usher_scenario::model::{EapWorkload, Scenario};

/// The shared secret of every NAS and RADIUS server in a simulation; captures mention it.
pub(in super::super) const SECRET: &str = "usher-simulation";
/// The password of every station.
pub(in super::super) const PASSWORD: &[u8] = b"correct horse battery staple";
pub(super) const WRONG_PASSWORD: &[u8] = b"tr0ub4dor&3";

/// Returns the identity of a station; it contains the workload's name if there are several workloads.
pub(in super::super) fn station_identity(workload: &str, station: u64, realm: &str) -> Vec<u8> {
    name_in_workload(workload, &format!("station-{station:05}@{realm}")).into_bytes()
}

/// Returns the name of a workload's object.
pub(super) fn name_in_workload(workload: &str, name: &str) -> String {
    if workload.is_empty() { name.to_owned() } else { format!("{workload}-{name}") }
}

/// Returns each station's name: by its number, or for all the name in their user's certificate.
pub(super) fn station_names(
    scenario: &Scenario,
    workload: &str,
    eap: &EapWorkload,
    stations: usize,
) -> Vec<Vec<u8>> {
    let certificates = scenario.certificates.get(workload).filter(|_| eap.method == AuthMethod::EapTls);
    let party = certificates.and_then(|of| of.stations.as_ref());
    let of_user = party.and_then(|party| party.name.as_ref());
    let name = |i| {
        of_user.map_or_else(|| station_identity(workload, i, &eap.realm), |name| name.clone().into_bytes())
    };
    (0..stations as u64).map(name).collect()
}

/// The stations of all workloads, by name.
#[derive(Debug)]
pub(in super::super) struct StationUserNames<'a>(Vec<(&'a EapWorkload, Vec<Vec<u8>>)>);

impl<'a> StationUserNames<'a> {
    /// Collects the stations of a scenario.
    ///
    /// # Errors
    /// A workload names a host that the study does not have.
    pub(in super::super) fn from_scenario(
        scenario: &'a Scenario,
        topology: &NetworkTopology,
    ) -> Result<Self, ScenarioRunError> {
        let workloads = scenario.eap_workloads().map(|(workload, eap)| {
            let count = topology.host_group(&eap.stations)?.len();
            Ok((eap, station_names(scenario, workload, eap, count)))
        });
        Ok(Self(workloads.collect::<Result<_, ScenarioRunError>>()?))
    }

    /// Returns the stations' rows in the store of a service with this configuration.
    pub(in super::super) fn user_rows(&self, loaded: &LoadedAaaConfig) -> Vec<(String, UserRows)> {
        self.0.iter().flat_map(|(eap, names)| station_user_rows(eap, names, loaded)).collect()
    }
}

/// Returns the stations' users as the store of a service has them.
fn station_user_rows(
    eap: &EapWorkload,
    names: &[Vec<u8>],
    loaded: &LoadedAaaConfig,
) -> Vec<(String, UserRows)> {
    // Every line parses, because the check of the study rejects invalid lines.
    let rows = |lines: &[String]| -> Vec<AttributeRow> {
        lines.iter().filter_map(|line| usher_aaa_config::parse_row(line)).collect()
    };
    let groups = &loaded.file.group;
    let of_group = eap.user.groups.iter().filter_map(|name| {
        let group = groups.iter().find(|group| group.name == *name)?;
        Some(GroupRows { name: name.clone(), check: rows(&group.check), reply: rows(&group.reply) })
    });
    let password = String::from_utf8_lossy(PASSWORD).into_owned();
    let password = AttributeRow {
        attribute: "Cleartext-Password".to_owned(),
        op: RowOperator::Replace,
        value: password,
    };
    let user = UserRows {
        check: std::iter::once(password).chain(rows(&eap.user.check)).collect(),
        reply: rows(&eap.user.reply),
        groups: of_group.collect(),
    };
    // Remove duplicate names, because several stations may share a user.
    let names: BTreeSet<&Vec<u8>> = names.iter().collect();
    names.into_iter().map(|name| (String::from_utf8_lossy(name).into_owned(), user.clone())).collect()
}
