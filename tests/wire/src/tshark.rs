//! tshark as a second opinion on what the simulator puts on the wire.

use std::path::Path;
use std::process::Command;

/// Frames that are damaged: broken checksums and authenticators.
pub const DAMAGE: &str = "ip.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" \
    || tcp.checksum.status == \"Bad\" || sctp.checksum.status == \"Bad\" \
    || radius.authenticator.invalid == 1";

/// Frames with anything wrong in them: damaged ones, those that a dissector gives up, and those that one
/// calls erroneous.
pub const FLAWS: &str = "ip.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" \
    || tcp.checksum.status == \"Bad\" || sctp.checksum.status == \"Bad\" \
    || radius.authenticator.invalid == 1 \
    || _ws.malformed || _ws.expert.severity == \"Error\"";

/// Everything that tshark can check is checked. The secret is the one that captures name.
const PREFERENCES: [&str; 7] = [
    "ip.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "sctp.checksum:CRC 32c",
    "radius.shared_secret:usher-simulation",
    "radius.validate_authenticator:TRUE",
    // Ports that clients draw may be those of other protocols.
    "udp.try_heuristic_first:FALSE",
];

/// What tshark makes of a capture's frames that match `filter`: one line of fields per frame. Several values of a field
/// are joined by commas.
///
/// # Panics
/// tshark is missing, or it refuses the filter, a field or the capture.
pub fn tshark_fields(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    // Two passes: requests know their answers.
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
