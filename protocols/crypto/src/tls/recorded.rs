//! Handshakes replayed by their lengths, for sweeps of many thousand logins.

use super::{
    ClientConfig, MAX_APPLICATION, ServerConfig, TlsClientEngine, TlsEngine, TlsError, TlsOperationCounts,
    TlsServerEngine, TlsSessionMetadata, TlsVersion,
};
use crate::fault::{Alert, TlsFault};
use std::sync::Arc;
use usher_core::codec::{OctetReader, OctetWriter};

/// An end of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsHandshakeSide {
    /// The client.
    Client,
    /// The server.
    Server,
}

impl TlsHandshakeSide {
    fn opposite(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The octets that one end sends before it waits for the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsHandshakeFlight {
    /// The sender.
    from: TlsHandshakeSide,
    /// Record headers as recorded, with filler for the rest.
    bytes: Vec<u8>,
    /// The work of the receiver when it reads the flight.
    work: TlsOperationCounts,
    /// True if it completes the receiver's handshake; an error if the receiver fails.
    after: Result<bool, TlsError>,
}

impl TlsHandshakeFlight {
    /// The sender.
    #[must_use]
    pub fn sender(&self) -> TlsHandshakeSide {
        self.from
    }
    /// The number of octets, with the record headers.
    #[must_use]
    pub fn octet_count(&self) -> usize {
        self.bytes.len()
    }
    /// The public-key operations of its receiver.
    #[must_use]
    pub fn receiver_work(&self) -> TlsOperationCounts {
        self.work
    }
}

/// A recorded handshake: its flights in order, up to the last tickets or the last alert.
///
/// It omits application data, whose length follows from the version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsHandshakeRecording {
    version: TlsVersion,
    resumed: bool,
    flights: Vec<TlsHandshakeFlight>,
    client_chain: Vec<Vec<u8>>,
    server_chain: Vec<Vec<u8>>,
}

impl TlsHandshakeRecording {
    /// The flights in order.
    #[must_use]
    pub fn flights(&self) -> &[TlsHandshakeFlight] {
        &self.flights
    }
    /// The negotiated version, or the offered one if the handshake failed earlier.
    #[must_use]
    pub fn version(&self) -> TlsVersion {
        self.version
    }
    /// True if it resumed an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }
    /// True if both ends completed the handshake.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.flights.iter().all(|flight| flight.after.is_ok())
    }
}

/// The maximum number of certificates in a decoded chain.
const MAX_CHAIN: usize = 16;

impl TlsHandshakeRecording {
    /// Encodes the recording for [`decode`](Self::decode), in a program that can replay handshakes but not run them.
    /// `None`: one side failed, and the encoding has no reasons.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        let mut w = OctetWriter::new(&mut all);
        w.write_u8(u8::from(self.version == TlsVersion::Tls13)).write_u8(u8::from(self.resumed));
        w.write_u8(self.flights.len() as u8);
        for flight in &self.flights {
            let complete = *flight.after.as_ref().ok()?;
            let work = flight.work;
            w.write_u8(u8::from(flight.from == TlsHandshakeSide::Server)).write_u8(u8::from(complete));
            w.write_u32(work.sign).write_u32(work.verify).write_u32(work.key_exchange);
            let headers = tls_record_headers(&flight.bytes);
            w.write_u8(u8::try_from(headers.len()).ok()?);
            for header in headers {
                w.write_bytes(header);
            }
        }
        for chain in [&self.client_chain, &self.server_chain] {
            w.write_u8(u8::try_from(chain.len()).ok()?);
            for certificate in chain {
                w.write_u24(u32::try_from(certificate.len()).ok()?).write_bytes(certificate);
            }
        }
        Some(all)
    }

    /// Decodes the output of [`encode`](Self::encode). `None`: the octets are invalid.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = OctetReader::new(bytes);
        let version = if r.read_u8().ok()? == 1 { TlsVersion::Tls13 } else { TlsVersion::Tls12 };
        let resumed = r.read_u8().ok()? == 1;
        let count = usize::from(r.read_u8().ok()?);
        let mut flights = Vec::new();
        for number in 0..count.min(MAX_FLIGHTS) {
            let from =
                if r.read_u8().ok()? == 1 { TlsHandshakeSide::Server } else { TlsHandshakeSide::Client };
            let after = Ok(r.read_u8().ok()? == 1);
            let [sign, verify, key_exchange] = [r.read_u32().ok()?, r.read_u32().ok()?, r.read_u32().ok()?];
            let mut bytes = Vec::new();
            for _ in 0..r.read_u8().ok()? {
                let header = r.read_array::<HEADER>().ok()?;
                bytes.extend_from_slice(&header);
                bytes.resize(bytes.len() + usize::from(u16::from_be_bytes([header[3], header[4]])), 0);
            }
            overwrite_record_contents(&mut bytes, number);
            flights.push(TlsHandshakeFlight {
                from,
                bytes,
                work: TlsOperationCounts { sign, verify, key_exchange },
                after,
            });
        }
        let mut chain = || {
            let count = usize::from(r.read_u8().ok()?);
            let mut one = || {
                let length = r.read_u24().ok()? as usize;
                Some(r.read_bytes(length).ok()?.to_vec())
            };
            (0..count.min(MAX_CHAIN)).map(|_| one()).collect::<Option<Vec<_>>>()
        };
        let (client_chain, server_chain) = (chain()?, chain()?);
        r.is_empty().then_some(Self { version, resumed, flights, client_chain, server_chain })
    }
}

/// Returns the headers of a flight's records.
fn tls_record_headers(flight: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut all) = (flight, Vec::new());
    while let Some((header, after)) = rest.split_at_checked(HEADER) {
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        all.push(header);
        rest = after.get(length..).unwrap_or_default();
    }
    all
}

/// The maximum number of flights in a handshake: four of TLS 1.2, tickets, alerts, and a margin.
const MAX_FLIGHTS: usize = 16;

/// The octets of a record header (RFC 8446 section 5.1).
const HEADER: usize = 5;

/// Runs a handshake in memory and records its lengths. A failed handshake is recorded up to its alert. With resumption,
/// the first handshake of the two configurations is a full one, and the next one resumes it.
///
/// # Errors
/// [`TlsError::Failed`] if the engines do not start or do not finish.
pub fn record_handshake(
    client: &ClientConfig,
    server: &ServerConfig,
) -> Result<TlsHandshakeRecording, TlsError> {
    let offered = client.versions.max;
    let shown = |to: &dyn TlsEngine| to.peer_chain().into_iter().map(<[u8]>::to_vec).collect();
    let mut client = TlsClientEngine::new(client)?;
    let mut server = TlsServerEngine::new_for_session_purpose(server, 0)?;
    let mut flights = Vec::new();
    let mut from = TlsHandshakeSide::Client;
    loop {
        let (sender, receiver): (&mut dyn TlsEngine, &mut dyn TlsEngine) = match from {
            TlsHandshakeSide::Client => (&mut client, &mut server),
            TlsHandshakeSide::Server => (&mut server, &mut client),
        };
        let mut bytes = Vec::new();
        sender.write_tls(&mut bytes);
        if bytes.is_empty() {
            break;
        }
        if flights.len() == MAX_FLIGHTS {
            return Err(TlsError::Failed(TlsFault::Misbehaved, "the handshake has too many flights".into()));
        }
        let after = receiver.read_tls(&bytes).map(|()| !receiver.is_handshaking());
        overwrite_record_contents(&mut bytes, flights.len());
        flights.push(TlsHandshakeFlight { from, bytes, work: receiver.take_work(), after });
        from = from.opposite();
    }
    // Stores the session, so that the next recording can resume it.
    server.keep_session(TlsSessionMetadata { subject: Vec::new(), credential: [0; 32], data: Vec::new() });
    Ok(TlsHandshakeRecording {
        version: server.version().unwrap_or(offered),
        resumed: server.is_resumed(),
        flights,
        client_chain: shown(&server),
        server_chain: shown(&client),
    })
}

/// Replaces everything except record headers by filler that depends only on the position.
fn overwrite_record_contents(flight: &mut [u8], number: usize) {
    let mut rest = flight;
    let mut state = 0x9e37_79b9_u32 ^ (number as u32);
    while rest.len() > HEADER {
        let length = usize::from(u16::from_be_bytes([rest[3], rest[4]]));
        let (record, after) = rest.split_at_mut((HEADER + length).min(rest.len()));
        for byte in &mut record[HEADER..] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        rest = after;
    }
}

/// One end of a recorded handshake, with the recorded lengths and work but without cryptography.
///
/// It accepts exactly the octets of the other end. Different octets end the handshake with an alert, as in a real one.
/// Work counts when a flight is complete.
///
/// It has no secrets: keying material depends only on label, context and the version of the recording. Application data
/// is sent in clear.
#[derive(Clone)]
pub struct RecordedTls {
    recording: Arc<TlsHandshakeRecording>,
    side: TlsHandshakeSide,
    /// The index of the flight being received; none beyond the last.
    next: usize,
    /// The octets of that flight received so far.
    received: usize,
    /// The octets of an incomplete application record.
    partial: Vec<u8>,
    out: Vec<u8>,
    application: Vec<u8>,
    complete: bool,
    error: Option<TlsError>,
    work: TlsOperationCounts,
}

const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;
const BAD_RECORD_MAC: u8 = 20;
const FATAL: u8 = 2;

/// The maximum application data of a record (RFC 8446 section 5.1).
const MAX_PLAINTEXT: usize = 1 << 14;

impl RecordedTls {
    /// The client of a recorded handshake.
    #[must_use]
    pub fn for_client(recording: Arc<TlsHandshakeRecording>) -> Self {
        Self::new(recording, TlsHandshakeSide::Client)
    }

    /// The server of a recorded handshake.
    #[must_use]
    pub fn for_server(recording: Arc<TlsHandshakeRecording>) -> Self {
        Self::new(recording, TlsHandshakeSide::Server)
    }

    fn new(recording: Arc<TlsHandshakeRecording>, side: TlsHandshakeSide) -> Self {
        let mut this = Self {
            recording,
            side,
            next: 0,
            received: 0,
            partial: Vec::new(),
            out: Vec::new(),
            application: Vec::new(),
            complete: false,
            error: None,
            work: TlsOperationCounts::default(),
        };
        this.send_due_flights();
        this
    }

    /// Sends the flights that are this side's turn.
    fn send_due_flights(&mut self) {
        while let Some(flight) = self.recording.flights.get(self.next)
            && flight.from == self.side
        {
            self.out.extend_from_slice(&flight.bytes);
            self.next += 1;
        }
    }

    fn fail_with_alert(&mut self, fault: TlsFault, why: &str) -> TlsError {
        self.out.extend_from_slice(&[ALERT, 3, 3, 0, 2, FATAL, BAD_RECORD_MAC]);
        TlsError::Failed(fault, why.into())
    }

    fn read_flights(&mut self, mut bytes: &[u8]) -> Result<(), TlsError> {
        let recording = self.recording.clone();
        while let Some(flight) = recording.flights.get(self.next)
            && !bytes.is_empty()
        {
            let wanted = &flight.bytes[self.received..];
            let (now, later) = bytes.split_at(bytes.len().min(wanted.len()));
            if now != &wanted[..now.len()] {
                if let [ALERT, _, _, 0, 2, FATAL, alert] = *bytes {
                    return Err(TlsError::AlertReceived(Alert(alert)));
                }
                return Err(self
                    .fail_with_alert(TlsFault::Undecipherable, "the flight differs from the recorded one"));
            }
            bytes = later;
            self.received += now.len();
            if self.received < flight.bytes.len() {
                break;
            }
            self.received = 0;
            self.next += 1;
            self.work += flight.work;
            let after = flight.after.clone();
            self.send_due_flights();
            self.complete |= after?;
        }
        self.read_application(bytes)
    }

    fn read_application(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        self.partial.extend_from_slice(bytes);
        let partial = core::mem::take(&mut self.partial);
        let (before, after) = record_overhead(self.recording.version);
        let mut rest = partial.as_slice();
        while let [kind, _, _, high, low, ..] = *rest {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length > MAX_PLAINTEXT + before + after {
                return Err(self.fail_with_alert(TlsFault::Malformed, "a record is longer than allowed"));
            }
            let Some(payload) = rest.get(HEADER..HEADER + length) else { break };
            match (kind, payload) {
                (ALERT, [_, alert]) => return Err(TlsError::AlertReceived(Alert(*alert))),
                (APPLICATION_DATA, _) if length >= before + after && self.complete => {
                    self.application.extend_from_slice(&payload[before..length - after]);
                    if self.application.len() > MAX_APPLICATION {
                        return Err(
                            self.fail_with_alert(TlsFault::TooMuch, "application data exceeds the limit")
                        );
                    }
                }
                _ => return Err(self.fail_with_alert(TlsFault::Misbehaved, "expected application data")),
            }
            rest = &rest[HEADER + length..];
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }
}

/// Returns the octets that AES-128-GCM adds before and after the data of a record. TLS 1.2 has the explicit nonce and
/// the tag (RFC 5288 section 3); TLS 1.3 the content type and the tag (RFC 8446 section 5.2).
fn record_overhead(version: TlsVersion) -> (usize, usize) {
    match version {
        TlsVersion::Tls12 => (8, 16),
        TlsVersion::Tls13 => (0, 17),
    }
}

impl core::fmt::Debug for RecordedTls {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RecordedTls")
            .field("side", &self.side)
            .field("flight", &self.next)
            .field("complete", &self.complete)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl TlsEngine for RecordedTls {
    fn read_tls(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let result = self.read_flights(bytes);
        if let Err(error) = &result {
            self.error = Some(error.clone());
        }
        result
    }

    fn write_tls(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.out);
    }

    fn is_handshaking(&self) -> bool {
        !self.complete
    }

    fn export_keying_material(
        &self,
        label: &str,
        context: Option<&[u8]>,
        out: &mut [u8],
    ) -> Result<(), TlsError> {
        if !self.complete {
            return Err(TlsError::Handshaking);
        }
        let (given, context) = (u8::from(context.is_some()), context.unwrap_or_default());
        for (number, block) in (0_u64..).zip(out.chunks_mut(crate::digest::MD5_LEN)) {
            let parts = [&number.to_be_bytes()[..], &[self.recording.version as u8, given], label.as_bytes()];
            let digest = crate::digest::md5(&[parts[0], parts[1], parts[2], &[0], context]);
            block.copy_from_slice(&digest[..block.len()]);
        }
        Ok(())
    }

    fn write_application(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if !self.complete {
            return Err(TlsError::Handshaking);
        }
        let (before, after) = record_overhead(self.recording.version);
        for plain in bytes.chunks(MAX_PLAINTEXT) {
            let length = (before + plain.len() + after) as u16;
            self.out.extend_from_slice(&[APPLICATION_DATA, 3, 3]);
            self.out.extend_from_slice(&length.to_be_bytes());
            self.out.resize(self.out.len() + before, 0);
            self.out.extend_from_slice(plain);
            self.out.resize(self.out.len() + after, 0);
        }
        Ok(())
    }

    fn take_application(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.application);
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.peer_chain().first().copied()
    }

    fn peer_chain(&self) -> Vec<&[u8]> {
        let chain = match self.side {
            TlsHandshakeSide::Client => &self.recording.server_chain,
            TlsHandshakeSide::Server => &self.recording.client_chain,
        };
        chain.iter().filter(|_| self.complete).map(Vec::as_slice).collect()
    }

    fn version(&self) -> Option<TlsVersion> {
        // The server's first flight settles the version. It is the second flight of the handshake, after the client's.
        let known = match self.side {
            TlsHandshakeSide::Client => self.next > 1,
            TlsHandshakeSide::Server => self.next > 0,
        };
        known.then_some(self.recording.version)
    }

    fn is_resumed(&self) -> bool {
        self.recording.resumed && self.complete
    }

    fn error(&self) -> Option<&TlsError> {
        self.error.as_ref()
    }

    fn take_work(&mut self) -> TlsOperationCounts {
        core::mem::take(&mut self.work)
    }
}
