//! Checks of the workload `ike` between settings.

use super::{ScenarioCheck, keys};
use crate::model::{CertificateKind, IkeWorkload, MissingChildSaAction, ReauthenticationOrder};
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
        let same = |key: &str, host: &str| {
            (at(key), format!("\"{host}\" has another role in this workload already"))
        };
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
        let child = (!ike.has_no_child_sa()).then(|| ("child", Proposal::parse_esp_proposal(&ike.child)));
        for (key, read) in
            [("proposal", Proposal::parse_ike_proposal(&ike.proposal))].into_iter().chain(child)
        {
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
                format!("{} certificates are too many: chains of this kind have at most {most}", chain.get());
            self.require(chain.get() <= most, of(key), message);
        }
        let ecdsa = certificates.kind == CertificateKind::Ecdsa && ike.method.has_tls();
        self.require(
            !ecdsa || certificates.version == TlsVersion::Tls13,
            of("version"),
            "clients with TLS 1.2 accept only servers with RSA keys: set \"1.3\"",
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
                "users who log in by EAP get no ticket: the AAA server could not refuse them when they resume",
            );
            let kept = ike.lifetime.get().is_none()
                && ike.reauthentication == ReauthenticationOrder::MakeBeforeBreak;
            self.require(
                kept,
                at("resumption"),
                "the deletion of an IKE_SA invalidates its ticket: set lifetime = \"off\" and reauthentication = \
                 \"make-before-break\"",
            );
        }
        if let Some(policy) = &ike.policy {
            self.require(
                !ike.has_no_child_sa(),
                at("child"),
                "policy needs CHILD_SAs, and there are none: set child to a proposal, or leave policy out",
            );
            self.require(
                !policy.on_demand || policy.without_sa == MissingChildSaAction::Hold,
                keys!["workload", "policy", "on_demand"],
                "a dropped packet triggers no authentication: set without_sa = \"hold\"",
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
