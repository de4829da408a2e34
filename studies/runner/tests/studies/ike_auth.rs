//! The workload `ike`: initiators, a gateway and an AAA server of its own.

use crate::Metrics;
use crate::services::at;
use usher_runner::world::World;
use usher_scenario::{Mode, Overrides, Study};

/// Two initiators, ten authentications each, over links that take 1 ms each way; and what else the workload says.
fn study(more: &str) -> String {
    format!(
        r#"
title = "T"
question = "Q?"
[run]
duration = "10 s"
drain = "60 s"
[hosts.initiator]
count = 2
[hosts.gateway]
cpu = {{ service = {{ "ike.derive" = "1 us" }} }}
[hosts.server]
[links.access]
between = ["initiator", "gateway"]
delay = "1 ms"
[links.core]
between = ["gateway", "server"]
delay = "1 ms"
[workload]
kind = "ike"
initiators = "initiator"
gateway = "gateway"
server = "server"
proposal = "aes128-sha256-x25519"
arrivals = {{ kind = "constant", interval = "1 s", start = "100 ms" }}
{more}
"#
    )
}

fn told(more: &str) -> Metrics {
    let study = Study::parse("t", "t.toml", &study(more)).unwrap();
    let plan = study.plan(Mode::Default, &Overrides::default()).unwrap();
    let run = || {
        let world = World::new(&plan.points[0].scenario, plan.points[0].seed(0), &[], None).unwrap();
        world.run().unwrap().metrics.into_iter().collect::<Metrics>()
    };
    let metrics = run();
    assert_eq!(run(), metrics, "the same rows again");
    metrics
}

/// Messages of IKE from and to the initiator, of RADIUS from and to the gateway.
fn messages(metrics: &Metrics) -> [f64; 4] {
    ["ike.initiator", "ike.gateway", "ike.radius-request", "ike.radius-response"]
        .map(|of| at(metrics, &format!("{of}.messages")))
}

#[test]
fn each_method_authenticates_with_its_messages() {
    // IKE_SA_INIT, IKE_AUTH (RFC 7296 1.2); with EAP two IKE_AUTH more than the method has requests (2.16).
    let cases = [
        ("psk", 2.0, [2.0, 2.0, 0.0, 0.0]),
        // Two certificates of RSA make IKE_AUTH two fragments each way (RFC 7383).
        ("certificate", 2.0, [3.0, 3.0, 0.0, 0.0]),
        // Identity, challenge; the last IKE_AUTH has AUTH alone.
        ("eap-md5", 6.0, [4.0, 4.0, 2.0, 2.0]),
        // Challenge, success.
        ("eap-mschapv2", 8.0, [5.0, 5.0, 3.0, 3.0]),
    ];
    for (method, exchanges, expected) in cases {
        let metrics = told(&format!("method = \"{method}\"\nlifetime = \"500 ms\""));
        assert_eq!(
            (at(&metrics, "completed"), at(&metrics, "failures")),
            (20.0, 0.0),
            "{method}: {metrics:?}"
        );
        assert_eq!(messages(&metrics), expected, "{method}");
        // Each exchange, of IKE or RADIUS, is a round trip of 2 ms.
        let delay = 2e-3 * exchanges;
        assert!((at(&metrics, "delay.mean") - delay).abs() < 1e-4, "{method}: {metrics:?}");
        assert!(at(&metrics, "cpu.gateway") > 0.0 && at(&metrics, "cpu.crypto.gateway") > 0.0);
    }
}

#[test]
fn tunnels_tls_and_longer_chains_take_more_messages() {
    let of = |method: &str, certificates: &str| {
        let metrics = told(&format!(
            "method = \"{method}\"\nlifetime = \"500 ms\"\ncertificates = {{ {certificates} }}"
        ));
        assert_eq!(at(&metrics, "completed"), 20.0, "{method} {certificates}: {metrics:?}");
        (at(&metrics, "ike.messages"), at(&metrics, "ike.bytes"))
    };
    let short = of("eap-tls", "");
    let long = of("eap-tls", "initiator_chain = 4, server_chain = 4");
    let large = of("eap-tls", "kind = \"rsa-1500\", initiator_chain = 4, server_chain = 4");
    assert!(short.0 < long.0 && long.0 < large.0, "{short:?} {long:?} {large:?}");
    // Twelve certificates' octets go over two links, eight of them with 1500 octets.
    assert!(large.1 > 2.0 * 8.0 * 1500.0 && large.1 < 2.0 * 8.0 * 2500.0, "{large:?}");
    // A recorded handshake stands for real ones.
    assert_eq!(of("eap-tls", "handshake = \"real\""), short);
    of("eap-tls", "version = \"1.3\", kind = \"ecdsa\"");
    of("peap", "");
    of("ttls", "");
    of("certificate", "kind = \"ecdsa\"");
}

#[test]
fn the_old_ike_sa_ends_before_or_after_the_new_one() {
    let before = told("method = \"psk\"");
    // The first of each of the two initiators has nothing to take the place of; each other deletes first.
    assert_eq!(
        messages(&before),
        [(2.0 * 2.0 + 18.0 * 3.0) / 20.0, (2.0 * 2.0 + 18.0 * 3.0) / 20.0, 0.0, 0.0]
    );
    assert!((at(&before, "ike.interruption") - 6e-3).abs() < 1e-4, "{before:?}");
    let after = told("method = \"psk\"\nreauthentication = \"make-before-break\"");
    assert_eq!(at(&after, "ike.interruption"), 0.0, "{after:?}");
    assert_eq!(messages(&after), [2.0, 2.0, 0.0, 0.0]);
}

#[test]
fn what_contradicts_itself_is_said() {
    let faults = |more: &str| Study::parse("t", "t.toml", &study(more)).unwrap_err().to_string();
    assert!(faults("method = \"eap-tsl\"").contains("did you mean \"eap-tls\""));
    let chain = faults("method = \"certificate\"\ncertificates = { kind = \"ecdsa\", server_chain = 3 }");
    assert!(chain.contains("chains of at most 2"), "{chain}");
    let version = faults("method = \"eap-tls\"\ncertificates = { kind = \"ecdsa\" }");
    assert!(version.contains("1.3"), "{version}");
    let words = faults("method = \"psk\"\nchild = \"aes129\"");
    assert!(words.contains("aes129"), "{words}");
}

/// Messages from the initiator and to it in a login of strongSwan's, without the deletion at its end.
fn strongswans(capture: &str) -> [f64; 2] {
    let of = |who: &str| capture.lines().filter(|line| line.starts_with(who)).count() as f64 - 1.0;
    [of("i "), of("r ")]
}

/// strongSwan 5.9.8 with FreeRADIUS (`vectors/ike`). Its responder asks for the EAP identity by an exchange of its own, where ours
/// takes the initiator's IKE identity for it (RFC 7296 3.16 leaves that open).
#[test]
fn strongswan_has_as_many_messages_and_an_identity_exchange_more() {
    let cases = [
        ("psk", include_str!("../../../../vectors/ike/psk.txt"), 0.0),
        ("certificate", include_str!("../../../../vectors/ike/pubkey.txt"), 0.0),
        ("eap-md5", include_str!("../../../../vectors/ike/eapmd5.txt"), 1.0),
        ("eap-mschapv2", include_str!("../../../../vectors/ike/eapmschapv2.txt"), 1.0),
    ];
    for (method, capture, identity) in cases {
        let [from, to, ..] = messages(&told(&format!("method = \"{method}\"\nlifetime = \"500 ms\"")));
        assert_eq!(strongswans(capture), [from + identity, to + identity], "{method}");
    }
}
