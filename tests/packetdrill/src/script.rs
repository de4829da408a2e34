//! A parsed script. Numbers are as written, without knowledge of sockets or time.

use std::net::IpAddr;

/// A whole script.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// `--name=value` at its beginning. The value may be empty.
    pub options: Vec<(String, String)>,
    /// Commands before the first event.
    pub set_up: Vec<String>,
    /// The events in order.
    pub events: Vec<ScriptEvent>,
}

impl Script {
    /// Returns the value of an option, the last one if repeated.
    pub fn option_value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptEvent {
    /// Its first line, from 1.
    pub line: u32,
    /// Its time.
    pub time: EventTime,
    /// Its action.
    pub action: ScriptAction,
}

/// The time of an event, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventTime {
    /// `*`: any time.
    Any,
    /// `1.5` since the script's start, or `+1.5` since the previous event.
    Exact {
        /// True if counted from the previous event.
        relative: bool,
        /// The time.
        offset: u64,
        /// The latest return of a blocking call (`1.0...1.5`).
        until: Option<u64>,
    },
    /// `1.0
    /// 1.5`: a time in this range.
    Between {
        /// True if counted from the previous event.
        relative: bool,
        /// The earliest.
        from: u64,
        /// The latest.
        to: u64,
    },
}

/// The action of an event.
#[derive(Clone, PartialEq, Debug)]
pub enum ScriptAction {
    /// A packet is injected (`<`) or expected (`>`).
    Packet(ScriptPacket),
    /// The application makes a system call.
    Call(SystemCall),
    /// A shell command, between backticks.
    Command(String),
    /// Code about the connection's state, between `%{` and `}%`.
    Code(String),
}

/// A packet.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptPacket {
    /// True if the host under test must send it.
    pub outbound: bool,
    /// The words in brackets before it: `ect0`, `noecn`, `tos`, ...
    pub ip: Vec<String>,
    /// Source and destination address, if given.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The UDP ports, if it is encapsulated in UDP.
    pub udp: Option<UdpPorts>,
    /// Its payload.
    pub body: PacketBody,
}

/// The UDP ports around a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpPorts {
    /// The source port.
    pub source: u16,
    /// The destination port.
    pub destination: u16,
}

/// An ICMP error about a segment of the host under test.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IcmpError {
    /// Its type in packetdrill's words, such as `unreachable`.
    pub kind: String,
    /// Its code, such as `port_unreachable`. Empty if there is none.
    pub code: String,
    /// The first sequence number of the segment in it.
    pub seq: u32,
    /// The UDP ports around that segment.
    pub udp: Option<UdpPorts>,
}

/// The payload of a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum PacketBody {
    /// A TCP segment.
    Tcp(ScriptSegment),
    /// An SCTP packet.
    Sctp(ScriptSctpPacket),
    /// An ICMP error.
    Icmp(IcmpError),
    /// The name of another protocol. The rest of the line is ignored.
    Other(String),
}

/// A TCP segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptSegment {
    /// Control bits in their wire positions.
    pub flags: u8,
    /// The sequence number. `None`: any.
    pub seq: Option<u32>,
    /// True if the number is the one on the wire, not relative to the initial one.
    pub absolute: bool,
    /// Bytes of payload.
    pub len: u32,
    /// The acknowledgement number, if given.
    pub ack: Option<u32>,
    /// The window field, if given.
    pub window: Option<u16>,
    /// The urgent pointer, if given.
    pub urgent: Option<u16>,
    /// The options in order. `None`: any.
    pub options: Option<Vec<TcpOption>>,
}

/// A TCP option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// End of the list.
    End,
    /// Padding.
    Nop,
    /// Maximum segment size.
    Mss(u16),
    /// Window scale.
    WindowScale(u8),
    /// SACK permitted.
    SackPermitted,
    /// SACK blocks.
    Sack(Vec<(u32, u32)>),
    /// Timestamp value and echo.
    Timestamp(u32, u32),
    /// Fast Open, with a cookie or empty.
    FastOpen(Vec<u8>),
    /// An unknown option, as written.
    Other(String),
}

/// An SCTP packet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScriptSctpPacket {
    /// The verification tag, if given.
    pub tag: Option<u64>,
    /// True if its checksum must be wrong.
    pub bad_checksum: bool,
    /// Its chunks.
    pub chunks: Vec<ScriptItem>,
    /// Raw bytes instead of chunks.
    pub raw: Option<Vec<u8>>,
}

/// A chunk, parameter, cause or field: `NAME[...]`, `key=value` or `...`.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptItem {
    /// The key before `=`. May be empty.
    pub key: String,
    /// The value.
    pub value: ScriptValue,
}

/// A value: an argument of a call or a field of a chunk.
#[derive(Clone, PartialEq, Debug)]
pub enum ScriptValue {
    /// `...`: anything.
    Any,
    /// A number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text between quotes.
    Text(String),
    /// A word, or several joined by `|` or `+`, or a name with arguments in parentheses.
    Word(String),
    /// `a | b`: flags, each a word or number.
    Flags(Vec<ScriptValue>),
    /// `a:b`.
    Range(i64, i64),
    /// `[a, b]`.
    List(Vec<ScriptValue>),
    /// `{a=1, b=2}`, also without keys.
    Struct(Vec<ScriptItem>),
    /// `name(a, b)`.
    Apply(String, Vec<ScriptValue>),
    /// `NAME[a=1, b=2]`.
    Node(String, Vec<ScriptItem>),
}

impl ScriptValue {
    /// Returns the number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }
}

/// A system call.
#[derive(Clone, PartialEq, Debug)]
pub struct SystemCall {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub args: Vec<ScriptValue>,
    /// The expected result.
    pub result: ScriptValue,
    /// The name of the expected error, if it must fail.
    pub error: Option<String>,
}
