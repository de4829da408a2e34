//! What a script says, as data. Numbers stand as written: nothing here knows sockets or time.

use std::net::IpAddr;

/// A whole script.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// `--name=value` at its head; the value is empty where there is none.
    pub options: Vec<(String, String)>,
    /// Commands that stand before the first event.
    pub set_up: Vec<String>,
    /// What happens, in its order.
    pub events: Vec<ScriptEvent>,
}

impl Script {
    /// The value of an option, the last where it stands twice.
    pub fn option_value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptEvent {
    /// The line it begins in; the first is 1.
    pub line: u32,
    /// When.
    pub time: EventTime,
    /// What.
    pub action: ScriptAction,
}

/// When an event happens; microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventTime {
    /// `*`: whenever it comes.
    Any,
    /// `1.5` since the script's begin, or `+1.5` since the end of the event before.
    Exact {
        /// Counted from the event before.
        relative: bool,
        /// How late.
        offset: u64,
        /// When a call that blocks comes back at the latest (`1.0...1.5`).
        until: Option<u64>,
    },
    /// `1.0~1.5`: at some time between.
    Between {
        /// Counted from the event before.
        relative: bool,
        /// The earliest.
        from: u64,
        /// The latest.
        to: u64,
    },
}

/// What happens.
#[derive(Clone, PartialEq, Debug)]
pub enum ScriptAction {
    /// A packet is injected (`<`) or expected (`>`).
    Packet(ScriptPacket),
    /// The application makes a system call.
    Call(SystemCall),
    /// A command of the shell, between backticks.
    Command(String),
    /// Code about the connection's state, between `%{` and `}%`.
    Code(String),
}

/// A packet.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptPacket {
    /// True for one that the tested side must send.
    pub outbound: bool,
    /// What stands in brackets before it, word by word: `ect0`, `noecn`, `tos`, ...
    pub ip: Vec<String>,
    /// Source and destination address, if they are said.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// UDP's ports, where it goes in UDP.
    pub udp: Option<UdpPorts>,
    /// What it carries.
    pub body: PacketBody,
}

/// The ports of UDP around a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpPorts {
    /// The sender's.
    pub source: u16,
    /// The receiver's.
    pub destination: u16,
}

/// An ICMP error about a segment that the tested side sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IcmpError {
    /// Its type, `unreachable`, and code, `port_unreachable`, in packetdrill's words.
    pub kind: String,
    /// See `kind`; empty where there is none.
    pub code: String,
    /// First sequence number of the segment that it is about.
    pub seq: u32,
    /// UDP's ports around that segment.
    pub udp: Option<UdpPorts>,
}

/// What a packet carries.
#[derive(Clone, PartialEq, Debug)]
pub enum PacketBody {
    /// A TCP segment.
    Tcp(ScriptSegment),
    /// An SCTP packet.
    Sctp(ScriptSctpPacket),
    /// An ICMP error.
    Icmp(IcmpError),
    /// Another protocol, which is read over to the end of its line; its name.
    Other(String),
}

/// A TCP segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptSegment {
    /// Control bits in their wire positions.
    pub flags: u8,
    /// Sequence number; `None` where any will do.
    pub seq: Option<u32>,
    /// It stands as it is on the wire, not counted from the connection's first.
    pub absolute: bool,
    /// Bytes of payload.
    pub len: u32,
    /// Acknowledgement number, if it is said.
    pub ack: Option<u32>,
    /// Window field, if it is said.
    pub window: Option<u16>,
    /// Urgent pointer, if it is said.
    pub urgent: Option<u16>,
    /// Options in their order; `None` where any will do.
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
    /// Fast Open: a cookie, or none.
    FastOpen(Vec<u8>),
    /// One that is not known here, as it stands.
    Other(String),
}

/// An SCTP packet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScriptSctpPacket {
    /// Verification tag, if it is said.
    pub tag: Option<u64>,
    /// Its checksum is to be wrong.
    pub bad_checksum: bool,
    /// Its chunks.
    pub chunks: Vec<ScriptItem>,
    /// Instead of chunks, bytes.
    pub raw: Option<Vec<u8>>,
}

/// A chunk, parameter, cause or field: `NAME[...]`, `key=value` or `...`.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptItem {
    /// The key before `=`, or empty.
    pub key: String,
    /// What stands there.
    pub value: ScriptValue,
}

/// A value, of an argument of a call or a field of a chunk.
#[derive(Clone, PartialEq, Debug)]
pub enum ScriptValue {
    /// `...`: whatever there is.
    Any,
    /// A number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text between quotes.
    Text(String),
    /// A word, or several joined by `|` or `+`, or what stands before parentheses with its arguments.
    Word(String),
    /// `a | b`: flags, each a word or number.
    Flags(Vec<ScriptValue>),
    /// `a:b`.
    Range(i64, i64),
    /// `[a, b]`.
    List(Vec<ScriptValue>),
    /// `{a=1, b=2}`, or without keys.
    Struct(Vec<ScriptItem>),
    /// `name(a, b)`.
    Apply(String, Vec<ScriptValue>),
    /// `NAME[a=1, b=2]`.
    Node(String, Vec<ScriptItem>),
}

impl ScriptValue {
    /// The number, where it is one.
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
    /// What it must return.
    pub result: ScriptValue,
    /// The error's name, where it must fail.
    pub error: Option<String>,
}
