//! Live captures between our server and its clients: tshark decodes every kind of message and finds no flaw.

use crate::freediameter::{self, DiameterTestNetwork, FreeDiameterRole};
use crate::freeradius::login_attributes;
use crate::hostapd::{self, HostapdTestNetwork};
use crate::namespace::NetworkNamespace;
use crate::place::{RunningProgram, SECRET, TEST_TIMEOUT, TempDir, run_program};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A filter of flaws. Checksums are not checked, since loopback leaves them out.
const FLAWS: &str = "_ws.malformed || radius.authenticator.invalid == 1 || radius.Unknown_Attribute \
    || diameter.avp.unknown || diameter.avp.invalid-data || diameter.avp.invalid-len";
/// The severity of warnings. Errors are higher.
const WARNING: u32 = 0x60_0000;
/// The group of warnings about TCP's sequence numbers, which a busy machine causes.
const SEQUENCE: &str = "33554432";
/// Warnings about correct messages: EAP-MD5 does not authenticate the server; an MS-CHAP-Error begins with an
/// identifier (RFC 2548 §2.1.5), which tshark takes for text.
const EXEMPT: [&str; 2] =
    ["Vulnerable to MITM attacks. If possible, change EAP type.", "Trailing stray characters"];
/// MS-CHAP-Error's number among Microsoft's attributes.
const MS_CHAP_ERROR: &str = "2";

/// A capture of a namespace's loopback.
struct LoopbackCapture<'a> {
    dumpcap: RunningProgram,
    temp_dir: &'a TempDir,
}

impl<'a> LoopbackCapture<'a> {
    #[track_caller]
    fn start_capture(place: &'a TempDir, space: &NetworkNamespace) -> Self {
        // Without this limit, the capture shows datagrams that a single system call sent as one packet.
        space.run_ip(&["link", "set", "lo", "gso_max_segs", "1"]);
        let mut command = space.command("dumpcap");
        // The buffer holds packets that arrive while dumpcap is not scheduled.
        command.args(["-q", "-B", "32", "-i", "lo", "-w", "capture.pcapng"]);
        Self { dumpcap: place.start_program("dumpcap", &mut command, "File: "), temp_dir: place }
    }

    /// Returns tshark's fields of the frames that match, one line each.
    fn run_tshark(&self, filter: &str, fields: &[&str]) -> (bool, String) {
        let secret = format!("radius.shared_secret:{SECRET}");
        let diameter = format!("tcp.port=={},diameter", freediameter::PORTS[0] + 1);
        let mut words =
            vec!["-n", "-2", "-r", "capture.pcapng", "-Y", filter, "-T", "fields", "-E", "aggregator=;"];
        words.extend(["-o", &secret, "-o", "radius.validate_authenticator:TRUE", "-d", &diameter]);
        fields.iter().for_each(|field| words.extend(["-e", field]));
        run_program(&self.temp_dir.path(""), "tshark", &words, "")
    }

    /// Returns these lines.
    #[track_caller]
    fn matching_lines(&self, filter: &str, fields: &[&str]) -> Vec<String> {
        let (right, said) = self.run_tshark(filter, fields);
        assert!(right, "{filter}: {said}");
        said.lines().filter(|line| !line.starts_with("Running as user")).map(str::to_owned).collect()
    }

    /// Returns the number of frames that match.
    #[track_caller]
    fn count_frames(&self, filter: &str) -> usize {
        self.matching_lines(filter, &["frame.number"]).len()
    }

    /// Waits until the file has this many such frames, and ends the capture.
    #[track_caller]
    fn finish_capture(&mut self, frames: &str, count: usize) {
        let begun = Instant::now();
        // Until then the file may end in the middle of a frame, which makes tshark fail.
        while self.run_tshark(frames, &["frame.protocols"]).1.matches("eth:").count() < count {
            assert!(begun.elapsed() < TEST_TIMEOUT, "not {count} times {frames} are captured");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(self.dumpcap.terminate(), Some(0));
    }

    #[track_caller]
    fn assert_clean(&self) {
        let mut flawed = self.matching_lines(FLAWS, &["frame.number", "_ws.col.Info"]);
        let expert = ["_ws.expert.severity", "_ws.expert.group", "_ws.expert.message"];
        let fields = [&["frame.number", "radius.avp.vendor_type"], &expert[..]].concat();
        for line in self.matching_lines("_ws.expert", &fields) {
            let columns: Vec<Vec<&str>> = line.split('\t').map(|c| c.split(';').collect()).collect();
            let [_, vendor_types, severities, groups, messages] = &columns[..] else { panic!("{line}") };
            assert_eq!([groups.len(), messages.len()], [severities.len(); 2], "{line}");
            let exempt = &EXEMPT[..if vendor_types.contains(&MS_CHAP_ERROR) { 2 } else { 1 }];
            let warns = |n: usize| {
                let severity: u32 = severities[n].parse().unwrap();
                severity >= WARNING && groups[n] != SEQUENCE && !exempt.contains(&messages[n])
            };
            if (0..severities.len()).any(warns) {
                flawed.push(line.clone());
            }
        }
        assert!(flawed.is_empty(), "{flawed:#?}");
    }
}

/// Starts a FreeRADIUS in hostapd's place, which accepts every change (RFC 5176).
#[track_caller]
fn start_coa_freeradius(port: &HostapdTestNetwork) -> RunningProgram {
    let folder = port.temp_dir.path_text("freeradius");
    let text = format!(
        r#"
name = radiusd
libdir = /usr/lib/freeradius
raddbdir = {folder}
run_dir = {folder}
db_dir = {folder}
pidfile = {folder}/radiusd.pid
client here {{
	ipaddr = 127.0.0.1
	secret = {SECRET}
}}
modules {{
	always ok {{
		rcode = ok
	}}
}}
server default {{
	listen {{
		type = coa
		ipaddr = 127.0.0.1
		port = 3799
	}}
	recv-coa {{
		ok
	}}
	send-coa {{
		ok
	}}
}}
"#
    );
    port.temp_dir.write_private("freeradius/radiusd.conf", &text);
    let mut command = port.nas.command("freeradius");
    command.args(["-d", &folder, "-f", "-l", "stdout"]);
    port.temp_dir.start_program("freeradius", &mut command, "Ready to process requests")
}

#[test]
fn radius_with_hostapd_and_radclient() {
    let mut port = HostapdTestNetwork::new();
    let mut capture = LoopbackCapture::start_capture(&port.temp_dir, &port.nas);
    let radclient = |to: &str, kind: &str, attributes: &str| {
        let words = ["-x", "-r", "1", "-t", "60", to, kind, SECRET];
        port.nas.run_program(&port.temp_dir, "radclient", &words, attributes).1
    };
    for attribute in ["User-Password", "CHAP-Password", "MS-CHAP-Password"] {
        for (password, answer) in [("password", "Access-Accept"), ("wrong", "Access-Reject")] {
            let said = radclient("127.0.0.1:1812", "auth", &login_attributes("ann", attribute, password));
            assert!(said.contains(&format!("Received {answer}")), "{said}");
        }
    }
    let network = format!("network={{\nkey_mgmt=WPA-EAP\n{}\n}}\n", hostapd::tls_network());
    port.temp_dir.write_private("tls.conf", &network);
    let words = ["-c", "tls.conf", "-a", "127.0.0.1", "-s", SECRET];
    let (right, said) = port.nas.run_program(&port.temp_dir, "eapol_test", &words, "");
    assert!(right, "{said}");
    let mut station = port.start_station("ann", &hostapd::peap_network("password"));
    station.wait_for("CTRL-EVENT-CONNECTED");
    port.usher.wait_for("accounting status=Start user=\"ann\"");
    let id = port.open_sessions()[0]["id"].as_str().unwrap().to_owned();
    port.run_admin_command(&["session", "change", &id, "Session-Timeout = 100"]);
    port.run_admin_command(&["session", "disconnect", &id]);
    port.usher.wait_for("accounting status=Stop user=\"ann\"");
    station.terminate();
    for to in ["127.0.0.1:1812", "127.0.0.1:1813"] {
        let said = radclient(to, "status", "Message-Authenticator = 0x00\n");
        assert!(
            said.contains("Received Access-Accept") || said.contains("Received Accounting-Response"),
            "{said}"
        );
    }
    let begin =
        "User-Name = ann\nAcct-Status-Type = Start\nAcct-Session-Id = s1\nNAS-IP-Address = 127.0.0.1\n";
    assert!(radclient("127.0.0.1:1813", "acct", begin).contains("Received Accounting-Response"));
    // hostapd does not know that session; FreeRADIUS, in its place, accepts every change.
    let (right, said) = port.run_admin_command(&["session", "disconnect", "s1"]);
    assert!(!right && said.contains("Error-Cause 503"), "{said}");
    assert_eq!(port.hostapd.terminate(), Some(0));
    port.usher.wait_for("accounting status=Off");
    assert!(radclient("127.0.0.1:1813", "acct", begin).contains("Received Accounting-Response"));
    let _changed = start_coa_freeradius(&port);
    let (right, said) = port.run_admin_command(&["session", "change", "s1", "Session-Timeout = 100"]);
    assert!(right, "{said}");
    // Start and Stop of a session, hostapd's record, and two Starts of a session.
    capture.finish_capture("radius.code == 4 && radius.rspframe", 5);

    capture.assert_clean();
    let codes = capture.matching_lines("radius", &["radius.code"]);
    // Access-Request, -Accept, -Reject, -Challenge; Accounting-Request, -Response; Status-Server;
    // Disconnect-Request, -ACK, -NAK; CoA-Request, -ACK, -NAK.
    for code in ["1", "2", "3", "11", "4", "5", "12", "40", "41", "42", "43", "44", "45"] {
        assert!(codes.iter().any(|c| c == code), "no message of code {code}: {codes:?}");
    }
    // hostapd ends before the last answer.
    assert_eq!(
        capture.count_frames("udp && !icmp"),
        capture.count_frames("radius && !icmp"),
        "nothing else is there"
    );
    // tshark has verified all that it can. It cannot verify answers to Status-Server, which radclient has
    // verified, or requests of RFC 5176, which hostapd has.
    let signed = capture.count_frames("(radius.reqframe || radius.code == 4) && !icmp");
    assert!(signed > 30, "{signed}");
    assert_eq!(capture.count_frames("radius.authenticator.valid == 1 && !icmp"), signed);
    assert_eq!(capture.count_frames("radius.code in {2, 3, 11} && !radius.Message_Authenticator"), 0);
    assert_eq!(
        capture.count_frames("radius.req && radius.code != 12 && !radius.rspframe"),
        0,
        "all are answered"
    );
    assert_eq!(capture.count_frames("radius.dup"), 0, "and none came twice");
}

#[test]
fn diameter_with_freediameter_and_the_load_generator() {
    let world = DiameterTestNetwork::new(false);
    let mut usher = world.start_server(10);
    let mut capture = LoopbackCapture::start_capture(&world.temp_dir, &world.space);
    let client = FreeDiameterRole::Client { password: "password" };
    let mut peer = world.start_freediameter(&client, 600);
    peer.wait_for("usher_peer: RESULT 2001");
    peer.wait_for("'Device-Watchdog-Request'");
    assert_eq!(peer.terminate(), Some(0));
    let mut peer = world.start_freediameter(&FreeDiameterRole::Client { password: "wrong" }, 10);
    peer.wait_for("usher_peer: RESULT 4001");
    for more in [
        &["--method", "eap-md5", "--accounting", "--interims", "1"][..],
        &["--method", "pap", "--wrong-share", "50%"],
    ] {
        world.load_peer(freediameter::HOSTS[0], 1, &[more, &["--count", "20"]].concat());
    }
    assert_eq!(usher.terminate(), Some(0));
    peer.wait_for("sent a DPR");
    assert_eq!(peer.terminate(), Some(0));
    // One of freeDiameter, four of the load generator's trials and loads, and one of ours.
    capture.finish_capture(
        "diameter.cmd.code == 282 && diameter.flags.request == 1 && diameter.answer_in",
        1 + 4 + 1,
    );

    capture.assert_clean();
    // Capabilities-Exchange, AA, Diameter-EAP, Accounting, Device-Watchdog, Disconnect-Peer.
    for command in [257, 265, 268, 271, 280, 282] {
        for request in [0, 1] {
            let filter = format!("diameter.cmd.code == {command} && diameter.flags.request == {request}");
            assert!(capture.count_frames(&filter) > 0, "{filter}");
        }
    }
    // Counts messages: if a frame has several, tshark may name the answer to none.
    let mut open = BTreeSet::new();
    for line in
        capture.matching_lines("diameter", &["tcp.stream", "diameter.flags.request", "diameter.hopbyhopid"])
    {
        let columns: Vec<&str> = line.split('\t').collect();
        let [stream, requests, ids] = columns[..] else { panic!("{line}") };
        for (request, id) in requests.split(';').zip(ids.split(';')) {
            let message = (stream.to_owned(), id.to_owned());
            let fits = if request == "0" { open.remove(&message) } else { open.insert(message) };
            assert!(fits, "an answer to nothing, or a request that came before: {line}");
        }
    }
    assert_eq!(open, BTreeSet::new(), "all are answered");
}
