//! Debian's tshark decrypts messages that Debian's other peers do not support: additional key exchanges (RFC
//! 9370) in the initial exchange and later, and resumption of an IKE_SA (RFC 5723).

use super::charon::start_capture;
use super::*;

/// Exchange types (RFC 7296 3.1, RFC 5723, RFC 9242, RFC 9370).
const IKE_AUTH: u8 = 35;
const CREATE_CHILD_SA: u8 = 36;
const IKE_SESSION_RESUME: u8 = 38;
const IKE_INTERMEDIATE: u8 = 43;
const IKE_FOLLOWUP_KE: u8 = 44;

/// Returns for each message of a capture its frame number, exchange type, and whether tshark finds it good by
/// these keys. `None`: tshark has no result, as for a message in the clear.
fn read_messages(place: &TempDir, keys: &[String]) -> Vec<(u32, u8, Option<bool>)> {
    let mut command = find_program("tshark");
    command.args(["-n", "-V", "-r", "capture.pcapng", "-Y", "isakmp"]);
    for line in keys {
        command.args(["-o", &format!("uat:ikev2_decryption_table:{line}")]);
    }
    let done = command.current_dir(place.path("")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let number = |text: &str, before: &str, after: char| {
        let rest = text.split_once(before)?.1;
        rest.split_once(after)?.0.trim().rsplit('(').next()?.parse::<u32>().ok()
    };
    let mut all = Vec::new();
    for frame in said.split("\nFrame ").map(|frame| frame.trim_start_matches("Frame ")) {
        let n = frame.split(':').next().unwrap().parse().unwrap();
        let kind = number(frame, "Exchange type: ", ')').unwrap();
        let good = match (frame.contains("[correct]"), frame.contains("[incorrect")) {
            (false, false) => None,
            (good, bad) => Some(good && !bad),
        };
        all.push((n, u8::try_from(kind).unwrap(), good));
    }
    all
}

/// Returns the lines of a key log with distinct SPIs. The first or the last of several lines with the same SPIs
/// stays.
fn select_key_lines(lines: &[String], last: bool) -> Vec<String> {
    let spis = |line: &String| line.split(',').take(2).map(str::to_owned).collect::<Vec<_>>();
    let other = |n: usize, line: &String| {
        let (before, after) = (&lines[..n], &lines[n + 1..]);
        let others = if last { after } else { before };
        others.iter().any(|other| spis(other) == spis(line))
    };
    lines.iter().enumerate().filter(|(n, line)| !other(*n, line)).map(|(_, line)| line.clone()).collect()
}

#[test]
fn tshark_decrypts_further_key_exchanges_and_resumption() {
    let (place, cable) = (TempDir::new(), TunnelTestNetwork::new());
    let (a, b) = (cable.a.as_str(), cable.b.as_str());
    let proposals = "proposals = [\"aes128-sha256-x25519-ke1_mlkem768\"]\n";
    let child = "proposals = [\"aes128gcm16-x25519-ke1_mlkem768\"]\n";
    let limits = "[limits]\ntickets = \"1 h\"\nretransmission = \"1 s\"\nretransmissions = 2\n";
    let text = format!(
        "{}pools = [\"inner\"]\n{proposals}[[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\"]\n{child}\
         [[pool]]\nname = \"inner\"\nranges = [\"10.9.0.0/24\"]\n{limits}",
        psk_connection("gw.test", "ini.test")
    );
    let gateway = cable.start_usher(&place, b, "gateway", &["serve"], &text);
    let mut dumpcap = start_capture(&place, &cable);
    let text = format!(
        "{}remote_address = \"192.0.2.2\"\naddress = true\nstart = true\nretry = \"2 s\"\nliveness = \"1 s\"\n{proposals}\
         [[connection.child]]\nname = \"net\"\nremote = [\"10.2.0.0/16\"]\n{child}{limits}",
        psk_connection("ini.test", "gw.test")
    );
    let mut client = cable.start_usher(&place, a, "client", &["serve"], &text);
    client.wait_for("name=\"net\"");
    let counted = |name: &str| gateway_status(&place, "client")["counters"][name].as_u64().unwrap();
    query_gateway(&place, "client", &["rekey"]);
    wait_until("the IKE_SA is replaced", || counted("ike_rekeyed") == 1);
    query_gateway(&place, "client", &["rekey", "--children"]);
    wait_until("the CHILD_SA is replaced", || counted("ike_children") == 2);
    // The client loses its IKE_SA and resumes it.
    gateway.signal("STOP");
    client.wait_for("the peer does not answer");
    gateway.signal("CONT");
    wait_until("it is taken up again", || counted("ike_resumed") == 1);
    // Messages of the second IKE_SA are the last to reach the file.
    wait_until("it is captured", || {
        let filter = format!("isakmp.exchangetype == {IKE_AUTH}");
        let words = ["-n", "-r", "capture.pcapng", "-Y", &filter, "-T", "fields", "-e", "frame.number"];
        let said = find_program("tshark").args(words).current_dir(place.path("")).output().unwrap();
        String::from_utf8_lossy(&said.stdout).lines().count() >= 4
    });
    assert_eq!(client.terminate(), Some(0));
    dumpcap.terminate();
    let log = std::fs::read_to_string(place.path("client.ikev2")).unwrap();
    let lines: Vec<String> = log.lines().map(str::to_owned).collect();
    // With an additional key exchange, keys change within an IKE_SA. This tshark does not support that, so it
    // runs once with the keys before and once with those after.
    let (before, after) = (
        read_messages(&place, &select_key_lines(&lines, false)),
        read_messages(&place, &select_key_lines(&lines, true)),
    );
    assert_eq!(before.len(), after.len());
    let count = |kind: u8| before.iter().filter(|(_, of, _)| *of == kind).count();
    // At least a request and a response of each. The second IKE_SA starts without a key exchange.
    for kind in [IKE_AUTH, CREATE_CHILD_SA, IKE_SESSION_RESUME, IKE_INTERMEDIATE, IKE_FOLLOWUP_KE] {
        assert!(count(kind) >= 2, "{kind}: {before:?}");
    }
    for (one, other) in before.iter().zip(&after) {
        let (frame, kind, _) = *one;
        match kind {
            34 | IKE_SESSION_RESUME => {
                assert_eq!((one.2, other.2), (None, None), "frame {frame} is in the clear")
            }
            IKE_INTERMEDIATE => assert_eq!((one.2, other.2), (Some(true), Some(false)), "frame {frame}"),
            _ => assert_eq!(other.2, Some(true), "frame {frame} of exchange {kind}: {after:?}"),
        }
    }
}
