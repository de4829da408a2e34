//! Tells collectors of IPFIX which addresses and ports stand for whom (RFC 8158), over UDP.

use crate::setup::wall;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use usher_concentrator::config::{File, IpfixTable, NatWord};
use usher_concentrator::track::{Begin, Translated};
use usher_core::{Instant, WallTime};
use usher_ipfix::{Exporter, ExporterConfig, NatEvent, NatRecord, Subscriber};

/// Records that wait, at most: all hosts come at once after a loss of power.
const WAITING: usize = 1 << 16;
/// How long a record waits for others to go with it.
const TOGETHER: Duration = Duration::from_millis(100);

/// What stands for hosts outside that have no block of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outside {
    /// They themselves.
    Same,
    /// One address.
    Address(Ipv4Addr),
    /// Nobody knows but the kernel: its connections are told one by one.
    Unknown,
}

/// Tells collectors.
#[derive(Clone)]
pub(super) struct Ipfix {
    records: SyncSender<NatRecord>,
    outside: Outside,
    counted: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl std::fmt::Debug for Ipfix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipfix").field("outside", &self.outside).finish_non_exhaustive()
    }
}

impl Ipfix {
    /// Begins to tell those that a file names; `None`: it names none.
    pub(super) fn start(file: &File) -> io::Result<Option<Self>> {
        let Some(table) = file.tracking.as_ref().and_then(|tracking| tracking.ipfix.as_ref()) else {
            return Ok(None);
        };
        let shared = file.ident.as_ref().map_or(&[][..], |ident| &ident.masquerade);
        let outside = match (file.data.nat, shared) {
            (NatWord::Masquerade, [IpAddr::V4(one)]) => Outside::Address(*one),
            (NatWord::Masquerade, _) => Outside::Unknown,
            _ => Outside::Same,
        };
        let sockets = table.collectors.iter().map(connected).collect::<io::Result<Vec<_>>>()?;
        let (records, receiver) = sync_channel(WAITING);
        let counted = Arc::<Mutex<BTreeMap<String, u64>>>::default();
        let exporter = Exporter::new(config(table));
        let counts = counted.clone();
        let run = move || export(&receiver, exporter, &sockets, &counts);
        std::thread::Builder::new().name("usher-ipfix".to_owned()).spawn(run)?;
        for address in &table.collectors {
            tracing::info!(%address, "IPFIX collector");
        }
        Ok(Some(Self { records, outside, counted }))
    }

    /// A session begins or ends.
    pub(super) fn session(&self, at: WallTime, begins: bool, session: &Begin) {
        let Some(inside) = session.ipv4 else { return };
        let station = station(&session.station);
        let subscriber = Subscriber { user: session.user.clone().into_bytes(), station };
        let event = match (session.block, self.outside) {
            (Some(block), _) => NatEvent::Block {
                inside,
                outside: block.address,
                ports: (block.first, block.last),
                subscriber,
            },
            (None, Outside::Same) => NatEvent::Address { inside, outside: inside, subscriber },
            (None, Outside::Address(outside)) => NatEvent::Address { inside, outside, subscriber },
            (None, Outside::Unknown) => return,
        };
        self.tell(NatRecord { at, begins, event });
    }

    /// A connection is translated, or no longer.
    pub(super) fn connection(&self, at: WallTime, begins: bool, one: Translated) {
        let Translated { protocol, inside, outside } = one;
        self.tell(NatRecord { at, begins, event: NatEvent::Session { protocol, inside, outside } });
    }

    fn tell(&self, record: NatRecord) {
        if self.records.try_send(record).is_err() {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            *counted.entry("ipfix_not_taken".to_owned()).or_default() += 1;
        }
    }

    /// What it did.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The address that the log has as `02:00:00:00:01:01`.
fn station(text: &str) -> [u8; 6] {
    let mut octets = [0; 6];
    for (octet, pair) in octets.iter_mut().zip(text.split(':')) {
        *octet = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    octets
}

fn connected(address: &SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

fn config(table: &IpfixTable) -> ExporterConfig {
    let longest = usize::from(table.message);
    ExporterConfig { domain: table.domain, longest, refresh: table.refresh.get() }
}

/// Makes messages of records, and sends them, until nobody tells any.
fn export(
    records: &Receiver<NatRecord>,
    mut exporter: Exporter,
    sockets: &[UdpSocket],
    counted: &Mutex<BTreeMap<String, u64>>,
) {
    let begun = std::time::Instant::now();
    let now = || Instant::from_nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut not_sent = 0_u64;
    loop {
        let due = exporter.next().map(|due| Duration::from_nanos(due.since(now()).as_nanos()));
        match records.recv_timeout(due.unwrap_or(Duration::from_secs(3600))) {
            Ok(first) => {
                exporter.record(now(), wall(), &first);
                let until = std::time::Instant::now() + TOGETHER;
                let left = || until.saturating_duration_since(std::time::Instant::now());
                // Messages go as they are full; only the last one waits for more.
                while let Ok(record) = records.recv_timeout(left()) {
                    exporter.record(now(), wall(), &record);
                    send(&mut exporter, sockets, &mut not_sent);
                }
                exporter.flush(wall());
            }
            Err(RecvTimeoutError::Timeout) => exporter.refresh(now(), wall()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        send(&mut exporter, sockets, &mut not_sent);
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.extend(exporter.counters.iter().map(|(name, n)| (name.to_owned(), n)));
        counted.insert("ipfix_not_sent".to_owned(), not_sent);
    }
}

/// Sends what is ready to each collector. What one does not get it misses: its sequence numbers say so (RFC 7011 §10.3.2).
fn send(exporter: &mut Exporter, sockets: &[UdpSocket], not_sent: &mut u64) {
    while let Some(message) = exporter.poll() {
        for socket in sockets {
            if let Err(error) = socket.send(&message) {
                *not_sent += 1;
                tracing::debug!(%error, "a message of IPFIX was not sent");
            }
        }
    }
}
