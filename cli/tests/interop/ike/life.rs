//! The life of IKE_SAs with charon: reauthentication, dead peer detection, and the end of a dead peer, on both
//! sides.

use super::*;

/// Returns the status of the program with this configuration file.
#[track_caller]
fn ike_status(charon: &CharonNamespace, place: &TempDir, file: &str) -> serde_json::Value {
    let mut command = charon_command(charon, USHER);
    command.args(["ike", "status", "--json", "--config", file]).current_dir(place.path(""));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Counts the IKE_SAs that charon lists; each has a line that begins with its connection's name.
fn count_ike_sas(charon: &CharonNamespace, connection: &str) -> usize {
    let of = format!("{connection}: #");
    charon.run_swanctl(&["--list-sas"]).lines().filter(|line| line.starts_with(&of)).count()
}

/// Sends charon a signal.
#[track_caller]
fn signal_charon(charon: &CharonNamespace, name: &str) {
    let all = find_program("ip").args(["netns", "pids", charon.name()]).output().unwrap();
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    let is_charon = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "charon")
    };
    let pid = all.lines().find(is_charon).expect("it runs");
    assert!(find_program("kill").args(["-s", name, pid]).status().unwrap().success());
}

#[track_caller]
fn initiate_connection(charon: &CharonNamespace) {
    let said = charon.run_swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    assert!(said.contains("initiate completed successfully"), "{said}\n{}", charon.charon_log());
}

/// Starts our server, which initiates to charon by a pre-shared key.
fn start_initiator(charon: &CharonNamespace, place: &TempDir, limits: &str, more: &str) -> RunningProgram {
    let by_key = "local_id = \"ini.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n";
    place.write_private(
        "client.toml",
        &format!("{LISTEN}{limits}{}", home_connection(&format!("{by_key}{more}"))),
    );
    let mut command = charon_command(charon, USHER);
    command.args(["ike", "serve", "--config", "client.toml"]);
    place.start_program("client", &mut command, "started")
}

/// RFC 7296 2.8.3: a new, authenticated IKE_SA replaces the old one, before or after its deletion.
#[test]
fn charon_reauthenticates_make_before_break_and_the_reverse() {
    for order in ["no", "yes"] {
        let place = TempDir::new();
        let charon = CharonNamespace::with_settings(
            &initiator_config("auth = psk\n id = ini.test"),
            &[],
            &format!("make_before_break = {order}"),
        );
        let mut ours = start_gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
        initiate_connection(&charon);
        ours.wait_for("established");
        let of = || ike_status(&charon, &place, "gateway.toml");
        let first = of()["sas"][0].clone();
        charon.run_swanctl(&["--rekey", "--ike", "out", "--reauth"]);
        wait_for_charon("another took its place", &charon, || {
            let now = of();
            let sas = now["sas"].as_array().unwrap();
            sas.len() == 1
                && sas[0]["spis"] != first["spis"]
                && sas[0]["children"].as_array().unwrap().len() == 1
                && count_ike_sas(&charon, "out") == 1
        });
        let now = of();
        assert_eq!(
            now["sas"][0]["addresses"], first["addresses"],
            "whoever comes again has its address again"
        );
        assert_eq!(
            (&now["counters"]["ike_established"], &now["counters"]["ike_rekeyed"]),
            (&2.into(), &0.into())
        );
        assert_eq!(now["pools"][0]["used"], 1, "{now}");
        assert_eq!(ours.terminate(), Some(0));
    }
}

#[test]
fn we_reauthenticate_make_before_break_and_the_reverse() {
    for order in ["break-before-make", "make-before-break"] {
        let place = TempDir::new();
        let charon = CharonNamespace::new(&responder_config("auth = psk\n id = ini.test"));
        let more = format!(
            "reauth_after = \"2 s\"\nreauthentication = \"{order}\"\nstart = true\nretry = \"100 ms\"\n"
        );
        let mut ours = start_initiator(&charon, &place, "", &more);
        ours.wait_for("addresses=\"10.9.0.");
        let of = || ike_status(&charon, &place, "client.toml");
        let first = of()["sas"][0]["spis"].clone();
        wait_for_charon("another took its place", &charon, || {
            let now = of();
            let sas = now["sas"].as_array().unwrap();
            sas.len() == 1 && sas[0]["spis"] != first && count_ike_sas(&charon, "in") == 1
        });
        let now = of();
        assert!(now["counters"]["reauthentications"].as_u64() >= Some(1), "{order}: {now}");
        assert_eq!(now["counters"]["ike_rekeyed"], 0, "{order}: {now}");
        assert_eq!(ours.terminate(), Some(0));
    }
}

/// RFC 7296 3.15.1: charon requests a specific address of each family.
#[test]
fn charon_gets_the_addresses_that_it_asks_for() {
    let place = TempDir::new();
    let asking = initiator_config("auth = psk\n id = ini.test")
        .replace("vips = 0.0.0.0", "vips = 10.9.0.77, fd00:9::77");
    let charon = CharonNamespace::new(&asking);
    let text = PSK_GATEWAY
        .replace("[\"inner\"]", "[\"inner\", \"inner6\"]")
        .replace("\"10.2.0.0/16\"", "\"10.2.0.0/16\", \"fd00:2::/48\"");
    let pool = format!("{POOL}[[pool]]\nname = \"inner6\"\nranges = [\"fd00:9::/112\"]\n");
    let _ours = start_gateway(&charon, &place, &format!("{text}{pool}"));
    initiate_connection(&charon);
    let said = charon.run_swanctl(&["--list-sas"]);
    assert!(said.contains("[10.9.0.77 fd00:9::77]"), "{said}");
    let now = ike_status(&charon, &place, "gateway.toml");
    assert_eq!(now["sas"][0]["addresses"], serde_json::json!(["10.9.0.77", "fd00:9::77"]));
}

/// RFC 6023, in both roles: an IKE_SA starts without a CHILD_SA, which follows.
#[test]
fn an_ike_sa_begins_without_a_child_which_follows() {
    let place = TempDir::new();
    let force = |text: String| text.replace("version = 2\n", "version = 2\n childless = force\n");
    let charon = CharonNamespace::new(&force(initiator_config("auth = psk\n id = ini.test")));
    let ours = start_gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
    initiate_connection(&charon);
    let said = charon.run_swanctl(&["--list-sas"]);
    assert!(said.contains("INSTALLED"), "{said}\n{}", charon.charon_log());
    assert!(charon.charon_log().contains("generating CREATE_CHILD_SA request"), "{}", charon.charon_log());
    drop(ours);
    drop(charon);
    let charon = CharonNamespace::new(&force(responder_config("auth = psk\n id = ini.test")));
    let mut ours = start_initiator(&charon, &place, "", "childless = \"force\"\nstart = true\n");
    ours.wait_for("name=\"net\"");
    wait_for_charon("it was asked for by itself", &charon, || {
        charon.charon_log().contains("generating CREATE_CHILD_SA response")
    });
}

/// RFC 7296 2.4: each side probes the other, and drops a peer that does not answer.
#[test]
fn each_side_detects_a_dead_peer_and_drops_it() {
    let asked = |text: String| text.replace("version = 2\n", "version = 2\n dpd_delay = 1\n");
    let place = TempDir::new();
    // charon probes, and drops us.
    let charon = CharonNamespace::with_settings(
        &asked(initiator_config("auth = psk\n id = ini.test")),
        &[],
        "retransmit_timeout = 2\n retransmit_tries = 1",
    );
    let ours = start_gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
    initiate_connection(&charon);
    wait_for_charon("charon has asked twice", &charon, || {
        charon.charon_log().matches("sending DPD request").count() >= 2
    });
    assert_eq!(count_ike_sas(&charon, "out"), 1, "we have answered");
    ours.signal("STOP");
    wait_for_charon("charon has given us up", &charon, || {
        charon.charon_log().contains("giving up after 1 retransmits") && count_ike_sas(&charon, "out") == 0
    });
    drop(ours);
    drop(charon);
    // We probe, and drop charon.
    let charon = CharonNamespace::new(
        &responder_config("auth = psk\n id = ini.test")
            .replace("version = 2\n", "version = 2\n dpd_delay = 0\n"),
    );
    let limits = "[limits]\nretransmission = \"1 s\"\nretransmissions = 2\n";
    let mut ours = start_initiator(&charon, &place, limits, "liveness = \"1 s\"\nstart = true\n");
    ours.wait_for("name=\"net\"");
    wait_for_charon("we have asked twice", &charon, || {
        charon.charon_log().matches("parsed INFORMATIONAL request").count() >= 2
    });
    assert_eq!(
        ike_status(&charon, &place, "client.toml")["sas"].as_array().unwrap().len(),
        1,
        "charon has answered"
    );
    signal_charon(&charon, "STOP");
    ours.wait_for("the peer does not answer");
    assert_eq!(ike_status(&charon, &place, "client.toml")["sas"].as_array().unwrap().len(), 0);
    signal_charon(&charon, "CONT");
}
