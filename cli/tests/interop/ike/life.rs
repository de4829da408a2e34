//! How IKE_SAs with charon live: both prove anew who they are, ask whether the other lives, and give up who does not answer.

use super::*;

/// What the program that runs by this file says of itself.
#[track_caller]
fn status(charon: &Place, place: &Folder, file: &str) -> serde_json::Value {
    let mut command = within(charon, USHER);
    command.args(["ike", "status", "--json", "--config", file]).current_dir(place.path(""));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// IKE_SAs that charon lists: each has a line that begins with its connection's name.
fn listed(charon: &Place, connection: &str) -> usize {
    let of = format!("{connection}: #");
    charon.swanctl(&["--list-sas"]).lines().filter(|line| line.starts_with(&of)).count()
}

/// Sends charon a signal.
#[track_caller]
fn signal(charon: &Place, name: &str) {
    let all = program("ip").args(["netns", "pids", charon.name()]).output().unwrap();
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    let is_charon = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "charon")
    };
    let pid = all.lines().find(is_charon).expect("it runs");
    assert!(program("kill").args(["-s", name, pid]).status().unwrap().success());
}

#[track_caller]
fn initiate(charon: &Place) {
    let said = charon.swanctl(&["--initiate", "--child", "net", "--ike", "out", "--timeout", "120"]);
    assert!(said.contains("initiate completed successfully"), "{said}\n{}", charon.log());
}

/// Our side begins to charon by a shared key, and goes on to serve.
fn serving(charon: &Place, place: &Folder, limits: &str, more: &str) -> Running {
    let by_key = "local_id = \"ini.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\nsecret = \"a shared secret\"\n";
    place.write("client.toml", &format!("{LISTEN}{limits}{}", home(&format!("{by_key}{more}"))));
    let mut command = within(charon, USHER);
    command.args(["ike", "serve", "--config", "client.toml"]);
    place.start("client", &mut command, "started")
}

/// RFC 7296 2.8.3: a new IKE_SA with new proofs takes the old one's place, before that one ends or after.
#[test]
fn charon_proves_anew_who_it_is_before_and_after_the_end_of_the_old_ike_sa() {
    for order in ["no", "yes"] {
        let place = Folder::new();
        let charon =
            Place::set(&begins("auth = psk\n id = ini.test"), &[], &format!("make_before_break = {order}"));
        let mut ours = gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
        initiate(&charon);
        ours.wait_for("established");
        let of = || status(&charon, &place, "gateway.toml");
        let first = of()["sas"][0].clone();
        charon.swanctl(&["--rekey", "--ike", "out", "--reauth"]);
        eventually("another took its place", &charon, || {
            let now = of();
            let sas = now["sas"].as_array().unwrap();
            sas.len() == 1
                && sas[0]["spis"] != first["spis"]
                && sas[0]["children"].as_array().unwrap().len() == 1
                && listed(&charon, "out") == 1
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
fn we_prove_anew_who_we_are_to_charon_before_and_after_the_end_of_the_old_ike_sa() {
    for order in ["break-before-make", "make-before-break"] {
        let place = Folder::new();
        let charon = Place::new(&waits("auth = psk\n id = ini.test"));
        let more = format!(
            "reauth_after = \"2 s\"\nreauthentication = \"{order}\"\nstart = true\nretry = \"100 ms\"\n"
        );
        let mut ours = serving(&charon, &place, "", &more);
        ours.wait_for("addresses=\"10.9.0.");
        let of = || status(&charon, &place, "client.toml");
        let first = of()["sas"][0]["spis"].clone();
        eventually("another took its place", &charon, || {
            let now = of();
            let sas = now["sas"].as_array().unwrap();
            sas.len() == 1 && sas[0]["spis"] != first && listed(&charon, "in") == 1
        });
        let now = of();
        assert!(now["counters"]["reauthentications"].as_u64() >= Some(1), "{order}: {now}");
        assert_eq!(now["counters"]["ike_rekeyed"], 0, "{order}: {now}");
        assert_eq!(ours.terminate(), Some(0));
    }
}

/// RFC 7296 3.15.1: charon asks for an address that it names, of both families.
#[test]
fn charon_gets_the_addresses_that_it_asks_for() {
    let place = Folder::new();
    let asking =
        begins("auth = psk\n id = ini.test").replace("vips = 0.0.0.0", "vips = 10.9.0.77, fd00:9::77");
    let charon = Place::new(&asking);
    let text = PSK_GATEWAY
        .replace("[\"inner\"]", "[\"inner\", \"inner6\"]")
        .replace("\"10.2.0.0/16\"", "\"10.2.0.0/16\", \"fd00:2::/48\"");
    let pool = format!("{POOL}[[pool]]\nname = \"inner6\"\nranges = [\"fd00:9::/112\"]\n");
    let _ours = gateway(&charon, &place, &format!("{text}{pool}"));
    initiate(&charon);
    let said = charon.swanctl(&["--list-sas"]);
    assert!(said.contains("[10.9.0.77 fd00:9::77]"), "{said}");
    let now = status(&charon, &place, "gateway.toml");
    assert_eq!(now["sas"][0]["addresses"], serde_json::json!(["10.9.0.77", "fd00:9::77"]));
}

/// RFC 6023, in both roles: an IKE_SA without a CHILD_SA, which follows.
#[test]
fn an_ike_sa_begins_without_a_child_which_follows() {
    let place = Folder::new();
    let force = |text: String| text.replace("version = 2\n", "version = 2\n childless = force\n");
    let charon = Place::new(&force(begins("auth = psk\n id = ini.test")));
    let ours = gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
    initiate(&charon);
    let said = charon.swanctl(&["--list-sas"]);
    assert!(said.contains("INSTALLED"), "{said}\n{}", charon.log());
    assert!(charon.log().contains("generating CREATE_CHILD_SA request"), "{}", charon.log());
    drop(ours);
    drop(charon);
    let charon = Place::new(&force(waits("auth = psk\n id = ini.test")));
    let mut ours = serving(&charon, &place, "", "childless = \"force\"\nstart = true\n");
    ours.wait_for("name=\"net\"");
    eventually("it was asked for by itself", &charon, || {
        charon.log().contains("generating CREATE_CHILD_SA response")
    });
}

/// RFC 7296 2.4: each side asks whether the other lives, and gives up one that does not answer.
#[test]
fn each_side_asks_whether_the_other_lives_and_gives_up_who_does_not_answer() {
    let asked = |text: String| text.replace("version = 2\n", "version = 2\n dpd_delay = 1\n");
    let place = Folder::new();
    // charon asks, and gives us up.
    let charon = Place::set(
        &asked(begins("auth = psk\n id = ini.test")),
        &[],
        "retransmit_timeout = 2\n retransmit_tries = 1",
    );
    let ours = gateway(&charon, &place, &format!("{PSK_GATEWAY}{POOL}"));
    initiate(&charon);
    eventually("charon has asked twice", &charon, || {
        charon.log().matches("sending DPD request").count() >= 2
    });
    assert_eq!(listed(&charon, "out"), 1, "we have answered");
    ours.signal("STOP");
    eventually("charon has given us up", &charon, || {
        charon.log().contains("giving up after 1 retransmits") && listed(&charon, "out") == 0
    });
    drop(ours);
    drop(charon);
    // We ask, and give charon up.
    let charon = Place::new(
        &waits("auth = psk\n id = ini.test").replace("version = 2\n", "version = 2\n dpd_delay = 0\n"),
    );
    let limits = "[limits]\nretransmission = \"1 s\"\nretransmissions = 2\n";
    let mut ours = serving(&charon, &place, limits, "liveness = \"1 s\"\nstart = true\n");
    ours.wait_for("name=\"net\"");
    eventually("we have asked twice", &charon, || {
        charon.log().matches("parsed INFORMATIONAL request").count() >= 2
    });
    assert_eq!(
        status(&charon, &place, "client.toml")["sas"].as_array().unwrap().len(),
        1,
        "charon has answered"
    );
    signal(&charon, "STOP");
    ours.wait_for("the other side does not answer");
    assert_eq!(status(&charon, &place, "client.toml")["sas"].as_array().unwrap().len(), 0);
    signal(&charon, "CONT");
}
