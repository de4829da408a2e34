//! Checks of the workload `ike` between settings.

use super::{ScenarioCheck, keys};
use crate::model::{CertificateKind, IkeWorkload, ReauthenticationOrder, UnprotectedAction};
use usher_config::units::Bound;
use usher_crypto::TlsVersion;
use usher_ike::payload::Proposal;

impl ScenarioCheck<'_> {
    pub(super) fn check_ike(&mut self, ike: &IkeWorkload) {
        let at = |key: &str| keys!["workload", key];
        let known = [
            self.require_endpoint(&ike.initiators, at("initiators")),
            self.require_endpoint(&ike.gateway, at("gateway")),
            self.require_endpoint(&ike.server, at("server")),
        ];
        let same = |key: &str, host: &str| (at(key), format!("\"{host}\" cannot be this as well"));
        if known == [true; 3] {
            if ike.initiators == ike.gateway {
                let (path, message) = same("gateway", &ike.gateway);
                self.add_fault(path, message);
            } else {
                self.check_reachability(&ike.initiators, &ike.gateway, at("gateway"));
            }
            if [&ike.initiators, &ike.gateway].contains(&&ike.server) {
                let (path, message) = same("server", &ike.server);
                self.add_fault(path, message);
            } else if ike.method.is_eap() {
                self.check_reachability(&ike.gateway, &ike.server, at("server"));
            }
        }
        let child = (!ike.is_childless()).then(|| ("child", Proposal::parse_esp(&ike.child)));
        for (key, read) in [("proposal", Proposal::parse_ike(&ike.proposal))].into_iter().chain(child) {
            if let Err(why) = read {
                self.add_fault(at(key), why.to_string());
            }
        }
        let of = |key: &str| keys!["workload", "certificates", key];
        let certificates = &ike.certificates;
        let most = match certificates.kind {
            CertificateKind::Natural | CertificateKind::Long => 4,
            CertificateKind::Ecdsa => 2,
        };
        for (key, chain) in
            [("initiator_chain", certificates.initiator_chain), ("server_chain", certificates.server_chain)]
        {
            let message =
                format!("{} certificates, and there are chains of at most {most} of this kind", chain.get());
            self.require(chain.get() <= most, of(key), message);
        }
        let ecdsa = certificates.kind == CertificateKind::Ecdsa && ike.method.has_tls();
        self.require(
            !ecdsa || certificates.version == TlsVersion::Tls13,
            of("version"),
            "a client of 1.2 takes servers with RSA keys alone; take \"1.3\"",
        );
        let fragment = certificates.fragment.bytes();
        self.require(
            (64..=4000).contains(&fragment),
            of("fragment"),
            format!("{fragment} B is not between 64 B and 4000 B, which a RADIUS packet can carry"),
        );
        let times = [
            ("lifetime", ike.lifetime.get()),
            ("resumption", ike.resumption.get()),
            ("retransmission", Some(ike.retransmission)),
        ];
        if ike.resumption.get().is_some() {
            self.require(
                !ike.method.is_eap(),
                at("resumption"),
                "whom an AAA server lets in gets no ticket, since it could not refuse who comes by it",
            );
            let kept = ike.lifetime.get().is_none()
                && ike.reauthentication == ReauthenticationOrder::MakeBeforeBreak;
            self.require(
                kept,
                at("resumption"),
                "an IKE_SA that is deleted takes its ticket along: take lifetime = \"off\" and reauthentication = \"make-before-break\"",
            );
        }
        if let Some(policy) = &ike.policy {
            self.require(
                !ike.is_childless(),
                at("child"),
                "packets are to go by CHILD_SAs (policy), and there are none: say how they are, or leave policy out",
            );
            self.require(
                !policy.on_demand || policy.without_sa == UnprotectedAction::Hold,
                keys!["workload", "policy", "on_demand"],
                "a packet that is dropped makes nobody authenticate: take without_sa = \"hold\"",
            );
        }
        for (key, time) in times {
            time.into_iter().for_each(|time| self.require_positive(time, at(key)));
        }
        if let Bound::Limited(time) = ike.give_up {
            self.require_positive(time, at("give_up"));
        }
        self.check_retransmission(&ike.radius.retransmission, keys!["workload", "radius", "retransmission"]);
    }
}
