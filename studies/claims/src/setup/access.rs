//! The path from stations to their AAA server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use usher_observe::manifest::ManifestValue;
use usher_scenario::model::{NasAaaProtocol, Scenario, TransportProtocol, Workload};

/// The stated values: the maximum number of stations, the links from NAS to server, their rate in bit/s and delay in
/// seconds.
const STATIONS: u32 = 100;
const HOPS: usize = 2;
const RATE: u64 = 1_500_000;
const DELAY_S: f64 = 0.01;

/// The configuration of a study of authentications.
#[derive(Clone, PartialEq, Debug)]
pub struct AuthenticationStudySetup {
    /// Maximum number of stations over all points.
    pub stations: u32,
    /// True if the stations are on an 802.16 base station at every point.
    pub radio: bool,
    /// Number of links from the NAS to the AAA server.
    pub hops: usize,
    /// The rate of the slowest of them in bit/s.
    pub rate: u64,
    /// The propagation delay over all of them, in seconds.
    pub delay_s: f64,
    /// The largest share of the slowest link that other traffic takes at any point.
    pub background: f64,
    /// The smallest share.
    pub background_least: f64,
    /// The protocols between NAS and AAA server at any point, by name; empty if unknown.
    pub aaa: Vec<String>,
}

/// The separator of protocol names in a manifest.
const BETWEEN: &str = "; ";

impl AuthenticationStudySetup {
    /// Merges the settings of two points: the larger number of stations and, for everything else, a deviating value if
    /// one deviates. No point's deviation is lost.
    pub(super) fn merge_point_setups(self, other: Self) -> Self {
        Self {
            stations: self.stations.max(other.stations),
            radio: self.radio && other.radio,
            hops: if self.hops == HOPS { other.hops } else { self.hops },
            rate: if self.rate == RATE { other.rate } else { self.rate },
            delay_s: if Self::is_documented_delay(self.delay_s) { other.delay_s } else { self.delay_s },
            background: self.background.max(other.background),
            background_least: self.background_least.min(other.background_least),
            aaa: self.aaa.into_iter().chain(other.aaa).collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }

    fn is_documented_delay(delay_s: f64) -> bool {
        (delay_s - DELAY_S).abs() <= 1e-9
    }

    /// Returns facts for the manifest of a run.
    pub fn to_facts(&self) -> [(String, ManifestValue); 8] {
        [
            ("stations", ManifestValue::from(u64::from(self.stations))),
            ("radio", ManifestValue::Flag(self.radio)),
            ("hops", ManifestValue::from(self.hops as u64)),
            ("rate_b_per_s", ManifestValue::from(self.rate)),
            ("delay_s", ManifestValue::from(self.delay_s)),
            ("background", ManifestValue::from(self.background)),
            ("background_least", ManifestValue::from(self.background_least)),
            ("aaa", ManifestValue::from(self.aaa.join(BETWEEN))),
        ]
        .map(|(name, fact)| (format!("setup.{name}"), fact))
    }

    /// Returns the configuration from a manifest's facts; `None` if they lack it.
    pub fn from_facts(facts: &BTreeMap<String, ManifestValue>) -> Option<Self> {
        let fact = |name: &str| facts.get(&format!("setup.{name}"));
        let number = |name: &str| match fact(name)? {
            ManifestValue::Count(n) => Some(*n as f64),
            ManifestValue::Number(x) => Some(*x),
            _ => None,
        };
        Some(Self {
            stations: number("stations")? as u32,
            radio: fact("radio")? == &ManifestValue::Flag(true),
            hops: number("hops")? as usize,
            rate: number("rate_b_per_s")? as u64,
            delay_s: number("delay_s")?,
            // Results of earlier versions lack these fields.
            background: number("background").unwrap_or(0.0),
            background_least: number("background_least").or_else(|| number("background")).unwrap_or(0.0),
            aaa: match fact("aaa") {
                Some(ManifestValue::Text(names)) => {
                    names.split(BETWEEN).filter(|n| !n.is_empty()).map(str::to_owned).collect()
                }
                _ => Vec::new(),
            },
        })
    }

    /// Returns the configuration of a point; `None` if it has no EAP authentications at a server that the NAS reaches.
    pub(super) fn from_scenario(scenario: &Scenario) -> Option<Self> {
        let Some(Workload::Eap(eap)) = &scenario.workload else { return None };
        let stations = scenario.hosts.get(&eap.stations)?.count.get();
        let path = shortest_path(scenario, &eap.nas, &eap.server)?;
        let links = || path.iter().filter_map(|name| scenario.links.get(name));
        let rate = links().filter_map(|l| l.rate.get()).map(|r| r.bits_per_second()).min()?;
        // Start the sum at 0.0, because `sum` of no floats gives -0.
        let others =
            scenario.background.iter().map(|b| b.rate.bits_per_second() as f64).fold(0.0, |a, b| a + b);
        let background = others / rate as f64;
        let spoken = match (eap.aaa, eap.diameter.transport) {
            (NasAaaProtocol::Radius, _) => "RADIUS/UDP",
            (NasAaaProtocol::Radsec, _) => "RADIUS/TLS",
            (NasAaaProtocol::Diameter, TransportProtocol::Tls) => "Diameter/TLS",
            (NasAaaProtocol::Diameter, TransportProtocol::Sctp) => "Diameter/SCTP",
            (NasAaaProtocol::Diameter, _) => "Diameter/TCP",
        };
        Some(Self {
            stations,
            radio: scenario
                .cells_in_use()
                .any(|(_, c)| c.stations == eap.stations && c.base_station == eap.nas),
            hops: path.len(),
            rate,
            delay_s: links().map(|l| l.delay.get().as_secs_f64()).sum(),
            background,
            background_least: background,
            aaa: vec![spoken.to_owned()],
        })
    }

    /// Returns the deviations from up to 100 stations on an 802.16 base station, a server two hops away, 1.5 Mb/s and
    /// 10 ms.
    pub(crate) fn deviations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.stations > STATIONS {
            wrong.push(format!("{} stations, not up to 100", self.stations));
        }
        if !self.radio {
            wrong.push("the stations' access is wired, not 802.16".to_owned());
        }
        if self.hops != HOPS {
            wrong.push(format!("links from NAS to server: {}, not two", self.hops));
        }
        if self.rate != RATE {
            wrong.push(format!("the path has {} Mb/s, not 1.5", self.rate as f64 / 1e6));
        }
        if !Self::is_documented_delay(self.delay_s) {
            wrong.push(format!("the path has a delay of {} ms, not 10", self.delay_s * 1e3));
        }
        wrong
    }
}

/// Returns the links of the shortest path between two hosts, by name.
fn shortest_path<'a>(scenario: &'a Scenario, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut seen = vec![from];
    let mut queue: VecDeque<(&str, Vec<&str>)> = VecDeque::from([(from, Vec::new())]);
    while let Some((host, path)) = queue.pop_front() {
        if host == to {
            return Some(path);
        }
        for (name, link) in scenario.links.iter() {
            let [a, b] = &link.between;
            let next = if a == host { b } else { a };
            if (a == host || b == host) && !seen.contains(&next.as_str()) {
                seen.push(next);
                queue.push_back((next, [&path[..], &[name]].concat()));
            }
        }
    }
    None
}

#[cfg(test)]
impl AuthenticationStudySetup {
    /// Returns the setting that both texts state, without other traffic.
    pub(crate) fn documented_study_setup() -> Self {
        Self {
            stations: 100,
            radio: true,
            hops: 2,
            rate: 1_500_000,
            delay_s: 0.01,
            background: 0.0,
            background_least: 0.0,
            aaa: vec!["Diameter/TCP".to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClaimStudySetup;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    #[test]
    fn the_founding_study_is_read() {
        let of = |name: &str| {
            let study = Study::open(name).unwrap();
            ClaimStudySetup::from_plan(
                &study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap(),
            )
        };
        let setup = of("aaa-hol").unwrap();
        assert_eq!(ClaimStudySetup::from_facts(&setup.to_facts().into_iter().collect()), Some(setup.clone()));
        let ClaimStudySetup::Access(setup) = setup else { panic!("{setup:?}") };
        assert_eq!((setup.hops, setup.rate, setup.radio), (2, 1_500_000, true));
        assert!((setup.delay_s - 0.01).abs() < 1e-9 && setup.stations <= 100);
        assert_eq!(setup.aaa, ["Diameter/SCTP", "Diameter/TCP", "RADIUS/UDP"]);
        let Some(ClaimStudySetup::Access(busy)) = of("aaa-congestion") else { panic!("no access") };
        assert_eq!(
            (busy.background, busy.background_least, &*busy.aaa),
            (0.85, 0.85, &["Diameter/TCP".to_owned()][..])
        );
        assert_eq!(of("dialogue-queue"), None);
        assert_eq!(ClaimStudySetup::from_facts(&BTreeMap::new()), None);
    }

    #[test]
    fn no_points_deviation_is_lost() {
        let other = AuthenticationStudySetup {
            stations: 50,
            radio: false,
            hops: 3,
            rate: 2_000_000,
            delay_s: 0.05,
            background: 0.85,
            background_least: 0.85,
            aaa: vec!["RADIUS/UDP".to_owned()],
        };
        let stated = AuthenticationStudySetup::documented_study_setup();
        for both in [
            stated.clone().merge_point_setups(other.clone()),
            other.clone().merge_point_setups(stated.clone()),
        ] {
            // A point with the stated share of other traffic must not hide one with less.
            let aaa = vec!["Diameter/TCP".to_owned(), "RADIUS/UDP".to_owned()];
            assert_eq!(
                both,
                AuthenticationStudySetup { stations: 100, background_least: 0.0, aaa, ..other.clone() }
            );
        }
        assert_eq!(stated.clone().merge_point_setups(stated.clone()), stated);
        let study = Study::open("aaa-hol").unwrap();
        let mut plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        assert_eq!(ClaimStudySetup::from_plan(&plan).unwrap().deviations(), Vec::<String>::new());
        let Some(last) = plan.points.last_mut() else { panic!("no point") };
        let world = last.scenario.clone();
        let Some(Workload::Eap(eap)) = &mut last.scenario.workload else { panic!("no EAP") };
        let links = shortest_path(&world, &eap.nas, &eap.server).unwrap();
        let [a, b] = &world.links.get(links[0]).unwrap().between;
        eap.nas = if *a == eap.nas { b.clone() } else { a.clone() };
        let Some(setup) = ClaimStudySetup::from_plan(&plan) else { panic!("no setting") };
        assert!(!setup.deviations().is_empty(), "the last point is not as stated");
    }

    #[test]
    fn every_deviation_is_named() {
        assert_eq!(AuthenticationStudySetup::documented_study_setup().deviations(), Vec::<String>::new());
        let other = AuthenticationStudySetup {
            stations: 200,
            radio: false,
            hops: 1,
            rate: 2_000_000,
            delay_s: 0.02,
            ..AuthenticationStudySetup::documented_study_setup()
        };
        assert_eq!(
            other.deviations(),
            [
                "200 stations, not up to 100",
                "the stations' access is wired, not 802.16",
                "links from NAS to server: 1, not two",
                "the path has 2 Mb/s, not 1.5",
                "the path has a delay of 20 ms, not 10"
            ]
        );
    }
}
