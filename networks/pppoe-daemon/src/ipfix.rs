//! Exports the mapping of addresses and ports to subscribers over IPFIX (RFC 8158) and UDP.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use usher_concentrator::config::{ConcentratorConfigFile, IpfixTable, NatModeName};
use usher_concentrator::track::{SessionStart, TranslatedConnection};
use usher_core::{Instant, WallTime};
use usher_ipfix::{ExporterConfig, IpfixExporter, NatEvent, NatRecord, SubscriberInfo};
use usher_service::setup::wall_time;

/// The limit of pending records. After a power loss all hosts log in at once.
const WAITING: usize = 1 << 16;
/// The longest time that a record waits for others to share its message.
const TOGETHER: Duration = Duration::from_millis(100);

/// The outside address of hosts without a port block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NatOutsideAddress {
    /// The host's own address.
    Same,
    /// This address.
    Address(Ipv4Addr),
    /// Only the kernel knows it: each connection is reported.
    Unknown,
}

/// Sends records to collectors.
#[derive(Clone)]
pub(super) struct IpfixSender {
    records: SyncSender<NatRecord>,
    outside: NatOutsideAddress,
    counted: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl std::fmt::Debug for IpfixSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipfix").field("outside", &self.outside).finish_non_exhaustive()
    }
}

impl IpfixSender {
    /// Starts the export to the configured collectors. `None`: there are none.
    pub(super) fn start(file: &ConcentratorConfigFile) -> io::Result<Option<Self>> {
        let Some(table) = file.tracking.as_ref().and_then(|tracking| tracking.ipfix.as_ref()) else {
            return Ok(None);
        };
        let shared = file.ident.as_ref().map_or(&[][..], |ident| &ident.masquerade);
        let outside = match (file.data.nat, shared) {
            (NatModeName::Masquerade, [IpAddr::V4(one)]) => NatOutsideAddress::Address(*one),
            (NatModeName::Masquerade, _) => NatOutsideAddress::Unknown,
            _ => NatOutsideAddress::Same,
        };
        let sockets = table.collectors.iter().map(connect_collector).collect::<io::Result<Vec<_>>>()?;
        let (records, receiver) = sync_channel(WAITING);
        let counted = Arc::<Mutex<BTreeMap<String, u64>>>::default();
        let exporter = IpfixExporter::new(exporter_config(table));
        let counts = counted.clone();
        let run = move || export_records(&receiver, exporter, &sockets, &counts);
        std::thread::Builder::new().name("usher-ipfix".to_owned()).spawn(run)?;
        for address in &table.collectors {
            tracing::info!(%address, "IPFIX collector");
        }
        Ok(Some(Self { records, outside, counted }))
    }

    /// Reports the start or end of a session.
    pub(super) fn report_session(&self, at: WallTime, begins: bool, session: &SessionStart) {
        let Some(inside) = session.ipv4 else { return };
        let station = parse_station(&session.station);
        let subscriber = SubscriberInfo { user: session.user.clone().into_bytes(), station };
        let event = match (session.block, self.outside) {
            (Some(block), _) => NatEvent::Block {
                inside,
                outside: block.address,
                ports: (block.first, block.last),
                subscriber,
            },
            (None, NatOutsideAddress::Same) => NatEvent::Address { inside, outside: inside, subscriber },
            (None, NatOutsideAddress::Address(outside)) => NatEvent::Address { inside, outside, subscriber },
            (None, NatOutsideAddress::Unknown) => return,
        };
        self.send_record(NatRecord { occurred_at: at, is_start: begins, event });
    }

    /// Reports the start or end of a translation.
    pub(super) fn report_connection(&self, at: WallTime, begins: bool, one: TranslatedConnection) {
        let TranslatedConnection { protocol, inside, outside } = one;
        self.send_record(NatRecord {
            occurred_at: at,
            is_start: begins,
            event: NatEvent::Session { protocol, inside, outside },
        });
    }

    fn send_record(&self, record: NatRecord) {
        if self.records.try_send(record).is_err() {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            *counted.entry("ipfix_not_taken".to_owned()).or_default() += 1;
        }
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Parses an address of the log, such as `02:00:00:00:01:01`.
fn parse_station(text: &str) -> [u8; 6] {
    let mut octets = [0; 6];
    for (octet, pair) in octets.iter_mut().zip(text.split(':')) {
        *octet = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    octets
}

fn connect_collector(address: &SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

fn exporter_config(table: &IpfixTable) -> ExporterConfig {
    let longest = usize::from(table.message);
    ExporterConfig { domain: table.domain, longest, refresh: table.refresh.get() }
}

/// Encodes records into messages and sends them, until the sending side is dropped.
fn export_records(
    records: &Receiver<NatRecord>,
    mut exporter: IpfixExporter,
    sockets: &[UdpSocket],
    counted: &Mutex<BTreeMap<String, u64>>,
) {
    let begun = std::time::Instant::now();
    let now = || Instant::from_nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut not_sent = 0_u64;
    loop {
        let due = exporter
            .next_template_refresh()
            .map(|due| Duration::from_nanos(due.duration_since(now()).as_nanos()));
        match records.recv_timeout(due.unwrap_or(Duration::from_secs(3600))) {
            Ok(first) => {
                exporter.add_nat_record(now(), wall_time(), &first);
                let until = std::time::Instant::now() + TOGETHER;
                let left = || until.saturating_duration_since(std::time::Instant::now());
                // A full message is sent at once. Only the last, incomplete message waits for more records.
                while let Ok(record) = records.recv_timeout(left()) {
                    exporter.add_nat_record(now(), wall_time(), &record);
                    send_messages(&mut exporter, sockets, &mut not_sent);
                }
                exporter.flush(wall_time());
            }
            Err(RecvTimeoutError::Timeout) => exporter.refresh_templates(now(), wall_time()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        send_messages(&mut exporter, sockets, &mut not_sent);
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.extend(exporter.counters.iter().map(|(name, n)| (name.to_owned(), n)));
        counted.insert("ipfix_not_sent".to_owned(), not_sent);
    }
}

/// Sends the ready messages to each collector. A collector detects a loss by the sequence numbers (RFC 7011 §10.3.2).
fn send_messages(exporter: &mut IpfixExporter, sockets: &[UdpSocket], not_sent: &mut u64) {
    while let Some(message) = exporter.poll() {
        for socket in sockets {
            if let Err(error) = socket.send(&message) {
                *not_sent += 1;
                tracing::debug!(%error, "IPFIX message not sent");
            }
        }
    }
}
