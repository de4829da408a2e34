//! What is wrong with the workloads of a study, each by itself and beside the others.

use super::{Check, keys};
use crate::model::{Aaa, Eap, TransportProtocol, Workload};
use crate::ports;
use std::collections::BTreeMap;

/// The most characters of a workload's name, which is part of those that its hosts give themselves.
const LONGEST_NAME: usize = 32;

/// A port at which a workload's own server listens: the setting that names its host, the host, the protocol and the number.
type Listener<'a> = (&'static str, &'a str, TransportProtocol, u16);

/// What is said of settings of the sole workload, said of the one of this name.
pub(super) fn of_workload(text: &str, name: &str) -> String {
    if name.is_empty() { text.to_owned() } else { text.replace("workload.", &format!("workloads.{name}.")) }
}

impl Check<'_> {
    pub(super) fn workloads(&mut self) {
        let scenario = self.scenario;
        match (&scenario.workload, scenario.workloads.names().next()) {
            (None, None) => {
                self.fault(keys!["workload"], "nobody says anything: write [workload], or [workloads.NAME]")
            }
            (Some(_), Some(name)) => self.fault(
                keys!["workload"],
                format!("there is [workloads.{name}] as well: give this one a name too, as [workloads.NAME]"),
            ),
            _ => {}
        }
        for (name, workload) in scenario.all_workloads() {
            let before = self.findings.len();
            match workload {
                Workload::Eap(eap) => self.eap(eap),
                Workload::Dialogue(dialogue) => self.dialogue(dialogue),
                Workload::Ident(ident) => self.ident(ident),
                Workload::Mih(mih) => self.mih(mih),
                Workload::Handover(handover) => self.handover(handover),
            }
            if let Some(arrivals) = workload.arrivals() {
                self.arrivals(arrivals);
            }
            // They speak of the sole workload.
            for (path, message) in self.findings.iter_mut().skip(before).filter(|_| !name.is_empty()) {
                if path.first().is_some_and(|first| first == "workload") {
                    path.splice(..1, keys!["workloads", name]);
                }
                *message = of_workload(message, name);
            }
        }
        for name in scenario.workloads.names() {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
            self.require(
                !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits),
                keys!["workloads", name],
                format!("\"{name}\" is not of at most {LONGEST_NAME} letters, digits and \"-\""),
            );
        }
        self.ports();
        self.frames();
    }

    /// A port is one server's.
    fn ports(&mut self) {
        let scenario = self.scenario;
        let mut taken: BTreeMap<(&str, &str, u16), &str> = BTreeMap::new();
        for (name, workload) in scenario.workloads.iter() {
            for (key, host, transport, port) in self.listeners(workload) {
                let Some(first) =
                    taken.insert((host, transport.name(), port), name).filter(|first| *first != name)
                else {
                    continue;
                };
                let transport = transport.name().to_uppercase();
                self.fault(
                    keys!["workloads", name, key],
                    format!(
                        "\"{host}\" has a server of \"{first}\" at {transport} port {port} already, and this workload's would \
                         be there too: name another host"
                    ),
                );
            }
        }
    }

    /// Where a workload's own servers listen.
    fn listeners<'a>(&self, workload: &'a Workload) -> Vec<Listener<'a>> {
        let (tcp, udp) = (TransportProtocol::Tcp, TransportProtocol::Udp);
        match workload {
            Workload::Eap(eap) if self.scenario.aaa_service(&eap.server).is_some() => Vec::new(),
            Workload::Eap(eap) => {
                let server = |transport, port| ("server", eap.server.as_str(), transport, port);
                match eap.aaa {
                    Aaa::Radius if eap.accounting.used => {
                        vec![server(udp, ports::RADIUS), server(udp, ports::ACCOUNTING)]
                    }
                    Aaa::Radius => vec![server(udp, ports::RADIUS)],
                    Aaa::Radsec => vec![server(tcp, ports::RADSEC)],
                    Aaa::Diameter if eap.inside_tls() => vec![server(tcp, ports::DIAMETER_TLS)],
                    Aaa::Diameter => vec![server(eap.diameter.transport, ports::DIAMETER)],
                }
            }
            Workload::Dialogue(dialogue) => {
                vec![("server", &dialogue.server, dialogue.transport, ports::DIALOGUE)]
            }
            Workload::Ident(ident) => vec![("server", &ident.server, tcp, ports::CHAT)],
            Workload::Mih(mih) => {
                let function = |key, host| (key, host, mih.transport, usher_mih::PORT);
                vec![function("mn", mih.mn.as_str()), function("pos", &mih.pos)]
            }
            Workload::Handover(handover) => {
                let function = |key, host| (key, host, handover.transport, usher_mih::PORT);
                vec![
                    function("wlan", handover.wlan.as_str()),
                    function("wimax", &handover.wimax),
                    function("pos", &handover.pos),
                    function("target", &handover.target),
                ]
            }
        }
    }

    /// What travels between stations and NAS are frames, and those of a host are one workload's.
    fn frames(&mut self) {
        let framed: Vec<(&str, &Eap)> = self.scenario.eap_workloads().collect();
        for (i, (name, eap)) in framed.iter().enumerate() {
            let local = |eap: &Eap| eap.stations == eap.nas;
            for (first, other) in framed.iter().take(i).filter(|(_, other)| !(local(eap) && local(other))) {
                for (key, host) in [("stations", &eap.stations), ("nas", &eap.nas)] {
                    if [&other.stations, &other.nas].contains(&host) {
                        self.fault(
                            keys!["workloads", name, key],
                            format!(
                                "\"{host}\" hears the frames of \"{first}\", and a host's frames are one workload's: name \
                                 another host"
                            ),
                        );
                    }
                }
            }
        }
    }
}
