//! A profile for tests: passwords, EAP-MD5 over RADIUS and over Diameter, and a store for user lookups.

use crate::StoreKind;

/// The program's version and the store are placeholders.
const TEXT: &str = r#"version = 1
program = "PROGRAM"
date = "2026-11-25"
[machine]
processor = "A \"fast\" one"
cores = 2
kernel = "6.1.0"
[machine.reference]
rsa_2048_sign = "1000 /s"
ecdsa_p256_sign = "30000 /s"
md5 = "2000000 /s"
[configuration]
fingerprint = "00ff"
shards = 1
store = "STORE"
cached = false
[wakeup]
user = "1 us"
system = "2 us"
[batch]
user = "0 us"
system = "1 us"
[work]
"radius.request" = { user = "6 us", system = "4 us" }
"diameter.request" = { user = "12 us", system = "6 us" }
"eap.md5" = { user = "2 us", system = "0 us" }
"tls.sign" = { user = "600 us", system = "0 us" }
[methods.pap]
received = { messages = 1.0, octets = 60.0 }
sent = { messages = 1.0, octets = 38.0 }
server = { user = "7 us", system = "7 us" }
generator = { user = "9 us", system = "8 us" }
units = { "radius.request" = 1.0, "radius.response" = 1.0 }
loads = [
    { rate = "1000 /s", burst = 1, logins = 5000, utilisation = 0.014, server = { user = "7 us", system = "7 us" }, wakeups = 1.0, batches = 1.0, accounted = 1.0 },
]
[methods.pap.libraries]
by = "cpu-clock"
samples = 4000
shares = { kernel = "61 %", usher = "39 %" }
[methods.eap-md5]
received = { messages = 2.0, octets = 160.0 }
sent = { messages = 2.0, octets = 138.0 }
server = { user = "16 us", system = "14 us" }
generator = { user = "19 us", system = "18 us" }
units = { "radius.request" = 2.0, "eap.md5" = 1.0 }
loads = []
[methods.diameter-eap-md5]
received = { messages = 2.0, octets = 600.0 }
sent = { messages = 2.0, octets = 500.0 }
server = { user = "28 us", system = "18 us" }
generator = { user = "39 us", system = "28 us" }
units = { "diameter.request" = 2.0, "eap.md5" = 1.0 }
loads = []
[within]
"radius.request" = "1 us"
"diameter.request" = "20 us"
"eap.md5" = "300 ns"
"#;

/// The costs of a store lookup.
const LOOKED_UP: &str = r#""store.lookup" = { user = "20 us", system = "10 us" }
[store]
lookup = "300 us"
round_trips = 1
"#;

/// Returns the profile's text for a version of the program and a kind of store.
#[must_use]
pub fn sample_profile_text(program: &str, store: StoreKind) -> String {
    let text = TEXT.replace("PROGRAM", program).replace("STORE", store.name());
    match store {
        StoreKind::Memory => text,
        StoreKind::Sqlite | StoreKind::Postgresql => {
            text.replace("[methods.pap]\n", &format!("{LOOKED_UP}[methods.pap]\n"))
        }
    }
}
