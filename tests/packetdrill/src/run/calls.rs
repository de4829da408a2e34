//! System calls, and what they give back.

use super::Stop;
use super::settings::Settings;
use super::tcp::Socket as TcpSocket;
use super::world::{File, Returned, Socket, World};
use crate::script::{Call, Item, Value};
use usher_core::Duration;
use usher_sim::Payload;
use usher_sim::sctp::{self, Message};

const O_NONBLOCK: i64 = 0x800;
const O_RDWR: i64 = 2;

/// Holds what a call gave back against the script.
pub(super) fn check(call: &Call, returned: &Returned) -> Result<(), Stop> {
    let alike = |e: &str| if e == "EWOULDBLOCK" { "EAGAIN".to_owned() } else { e.to_owned() };
    let good = match (returned, &call.result, &call.error) {
        (Returned::Blocks, ..) => false,
        (_, Value::Any, _) => true,
        (Returned::Error(is), Value::Int(-1), Some(wanted)) => alike(is) == alike(wanted),
        (Returned::Error(_), Value::Int(-1), None) => true,
        (Returned::Value(is), Value::Int(wanted), _) => is == wanted,
        _ => false,
    };
    if good {
        return Ok(());
    }
    let is = match returned {
        Returned::Value(n) => n.to_string(),
        Returned::Error(name) => format!("-1 {name}"),
        Returned::Blocks => "nothing: it blocks".to_owned(),
    };
    let wanted = match (&call.result, &call.error) {
        (Value::Int(n), Some(error)) => format!("{n} {error}"),
        (Value::Int(n), None) => n.to_string(),
        (other, _) => format!("{other:?}"),
    };
    Err(Stop::Diverges(format!("{}() gives {is}, not {wanted}", call.name)))
}

/// The value of a word that stands for a number.
fn word(name: &str) -> Option<i64> {
    Some(match name {
        "O_RDWR" => O_RDWR,
        "O_NONBLOCK" => O_NONBLOCK,
        "O_RDONLY" => 0,
        "MSG_PEEK" => 2,
        "MSG_DONTWAIT" => 0x40,
        "MSG_NOSIGNAL" => 0x4000,
        // RFC 2474, 4.2.2: class selectors.
        "IPTOS_DSCP_CS0" => 0,
        "IPTOS_DSCP_CS1" => 0x20,
        "IPTOS_DSCP_CS2" => 0x40,
        "IPTOS_DSCP_CS3" => 0x60,
        "IPTOS_DSCP_CS4" => 0x80,
        "IPTOS_DSCP_CS5" => 0xa0,
        "IPTOS_DSCP_CS6" => 0xc0,
        "IPTOS_DSCP_CS7" => 0xe0,
        _ => return None,
    })
}

/// A number, a word that stands for one, or several joined.
fn number(value: Option<&Value>) -> Result<i64, Stop> {
    match value {
        Some(Value::Int(n)) => Ok(*n),
        Some(Value::Word(name)) => {
            word(name).ok_or_else(|| Stop::Unsupported(format!("the constant {name}")))
        }
        Some(Value::Flags(values)) => {
            values.iter().try_fold(0, |all, v| number(Some(v)).map(|bits| all | bits))
        }
        Some(Value::List(values)) if values.len() == 1 => number(values.first()),
        _ => Err(Stop::Unsupported("an argument that is no number".to_owned())),
    }
}
fn name_of(value: Option<&Value>) -> &str {
    match value {
        Some(Value::Word(name)) => name,
        _ => "",
    }
}
fn count(value: Option<&Value>) -> Result<u32, Stop> {
    number(value)?.try_into().map_err(|_| Stop::Suspect("a length is negative or beyond 4 GiB".to_owned()))
}

/// A state's name in the sockets' API.
fn sctp_state(state: sctp::State) -> &'static str {
    match state {
        sctp::State::Closed => "CLOSED",
        sctp::State::CookieWait => "COOKIE_WAIT",
        sctp::State::CookieEchoed => "COOKIE_ECHOED",
        sctp::State::Established => "ESTABLISHED",
        sctp::State::ShutdownPending => "SHUTDOWN_PENDING",
        sctp::State::ShutdownSent => "SHUTDOWN_SENT",
        sctp::State::ShutdownReceived => "SHUTDOWN_RECEIVED",
        sctp::State::ShutdownAckSent => "SHUTDOWN_ACK_SENT",
    }
}

impl World {
    /// Makes a call; `again` where it is one that blocked before.
    pub(super) fn call(&mut self, call: &Call, again: bool) -> Result<Returned, Stop> {
        let returned = self.dispatch(call, again);
        self.collect();
        returned
    }

    fn dispatch(&mut self, call: &Call, again: bool) -> Result<Returned, Stop> {
        let args = &call.args;
        if call.name == "socket" {
            return self.socket(args);
        }
        let fd = number(args.first())?;
        let Some(&file) = self.files.get(&fd) else { return Ok(Returned::Error("EBADF")) };
        Ok(match call.name.as_str() {
            "bind" => Returned::Value(0),
            "listen" => {
                match file.socket {
                    Socket::Tcp(i) => self.tcp.sockets[i].listening = true,
                    Socket::Sctp(i) => self.sctp.sockets[i].listening = true,
                }
                Returned::Value(0)
            }
            "connect" | "sctp_connectx" => self.connect(file, again, call.name == "sctp_connectx"),
            "accept" | "accept4" => self.accept(file),
            "close" => {
                self.files.remove(&fd);
                match file.socket {
                    Socket::Tcp(i) => self.tcp.close(self.now, i),
                    Socket::Sctp(i) => self.sctp.close(self.now, i),
                }
                Returned::Value(0)
            }
            "shutdown" => self.shutdown(file, name_of(args.get(1))),
            "fcntl" => match name_of(args.get(1)) {
                "F_GETFL" => Returned::Value(file.flags),
                "F_SETFL" => {
                    let flags = O_RDWR | number(args.get(2))?;
                    self.files.insert(fd, File { flags, ..file });
                    Returned::Value(0)
                }
                other => return Err(Stop::Unsupported(format!("fcntl {other}"))),
            },
            "read" | "recv" | "recvfrom" | "sctp_recvmsg" => {
                let flags =
                    if matches!(call.name.as_str(), "recv" | "recvfrom") { number(args.get(3))? } else { 0 };
                self.read(file, count(args.get(2))?, flags)
            }
            "write" | "send" | "sendto" => {
                let flags = if call.name == "write" { 0 } else { number(args.get(3))? };
                let implied = call.name == "sendto";
                self.write(file, count(args.get(2))?, flags, Message::default(), implied)
            }
            "sctp_sendmsg" => {
                let field = |i: usize| number(args.get(i));
                let message = Message {
                    ppid: (field(5)? as u32).swap_bytes(),
                    unordered: matches!(args.get(6), Some(Value::Word(w)) if w == "SCTP_UNORDERED"),
                    stream: field(7)? as u16,
                    ..Message::default()
                };
                self.write(file, count(args.get(2))?, 0, message, false)
            }
            "setsockopt" => self.setsockopt(file, args)?,
            "getsockopt" => self.getsockopt(file, args)?,
            other => return Err(Stop::Unsupported(format!("the call {other}()"))),
        })
    }

    fn socket(&mut self, args: &[Value]) -> Result<Returned, Stop> {
        if !matches!(args.get(1), Some(Value::Word(kind)) if kind == "SOCK_STREAM") {
            return Err(Stop::Unsupported("sockets of other kinds than SOCK_STREAM".to_owned()));
        }
        let socket = match args.get(2) {
            Some(Value::Word(p)) if p == "IPPROTO_TCP" => Socket::Tcp(self.tcp.socket()),
            Some(Value::Int(0)) => Socket::Tcp(self.tcp.socket()),
            Some(Value::Word(p)) if p == "IPPROTO_SCTP" => {
                Socket::Sctp(self.sctp.socket(self.settings.mtu, self.settings.ipv6))
            }
            other => return Err(Stop::Unsupported(format!("sockets of {other:?}"))),
        };
        Ok(Returned::Value(self.open(socket)))
    }
    fn open(&mut self, socket: Socket) -> i64 {
        let fd = (3..).find(|fd| !self.files.contains_key(fd)).unwrap_or(3);
        self.files.insert(fd, File { socket, flags: O_RDWR });
        fd
    }

    /// What a call that would wait gives back.
    fn wait(file: File) -> Returned {
        if file.flags & O_NONBLOCK != 0 { Returned::Error("EAGAIN") } else { Returned::Blocks }
    }

    /// With `several`, the other side has a second address.
    fn connect(&mut self, file: File, again: bool, several: bool) -> Returned {
        let (connected, over) = match file.socket {
            Socket::Tcp(i) => (self.tcp.sockets[i].connected, self.tcp.sockets[i].over),
            Socket::Sctp(i) => (self.sctp.sockets[i].connected, self.sctp.sockets[i].over),
        };
        let under_way = match file.socket {
            Socket::Tcp(i) => self.tcp.sockets[i].connection.is_some(),
            Socket::Sctp(i) => self.sctp.sockets[i].association.is_some(),
        };
        if over && let Some(error) = self.error(file).take() {
            return Returned::Error(error);
        }
        if connected {
            return if again { Returned::Value(0) } else { Returned::Error("EISCONN") };
        }
        if under_way {
            return if again { Returned::Blocks } else { Returned::Error("EALREADY") };
        }
        match file.socket {
            Socket::Tcp(i) => {
                if self.settings.active_ecn {
                    self.tcp.wants_ecn = true;
                }
                self.tcp.connect(self.now, &self.settings, i);
            }
            Socket::Sctp(i) => self.sctp.connect(self.now, i, if several { 2 } else { 1 }),
        }
        if file.flags & O_NONBLOCK != 0 { Returned::Error("EINPROGRESS") } else { Returned::Blocks }
    }

    fn accept(&mut self, file: File) -> Returned {
        let child = match file.socket {
            Socket::Tcp(i) if self.tcp.sockets[i].listening => self.tcp.accept(i).map(Socket::Tcp),
            Socket::Sctp(i) if self.sctp.sockets[i].listening => self.sctp.accept(i).map(Socket::Sctp),
            _ => return Returned::Error("EINVAL"),
        };
        match child {
            Some(socket) => Returned::Value(self.open(socket)),
            None => Self::wait(file),
        }
    }

    fn shutdown(&mut self, file: File, how: &str) -> Returned {
        let open = match file.socket {
            Socket::Tcp(i) => self.tcp.sockets[i].connected && !self.tcp.sockets[i].over,
            Socket::Sctp(i) => self.sctp.sockets[i].connected && !self.sctp.sockets[i].over,
        };
        if !open {
            return Returned::Error("ENOTCONN");
        }
        if how != "SHUT_RD" {
            match file.socket {
                Socket::Tcp(i) => self.tcp.shutdown(self.now, i),
                Socket::Sctp(i) => self.sctp.shutdown(self.now, i),
            }
        }
        Returned::Value(0)
    }

    fn error(&mut self, file: File) -> &mut Option<&'static str> {
        match file.socket {
            Socket::Tcp(i) => &mut self.tcp.sockets[i].error,
            Socket::Sctp(i) => &mut self.sctp.sockets[i].error,
        }
    }

    fn read(&mut self, file: File, n: u32, flags: i64) -> Returned {
        let peek = flags & 2 != 0;
        let (got, begun, end) = match file.socket {
            Socket::Tcp(i) => {
                let got = self.tcp.read(self.now, i, n, peek);
                let s = &self.tcp.sockets[i];
                (got, s.connection.is_some(), s.end || s.over)
            }
            Socket::Sctp(i) => {
                let s = &mut self.sctp.sockets[i];
                let mut got = 0;
                if let Some(message) = s.inbox.front_mut() {
                    got = message.payload.len.min(n);
                    let left = message.payload.len - got;
                    if !peek && left == 0 {
                        s.inbox.pop_front();
                    } else if !peek {
                        message.payload = Payload::counted(left);
                    }
                }
                (got, s.association.is_some(), s.over)
            }
        };
        if got > 0 {
            return Returned::Value(got.into());
        }
        if let Some(error) = self.error(file).take() {
            return Returned::Error(error);
        }
        if end {
            return Returned::Value(0);
        }
        if !begun {
            return Returned::Error("ENOTCONN");
        }
        if flags & 0x40 != 0 { Returned::Error("EAGAIN") } else { Self::wait(file) }
    }

    /// `implied` where the call names the other side, so that it opens a connection too.
    fn write(&mut self, file: File, n: u32, flags: i64, message: Message, implied: bool) -> Returned {
        if let Some(error) = self.error(file).take() {
            return Returned::Error(error);
        }
        match file.socket {
            Socket::Tcp(i) => {
                let space = self.settings.send_space;
                let s = &self.tcp.sockets[i];
                if s.fast_open && s.connection.is_none() && !s.over && implied {
                    self.tcp.connect_with(self.now, &self.settings, i, n);
                    return Returned::Value(n.into());
                }
                let Some(c) = s.connection.as_ref().filter(|_| !s.over) else {
                    return Returned::Error(if s.over { "EPIPE" } else { "ENOTCONN" });
                };
                if s.shut {
                    return Returned::Error("EPIPE");
                }
                let free = space.saturating_sub(c.bytes_in_flight() + c.bytes_unsent());
                // A call that blocks takes all, sooner or later; what it gives back is the same.
                let waits = file.flags & O_NONBLOCK != 0 || flags & 0x40 != 0;
                let n = if waits { n.min(free) } else { n };
                if n == 0 && waits {
                    return Returned::Error("EAGAIN");
                }
                if self.tcp.write(self.now, i, n) {
                    Returned::Value(n.into())
                } else {
                    Returned::Error("EPIPE")
                }
            }
            Socket::Sctp(i) => {
                let s = &self.sctp.sockets[i];
                if s.association.is_none() {
                    return Returned::Error("ENOTCONN");
                }
                if s.over || s.shut {
                    return Returned::Error("EPIPE");
                }
                let payload = Payload::copied(&vec![0x55; n as usize]);
                let taken = self.sctp.send(self.now, i, Message { payload, ..message });
                if taken { Returned::Value(n.into()) } else { Returned::Error("ESHUTDOWN") }
            }
        }
    }

    fn setsockopt(&mut self, file: File, args: &[Value]) -> Result<Returned, Stop> {
        let (level, option) = (name_of(args.get(1)), name_of(args.get(2)));
        let unknown = || Stop::Unsupported(format!("setsockopt {level} {option}"));
        // What changes nothing that a script could see here.
        let quiet = ["SO_REUSEADDR", "SO_REUSEPORT", "SO_SNDBUF", "SO_SNDTIMEO", "SO_RCVTIMEO"];
        if quiet.contains(&option) {
            return Ok(Returned::Value(0));
        }
        if option == "SO_LINGER" {
            let Some(Value::Struct(items)) = args.get(3) else { return Err(unknown()) };
            let field = |key: &str, at: usize| items.iter().find(|i| i.key == key).or(items.get(at));
            let value = |item: Option<&Item>| number(item.map(|i| &i.value));
            let abort = value(field("onoff", 0))? != 0 && value(field("linger", 1))? == 0;
            match file.socket {
                Socket::Tcp(i) => self.tcp.sockets[i].abort_on_close = abort,
                Socket::Sctp(i) => self.sctp.sockets[i].abort_on_close = abort,
            }
            return Ok(Returned::Value(0));
        }
        match file.socket {
            Socket::Tcp(i) => {
                let n = number(args.get(3))?;
                let Settings { tunneling_port, .. } = self.settings;
                let s = &mut self.tcp.sockets[i];
                let fresh = s.connection.is_none() && !s.listening;
                let byte = u8::try_from(n);
                match option {
                    "TCP_REMOTE_UDP_ENCAPS_PORT" => match u16::try_from(n) {
                        Ok(port) if fresh && (port == 0 || tunneling_port != 0) => s.around.udp = port,
                        _ => return Ok(Returned::Error("EINVAL")),
                    },
                    "IP_TTL" | "IPV6_UNICAST_HOPS" | "IP_TOS" | "IPV6_TCLASS" => {
                        let Ok(byte) = byte else { return Ok(Returned::Error("EINVAL")) };
                        let hops = matches!(option, "IP_TTL" | "IPV6_UNICAST_HOPS");
                        *(if hops { &mut s.around.hops } else { &mut s.around.class }) = byte;
                    }
                    "IPV6_USE_MIN_MTU" if fresh => s.min_mtu = n == 1,
                    "TCP_MAXSEG" if fresh => s.mss = Some(n.clamp(64, 65_535) as u16),
                    "SO_RCVBUF" => s.receive_buffer = Some(n.clamp(1, 1 << 30) as u32),
                    "TCP_FASTOPEN" => s.fast_open = n != 0,
                    "TCP_NODELAY" => s.no_delay = n != 0,
                    "TCP_NOOPT" => s.no_options = n != 0,
                    "TCP_KEEPINIT" => s.keep_init = Some(n.max(0) as u64),
                    _ => return Err(unknown()),
                }
            }
            Socket::Sctp(i) => {
                self.set_sctp(i, option, args.get(3)).ok_or_else(unknown)?;
                self.sctp.reconfigure(i);
            }
        }
        Ok(Returned::Value(0))
    }

    /// An option of SCTP (RFC 6458, 8.1); `None` where it is not known here. Zero leaves a field as it is.
    fn set_sctp(&mut self, i: usize, option: &str, value: Option<&Value>) -> Option<()> {
        let config = &mut self.sctp.sockets[i].config;
        let items = match value {
            Some(Value::Struct(items)) => items.as_slice(),
            _ => &[],
        };
        let field = |key: &str| {
            let item = items.iter().find(|i| i.key == key)?;
            item.value.int().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
        };
        let single = number(value).ok();
        let ms = |key: &str, to: &mut Duration| *to = field(key).map_or(*to, Duration::from_millis);
        match option {
            "SCTP_RTOINFO" => {
                ms("srto_initial", &mut config.rto_initial);
                ms("srto_min", &mut config.rto_min);
                ms("srto_max", &mut config.rto_max);
            }
            "SCTP_INITMSG" => {
                let short = |key: &str| field(key).map(|n| n.min(0xffff) as u16);
                config.outbound_streams = short("sinit_num_ostreams").unwrap_or(config.outbound_streams);
                config.accepted_streams = Some(config.outbound_streams);
                config.max_inbound_streams =
                    short("sinit_max_instreams").unwrap_or(config.max_inbound_streams);
                if let Some(n) = field("sinit_max_attempts") {
                    config.max_init_retransmissions = Some(n.min(1000) as u32);
                }
            }
            "SCTP_ASSOCINFO" => {
                if let Some(n) = field("sasoc_asocmaxrxt") {
                    config.max_association_retransmissions = Some(n.min(1000) as u32);
                }
                ms("sasoc_cookie_life", &mut config.cookie_life);
            }
            "SCTP_DELAYED_SACK" => {
                if let Some(n) = field("sack_delay") {
                    config.sack_delay = Some(Duration::from_millis(n));
                }
                if let Some(n) = field("sack_freq") {
                    config.sack_frequency = n.min(1000) as u32;
                    if n == 1 {
                        config.sack_delay = None;
                    }
                }
            }
            "SCTP_NODELAY" => config.nagle = single? == 0,
            "SCTP_MAX_BURST" => config.max_burst = Some(single?.clamp(1, 1000) as u32),
            "SO_RCVBUF" => config.receive_buffer = single?.clamp(1500, 1 << 30) as u32,
            "SCTP_PEER_ADDR_PARAMS" => {
                let flags = items.iter().find(|i| i.key == "spp_flags").map(|i| &i.value);
                let words: Vec<&str> = match flags {
                    Some(Value::Flags(values)) => values.iter().map(|v| name_of(Some(v))).collect(),
                    other => vec![name_of(other)],
                };
                if words.contains(&"SPP_HB_DISABLE") {
                    config.heartbeat_interval = None;
                }
                if words.contains(&"SPP_HB_ENABLE") {
                    let interval =
                        field("spp_hbinterval").map_or(Duration::from_secs(30), Duration::from_millis);
                    config.heartbeat_interval = Some(interval);
                }
                if let Some(n) = field("spp_pathmaxrxt") {
                    config.max_path_retransmissions = n.min(1000) as u32;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn getsockopt(&mut self, file: File, args: &[Value]) -> Result<Returned, Stop> {
        let option = name_of(args.get(2));
        let wanted = match args.get(3) {
            Some(Value::List(values)) if values.len() == 1 => values[0].clone(),
            Some(other) => other.clone(),
            None => Value::Any,
        };
        let is = match (option, file.socket) {
            ("SO_ERROR", _) => match self.error(file).take() {
                None => Value::Int(0),
                Some(error) => Value::Word(error.to_owned()),
            },
            ("SO_RCVBUF", Socket::Tcp(i)) => Value::Int(self.receive_buffer(&self.tcp.sockets[i]).into()),
            ("TCP_REMOTE_UDP_ENCAPS_PORT", Socket::Tcp(i)) => {
                Value::Int(self.tcp.sockets[i].around.udp.into())
            }
            ("TCP_KEEPINIT", Socket::Tcp(i)) if self.tcp.sockets[i].keep_init.is_some() => {
                Value::Int(self.tcp.sockets[i].keep_init.unwrap_or(0) as i64)
            }
            ("TCP_KEEPINIT" | "TCP_KEEPIDLE" | "TCP_KEEPINTVL" | "TCP_KEEPCNT", Socket::Tcp(_)) => {
                Value::Int(self.settings.preset(option).unwrap_or(0) as i64)
            }
            ("SCTP_STATUS", Socket::Sctp(i)) => return self.sctp_status(i, &wanted),
            ("TCP_NODELAY", Socket::Tcp(i)) => Value::Int(self.tcp.sockets[i].no_delay.into()),
            ("TCP_NOOPT", Socket::Tcp(i)) => Value::Int(self.tcp.sockets[i].no_options.into()),
            ("TCP_MAXSEG", Socket::Tcp(i)) => {
                let mss = self.tcp.sockets[i].connection.as_ref().map(|c| c.mss());
                Value::Int(mss.unwrap_or(self.settings.mss().into()).into())
            }
            _ => return Err(Stop::Unsupported(format!("getsockopt {option}"))),
        };
        if wanted != Value::Any && wanted != is {
            return Err(Stop::Diverges(format!("getsockopt() says {option} is {is:?}, not {wanted:?}")));
        }
        Ok(Returned::Value(0))
    }

    /// Holds what `SCTP_STATUS` says (RFC 6458, 8.2.1) against the script.
    fn sctp_status(&self, i: usize, wanted: &Value) -> Result<Returned, Stop> {
        let Some(a) = &self.sctp.sockets[i].association else { return Ok(Returned::Error("EINVAL")) };
        let Value::Struct(items) = wanted else { return Ok(Returned::Value(0)) };
        for Item { key, value } in items.iter().filter(|item| item.value != Value::Any) {
            let is = match key.as_str() {
                "sstat_state" => Value::Word(format!("SCTP_{}", sctp_state(a.state()))),
                "sstat_outstrms" => Value::Int(a.outbound_streams().into()),
                "sstat_instrms" => Value::Int(a.inbound_streams().into()),
                other => return Err(Stop::Unsupported(format!("{other} of SCTP_STATUS"))),
            };
            if is != *value {
                return Err(Stop::Diverges(format!("SCTP_STATUS has {key} {is:?}, not {value:?}")));
            }
        }
        Ok(Returned::Value(0))
    }

    fn receive_buffer(&self, socket: &TcpSocket) -> u32 {
        match socket.connection {
            Some(_) => socket.buffer,
            None => socket.receive_buffer.unwrap_or(self.settings.receive_space),
        }
    }
}
