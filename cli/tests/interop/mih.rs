//! The MIH function on real links: subscribers receive events of the kernel's interfaces, the function executes
//! commands of others, and tshark checks the messages.

use crate::namespace::NetworkNamespace;
use crate::place::{TEST_TIMEOUT, TempDir, USHER, run_program};
use std::time::{Duration, Instant};

const SERVER: &str = "10.98.0.1";
const ASKER: &str = "10.98.0.2";
const MAC: &str = "02:00:00:00:98:01";

/// A host with a function and a link `w0` (its other end is `w1`), and another host as the client.
struct MihTestNetwork {
    temp_dir: TempDir,
    host: NetworkNamespace,
    asker: NetworkNamespace,
}

impl MihTestNetwork {
    fn new() -> Self {
        let (place, host, asker) = (TempDir::new(), NetworkNamespace::new(), NetworkNamespace::new());
        host.run_ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", asker.name()]);
        host.run_ip(&["addr", "add", &format!("{SERVER}/24"), "dev", "v0"]);
        asker.run_ip(&["addr", "add", &format!("{ASKER}/24"), "dev", "v1"]);
        host.run_ip(&["link", "add", "w0", "address", MAC, "type", "veth", "peer", "name", "w1"]);
        for (space, link) in [(&host, "v0"), (&asker, "v1"), (&host, "w0"), (&host, "w1")] {
            space.run_ip(&["link", "set", link, "up"]);
        }
        let text = format!(
            "id = \"host.example.org\"\n[listen]\nudp = [\"0.0.0.0:4551\"]\ntcp = [\"0.0.0.0:4551\"]\n\
             [[allow]]\nprefix = \"{ASKER}\"\nrights = [\"events\", \"parameters\", \"actions\", \"handover\"]\n\
             [[interface]]\nname = \"v0\"\n[[interface]]\nname = \"w0\"\nlink_type = \"802.11\"\nallow_actions = true\n\
             watch = {{ file = \"signal\", below = -75, interval = \"20 ms\" }}\n"
        );
        place.write_private("mih.toml", &text);
        place.write_private("signal", "-60\n");
        Self { temp_dir: place, host, asker }
    }

    /// Sends a query and returns the output.
    #[track_caller]
    fn send_query(&self, words: &[&str]) -> (bool, String) {
        self.asker.run_program(
            &self.temp_dir,
            USHER,
            &[&["mih", "send", "--to", "host.example.org"], words].concat(),
            "",
        )
    }
}

#[test]
fn link_events_reach_subscribers_and_tshark_decodes_them() {
    let world = MihTestNetwork::new();
    let mut serve = world.host.command(USHER);
    serve.args(["mih", "serve", "--config", "mih.toml"]);
    let mut server = world.temp_dir.start_program("mih", &mut serve, "started");
    server.wait_until("both links up", |log| log.matches("link up").count() == 2);
    // Discovery, before the capture: it uses an empty identifier, at which tshark's dissector stops.
    let (right, said) =
        world.asker.run_program(&world.temp_dir, USHER, &["mih", "send", SERVER, "discover"], "");
    assert!(right && said.contains("host.example.org") && said.contains(&format!("{MAC} 802.11")), "{said}");
    let mut dumpcap = world.asker.command("dumpcap");
    dumpcap.args(["-q", "-B", "32", "-i", "v1", "-w", "mih.pcapng"]);
    let mut dumpcap = world.temp_dir.start_program("dumpcap", &mut dumpcap, "File: ");
    for transport in [&["--tcp"][..], &[]] {
        let (right, said) =
            world.send_query(&[transport, &[SERVER, "parameters", "--link", MAC, "--json"]].concat());
        assert!(right && said.contains("\"operation\": \"normal\""), "{said}");
        // A veth reports 10 Gb/s; the parameter's 16 bits hold at most 65535 kb/s.
        assert!(said.contains("\"data_rate_kbps\": 65535"), "{said}");
        let (right, said) = world.send_query(&[transport, &[SERVER, "candidates", "--link", MAC]].concat());
        assert!(right && said.contains("handover: permitted"), "{said}");

        let mut follow = world.asker.command(USHER);
        follow.args(["mih", "send", "--to", "host.example.org", SERVER]).args(transport).args([
            "subscribe",
            "--link",
            MAC,
            "--follow",
        ]);
        let mut follow = world.temp_dir.start_program("follow", &mut follow, "MIH_Event_Subscribe response");
        let mut heard = |what: &str, count: usize| {
            follow.wait_until(what, |log| log.matches(what).count() == count);
        };
        let (down, up) = ("MIH_Link_Down: ", "MIH_Link_Up: ");
        world.host.run_ip(&["link", "set", "w1", "down"]);
        heard(down, 1);
        world.host.run_ip(&["link", "set", "w1", "up"]);
        heard(up, 1);
        world.temp_dir.write_private("signal", "-80\n");
        heard("within ms 1000, reason link parameter degrading", 1);
        world.temp_dir.write_private("signal", "-60\n");
        // Commands: at once, and after a delay with an immediate response.
        let act = |action: &str, more: &[&str]| {
            let (right, said) =
                world.send_query(&[transport, &[SERVER, "act", action, "--link", MAC], more].concat());
            assert!(right && said.contains("result success"), "{said}");
        };
        act("power-down", &[]);
        heard(down, 2);
        assert!(follow_log(&world.temp_dir).contains("reason explicit disconnect"));
        act("power-up", &[]);
        heard(up, 2);
        act("disconnect", &["--delay", "0.3 s"]);
        heard("within ms 300, reason explicit disconnect", 1);
        heard(down, 3);
        act("power-up", &[]);
        heard(up, 3);
        assert_eq!(follow.terminate(), Some(0));
        server.wait_until("the end of the subscription", |log| log.contains("MIH_Event_Unsubscribe request"));
    }
    assert_eq!(server.terminate(), Some(0));
    // The kernel delivers captured packets in blocks, with a delay.
    let begun = Instant::now();
    let captured = |carrier: &str| {
        let filter = format!("mih && {carrier}");
        let words = ["-n", "-r", "mih.pcapng", "-Y", &filter, "-T", "fields", "-e", "frame.protocols"];
        // The file may end in the middle of a frame, which tshark reports.
        run_program(&world.temp_dir.path(""), "tshark", &words, "")
            .1
            .lines()
            .filter(|line| line.contains(":mih"))
            .count()
    };
    while captured("udp") <= 40 || captured("tcp") <= 20 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{} and {} are captured", captured("udp"), captured("tcp"));
        std::thread::sleep(Duration::from_millis(200));
    }
    dumpcap.terminate();
    let tshark = |filter: &str, fields: &[&str]| {
        let mut words = vec!["-n", "-r", "mih.pcapng", "-Y", filter, "-T", "fields"];
        fields.iter().for_each(|field| words.extend(["-e", field]));
        let (right, said) = run_program(&world.temp_dir.path(""), "tshark", &words, "");
        assert!(right, "{filter}: {said}");
        said.lines()
            .filter(|line| !line.starts_with("Running as user"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(tshark("mih && udp", &["frame.number"]).len() > 40);
    assert!(tshark("mih && tcp", &["frame.number"]).len() > 20);
    let flaws = tshark(
        "_ws.malformed || (mih && _ws.expert.severity >= 0x600000)",
        &["frame.number", "_ws.expert.message"],
    );
    assert!(flaws.is_empty(), "{flaws:?}");
}

/// Returns the output of the following client.
fn follow_log(place: &TempDir) -> String {
    std::fs::read_to_string(place.path("follow.log")).unwrap()
}
