//! Samples processor time by library with Linux's perf, for a process or a thread. It stores no files: perf writes to
//! a pipe, and ends with the sampled process.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Samples per second of processor time. It is not a multiple of a timer's rate.
const FREQUENCY: &str = "997";
/// The events to sample: a hardware counter, or else the kernel's clock.
const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];
/// The time limit until perf has opened its counters, and from then until it samples.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(10);
const SAMPLING_DELAY: std::time::Duration = std::time::Duration::from_millis(200);

/// The target of the sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleTarget {
    /// All threads of a process.
    Process(u32),
    /// One thread.
    Thread(u32),
}

/// A sample of a program's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileSample {
    /// The time by CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The library of the code.
    pub library: &'static str,
}

/// A running perf.
#[derive(Debug)]
pub struct PerfSampler {
    recorder: Child,
    data: Option<JoinHandle<Vec<u8>>>,
    event: &'static str,
}

impl PerfSampler {
    /// Starts to sample. `None`: perf is missing or lacks permission.
    #[must_use]
    pub fn start(sampled: SampleTarget) -> Option<Self> {
        let event = available_perf_event()?;
        let (of, number) = match sampled {
            SampleTarget::Process(pid) => ("-p", pid),
            SampleTarget::Thread(tid) => ("-t", tid),
        };
        let mut recorder = Command::new("perf")
            .args(["record", "-q", "-e", event, "-F", FREQUENCY, "-k", "CLOCK_MONOTONIC"])
            .args([of, &number.to_string(), "-o", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut stdout = recorder.stdout.take()?;
        let (begins, begun) = channel();
        let data = std::thread::spawn(move || {
            let mut data = vec![0; 8];
            // Wait for perf's first octets: they arrive once its counters are open, which takes long on a busy machine.
            let first = stdout.read(&mut data).unwrap_or(0);
            data.truncate(first);
            let _ = begins.send(());
            // An error is ignored: data read before it is still used.
            let _ = stdout.read_to_end(&mut data);
            data
        });
        let _ = begun.recv_timeout(LONGEST);
        std::thread::sleep(SAMPLING_DELAY);
        Some(Self { recorder, data: Some(data), event })
    }

    /// Returns the sampled event: `cycles`, a hardware counter, or `cpu-clock`, the kernel's clock.
    #[must_use]
    pub const fn event_name(&self) -> &'static str {
        self.event
    }

    /// Ends the sampling and returns the samples by time.
    #[must_use]
    pub fn stop(mut self) -> Vec<ProfileSample> {
        self.interrupt_perf();
        let data = self.data.take().and_then(|data| data.join().ok()).unwrap_or_default();
        let mut all = decode_recording(data).map(|text| parse_samples(&text)).unwrap_or_default();
        all.sort_by_key(|sample| sample.at_ns);
        all
    }

    /// Interrupts perf, which then writes its data.
    fn interrupt_perf(&mut self) {
        let interrupted = Command::new("kill").args(["-INT", &self.recorder.id().to_string()]).status();
        if !interrupted.is_ok_and(|status| status.success()) {
            // perf has ended by itself, or did not accept the interrupt, so kill it.
            let _ = self.recorder.kill();
        }
        let _ = self.recorder.wait();
    }
}

impl Drop for PerfSampler {
    fn drop(&mut self) {
        if self.data.is_some() {
            let _ = self.recorder.kill();
            let _ = self.recorder.wait();
        }
    }
}

fn available_perf_event() -> Option<&'static str> {
    EVENTS.into_iter().find(|event| {
        let tried = Command::new("perf").args(["stat", "-x,", "-e", event, "true"]).output();
        tried.is_ok_and(|out| out.status.success() && !String::from_utf8_lossy(&out.stderr).contains("<not "))
    })
}

/// Converts perf's recording to text, with one line per sample.
fn decode_recording(data: Vec<u8>) -> Option<String> {
    let mut reader = Command::new("perf")
        .args(["script", "--ns", "-F", "time,ip,sym,dso", "-i", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = reader.stdin.take()?;
    let writer = std::thread::spawn(move || {
        // A write error is ignored: the reader may have closed the pipe.
        let _ = stdin.write_all(&data);
    });
    let said = reader.wait_with_output().ok()?;
    let _ = writer.join();
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Parses lines `SECONDS.NANOSECONDS: ADDRESS SYMBOL (LIBRARY)`.
fn parse_samples(text: &str) -> Vec<ProfileSample> {
    let sample = |line: &str| {
        let (time, rest) = line.trim().split_once(": ")?;
        let (seconds, part) = time.split_once('.')?;
        let at_ns =
            seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part.parse().ok()?)?;
        let (_, rest) = rest.trim_start().split_once(' ')?;
        let (symbol, object) = rest.rsplit_once(" (")?;
        Some(ProfileSample { at_ns, library: library_of_symbol(object.trim_end_matches(')'), symbol) })
    };
    text.lines().filter_map(sample).collect()
}

/// Our own cryptography, and the code around the libraries.
const OWN: &str = "usher-crypto";
/// The libraries that do cryptography.
pub const CRYPTOGRAPHY: [&str; 3] = ["AWS-LC", "RustCrypto", OWN];
/// The prefixes of RustCrypto's symbols.
const RUST_CRYPTO: &[&str] = &[
    "md5",
    "md4",
    "sha1",
    "sha2",
    "des",
    "aes",
    "cbc",
    "cipher",
    "block_buffer",
    "hmac",
    "digest",
    "crypto_bigint",
    "argon2",
    "blake2",
];

/// Returns the library of a symbol: all are linked into one file.
fn library_of_symbol(object: &str, symbol: &str) -> &'static str {
    let symbol = symbol.trim_start_matches('<');
    let begins = |names: &[&str]| names.iter().any(|name| symbol.starts_with(name));
    let file = object.rsplit('/').next().unwrap_or(object);
    if object.contains("kernel") || object.contains("vmlinux") || object.ends_with(".ko") {
        "kernel"
    } else if symbol.starts_with("aws_lc") || symbol.contains("aws_lc_") {
        "AWS-LC"
    } else if begins(&["rustls", "webpki", "x509_parser", "asn1"]) {
        "TLS and certificates"
    } else if begins(&["mi_", "_mi_"]) {
        "mimalloc"
    } else if begins(&["tokio", "mio"]) {
        "tokio"
    } else if begins(&["usher_crypto"]) {
        OWN
    } else if begins(RUST_CRYPTO) {
        "RustCrypto"
    } else if begins(&["sqlite3", "rusqlite", "tokio_postgres", "postgres", "usher_store"]) {
        "store"
    } else if begins(&["usher"]) || symbol.contains("usher_") {
        "usher"
    } else if file.starts_with("libc") || file.starts_with("ld-") || file.contains("vdso") {
        "libc"
    } else {
        "other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn samples_have_their_time_and_library() {
        let text = "31192.249885395:      7fe696b05758 strcmp (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)\n\
            31192.260991574:  ffffffff8130b59a get_align_mask ([kernel.kallsyms])\n\
            garbage\n\
            31193.000000001:  5581 <usher_aaa::server::AaaServer as usher_core::Machine>::handle (/usr/bin/usher)\n\
            31193.000000002:  5582 aws_lc_0_29_0_bn_mul4x_mont (/usr/bin/usher)\n";
        let all = parse_samples(text);
        let libraries: Vec<&str> = all.iter().map(|sample| sample.library).collect();
        assert_eq!(libraries, ["libc", "kernel", "usher", "AWS-LC"]);
        assert_eq!(all[2].at_ns, 31_193_000_000_001);
        assert_eq!(parse_samples(""), []);
    }

    #[test]
    fn a_thread_that_works_is_seen_where_perf_may_look() {
        let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        // The processor time of this thread in nanoseconds, regardless of others.
        let ran = || {
            let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            said.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        // perf can start late on a busy machine: each retry gives it more work to sample.
        let seen = [300, 1_200, 4_800, 19_200].map(Duration::from_millis).into_iter().find(|work| {
            let Some(sampler) = PerfSampler::start(SampleTarget::Thread(tid)) else {
                assert_eq!(available_perf_event(), None, "perf is there");
                return true;
            };
            let end = ran() + work.as_nanos() as u64;
            let mut sum = 0_u64;
            while ran() < end {
                for _ in 0..1_000_000 {
                    sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
                }
            }
            let samples = sampler.stop();
            assert!(samples.windows(2).all(|two| two[0].at_ns <= two[1].at_ns));
            samples.len() > 20
        });
        assert!(seen.is_some(), "perf sees nothing of a thread that works");
    }
}
