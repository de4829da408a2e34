//! tshark as a second opinion on the simulator's packets.

use std::path::Path;
use std::process::Command;

/// A filter of damaged frames: wrong checksums and authenticators.
pub const DAMAGE: &str = "ip.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" \
    || tcp.checksum.status == \"Bad\" || sctp.checksum.status == \"Bad\" \
    || radius.authenticator.invalid == 1";

/// A filter of all flawed frames: damaged or malformed ones, and those that a dissector marks as errors.
pub const FLAWS: &str = "ip.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" \
    || tcp.checksum.status == \"Bad\" || sctp.checksum.status == \"Bad\" \
    || radius.authenticator.invalid == 1 \
    || _ws.malformed || _ws.expert.severity == \"Error\"";

/// Preferences that enable all of tshark's checks. The shared secret is the one that captures name.
const PREFERENCES: [&str; 7] = [
    "ip.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "sctp.checksum:CRC 32c",
    "radius.shared_secret:usher-simulation",
    "radius.validate_authenticator:TRUE",
    // Ephemeral ports may be the ports of other protocols.
    "udp.try_heuristic_first:FALSE",
];

/// Returns tshark's fields of the frames that match `filter`, a line for each frame. Several values of a field are
/// joined by commas.
///
/// # Panics
/// tshark is missing, or rejects the filter, a field or the capture.
pub fn tshark_fields(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    // Two passes link requests to their responses.
    tshark.args(["-n", "-2", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    tshark.arg("-r").arg(capture);
    if !filter.is_empty() {
        tshark.args(["-Y", filter]);
    }
    PREFERENCES.iter().for_each(|p| {
        tshark.args(["-o", p]);
    });
    fields.iter().for_each(|f| {
        tshark.args(["-e", f]);
    });
    let output = tshark.output().unwrap_or_else(|e| {
        panic!("tshark, which reads the simulator's captures here, cannot be run ({e}): run scripts/setup test, which installs it")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}
