//! System calls and their results.

use super::ScriptFailure;
use super::settings::SystemSettings;
use super::tcp::TcpSocket;
use super::world::{CallResult, FileSocket, OpenFile, TestedHost};
use crate::script::{ScriptItem, ScriptValue, SystemCall};
use usher_core::Duration;
use usher_sim::Payload;
use usher_sim::sctp::{self, UserMessage};

const O_NONBLOCK: i64 = 0x800;
const O_RDWR: i64 = 2;

/// Compares a call's result with the script.
pub(super) fn check_result(call: &SystemCall, returned: &CallResult) -> Result<(), ScriptFailure> {
    let alike = |e: &str| if e == "EWOULDBLOCK" { "EAGAIN".to_owned() } else { e.to_owned() };
    let good = match (returned, &call.result, &call.error) {
        (CallResult::Blocks, ..) => false,
        (_, ScriptValue::Any, _) => true,
        (CallResult::Error(is), ScriptValue::Int(-1), Some(wanted)) => alike(is) == alike(wanted),
        (CallResult::Error(_), ScriptValue::Int(-1), None) => true,
        (CallResult::Value(is), ScriptValue::Int(wanted), _) => is == wanted,
        _ => false,
    };
    if good {
        return Ok(());
    }
    let is = match returned {
        CallResult::Value(n) => n.to_string(),
        CallResult::Error(name) => format!("-1 {name}"),
        CallResult::Blocks => "nothing: it blocks".to_owned(),
    };
    let wanted = match (&call.result, &call.error) {
        (ScriptValue::Int(n), Some(error)) => format!("{n} {error}"),
        (ScriptValue::Int(n), None) => n.to_string(),
        (other, _) => format!("{other:?}"),
    };
    Err(ScriptFailure::Diverges(format!("{}() gives {is}, not {wanted}", call.name)))
}

/// Returns the number of a named constant.
fn constant_value(name: &str) -> Option<i64> {
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

/// Returns an integer argument: a number, a constant, or several joined.
fn number_argument(value: Option<&ScriptValue>) -> Result<i64, ScriptFailure> {
    match value {
        Some(ScriptValue::Int(n)) => Ok(*n),
        Some(ScriptValue::Word(name)) => {
            constant_value(name).ok_or_else(|| ScriptFailure::Unsupported(format!("the constant {name}")))
        }
        Some(ScriptValue::Flags(values)) => {
            values.iter().try_fold(0, |all, v| number_argument(Some(v)).map(|bits| all | bits))
        }
        Some(ScriptValue::List(values)) if values.len() == 1 => number_argument(values.first()),
        _ => Err(ScriptFailure::Unsupported("an argument that is no number".to_owned())),
    }
}
fn name_of(value: Option<&ScriptValue>) -> &str {
    match value {
        Some(ScriptValue::Word(name)) => name,
        _ => "",
    }
}
fn length_argument(value: Option<&ScriptValue>) -> Result<u32, ScriptFailure> {
    number_argument(value)?
        .try_into()
        .map_err(|_| ScriptFailure::Suspect("a length is negative or beyond 4 GiB".to_owned()))
}

/// Returns a state's name in the sockets API.
fn sctp_state(state: sctp::SctpAssociationState) -> &'static str {
    match state {
        sctp::SctpAssociationState::Closed => "CLOSED",
        sctp::SctpAssociationState::CookieWait => "COOKIE_WAIT",
        sctp::SctpAssociationState::CookieEchoed => "COOKIE_ECHOED",
        sctp::SctpAssociationState::Established => "ESTABLISHED",
        sctp::SctpAssociationState::ShutdownPending => "SHUTDOWN_PENDING",
        sctp::SctpAssociationState::ShutdownSent => "SHUTDOWN_SENT",
        sctp::SctpAssociationState::ShutdownReceived => "SHUTDOWN_RECEIVED",
        sctp::SctpAssociationState::ShutdownAckSent => "SHUTDOWN_ACK_SENT",
    }
}

impl TestedHost {
    /// Makes a call. `again`: it blocked before.
    pub(super) fn make_call(&mut self, call: &SystemCall, again: bool) -> Result<CallResult, ScriptFailure> {
        let returned = self.dispatch_call(call, again);
        self.collect_sent();
        returned
    }

    fn dispatch_call(&mut self, call: &SystemCall, again: bool) -> Result<CallResult, ScriptFailure> {
        let args = &call.args;
        if call.name == "socket" {
            return self.call_socket(args);
        }
        let fd = number_argument(args.first())?;
        let Some(&file) = self.files.get(&fd) else { return Ok(CallResult::Error("EBADF")) };
        Ok(match call.name.as_str() {
            "bind" => CallResult::Value(0),
            "listen" => {
                match file.socket {
                    FileSocket::Tcp(i) => self.tcp.sockets[i].listening = true,
                    FileSocket::Sctp(i) => self.sctp.sockets[i].listening = true,
                }
                CallResult::Value(0)
            }
            "connect" | "sctp_connectx" => self.call_connect(file, again, call.name == "sctp_connectx"),
            "accept" | "accept4" => self.call_accept(file),
            "close" => {
                self.files.remove(&fd);
                match file.socket {
                    FileSocket::Tcp(i) => self.tcp.close(self.now, i),
                    FileSocket::Sctp(i) => self.sctp.close(self.now, i),
                }
                CallResult::Value(0)
            }
            "shutdown" => self.call_shutdown(file, name_of(args.get(1))),
            "fcntl" => match name_of(args.get(1)) {
                "F_GETFL" => CallResult::Value(file.flags),
                "F_SETFL" => {
                    let flags = O_RDWR | number_argument(args.get(2))?;
                    self.files.insert(fd, OpenFile { flags, ..file });
                    CallResult::Value(0)
                }
                other => return Err(ScriptFailure::Unsupported(format!("fcntl {other}"))),
            },
            "read" | "recv" | "recvfrom" | "sctp_recvmsg" => {
                let flags = if matches!(call.name.as_str(), "recv" | "recvfrom") {
                    number_argument(args.get(3))?
                } else {
                    0
                };
                self.call_read(file, length_argument(args.get(2))?, flags)
            }
            "write" | "send" | "sendto" => {
                let flags = if call.name == "write" { 0 } else { number_argument(args.get(3))? };
                let implied = call.name == "sendto";
                self.call_write(file, length_argument(args.get(2))?, flags, UserMessage::default(), implied)
            }
            "sctp_sendmsg" => {
                let field = |i: usize| number_argument(args.get(i));
                let message = UserMessage {
                    ppid: (field(5)? as u32).swap_bytes(),
                    unordered: matches!(args.get(6), Some(ScriptValue::Word(w)) if w == "SCTP_UNORDERED"),
                    stream: field(7)? as u16,
                    ..UserMessage::default()
                };
                self.call_write(file, length_argument(args.get(2))?, 0, message, false)
            }
            "setsockopt" => self.setsockopt(file, args)?,
            "getsockopt" => self.getsockopt(file, args)?,
            other => return Err(ScriptFailure::Unsupported(format!("the call {other}()"))),
        })
    }

    fn call_socket(&mut self, args: &[ScriptValue]) -> Result<CallResult, ScriptFailure> {
        if !matches!(args.get(1), Some(ScriptValue::Word(kind)) if kind == "SOCK_STREAM") {
            return Err(ScriptFailure::Unsupported("sockets of other kinds than SOCK_STREAM".to_owned()));
        }
        let socket = match args.get(2) {
            Some(ScriptValue::Word(p)) if p == "IPPROTO_TCP" => FileSocket::Tcp(self.tcp.add_socket()),
            Some(ScriptValue::Int(0)) => FileSocket::Tcp(self.tcp.add_socket()),
            Some(ScriptValue::Word(p)) if p == "IPPROTO_SCTP" => {
                FileSocket::Sctp(self.sctp.add_socket(self.settings.mtu, self.settings.ipv6))
            }
            other => return Err(ScriptFailure::Unsupported(format!("sockets of {other:?}"))),
        };
        Ok(CallResult::Value(self.open_file(socket)))
    }
    fn open_file(&mut self, socket: FileSocket) -> i64 {
        let fd = (3..).find(|fd| !self.files.contains_key(fd)).unwrap_or(3);
        self.files.insert(fd, OpenFile { socket, flags: O_RDWR });
        fd
    }

    /// Returns the result of a call that would block.
    fn blocked_result(file: OpenFile) -> CallResult {
        if file.flags & O_NONBLOCK != 0 { CallResult::Error("EAGAIN") } else { CallResult::Blocks }
    }

    /// `several`: the peer has a second address.
    fn call_connect(&mut self, file: OpenFile, again: bool, several: bool) -> CallResult {
        let (connected, over) = match file.socket {
            FileSocket::Tcp(i) => (self.tcp.sockets[i].connected, self.tcp.sockets[i].has_ended),
            FileSocket::Sctp(i) => (self.sctp.sockets[i].connected, self.sctp.sockets[i].has_ended),
        };
        let under_way = match file.socket {
            FileSocket::Tcp(i) => self.tcp.sockets[i].connection.is_some(),
            FileSocket::Sctp(i) => self.sctp.sockets[i].association.is_some(),
        };
        if over && let Some(error) = self.pending_error(file).take() {
            return CallResult::Error(error);
        }
        if connected {
            return if again { CallResult::Value(0) } else { CallResult::Error("EISCONN") };
        }
        if under_way {
            return if again { CallResult::Blocks } else { CallResult::Error("EALREADY") };
        }
        match file.socket {
            FileSocket::Tcp(i) => {
                if self.settings.active_ecn {
                    self.tcp.wants_ecn = true;
                }
                self.tcp.connect(self.now, &self.settings, i);
            }
            FileSocket::Sctp(i) => self.sctp.connect(self.now, i, if several { 2 } else { 1 }),
        }
        if file.flags & O_NONBLOCK != 0 { CallResult::Error("EINPROGRESS") } else { CallResult::Blocks }
    }

    fn call_accept(&mut self, file: OpenFile) -> CallResult {
        let child = match file.socket {
            FileSocket::Tcp(i) if self.tcp.sockets[i].listening => self.tcp.accept(i).map(FileSocket::Tcp),
            FileSocket::Sctp(i) if self.sctp.sockets[i].listening => {
                self.sctp.accept(i).map(FileSocket::Sctp)
            }
            _ => return CallResult::Error("EINVAL"),
        };
        match child {
            Some(socket) => CallResult::Value(self.open_file(socket)),
            None => Self::blocked_result(file),
        }
    }

    fn call_shutdown(&mut self, file: OpenFile, how: &str) -> CallResult {
        let open = match file.socket {
            FileSocket::Tcp(i) => self.tcp.sockets[i].connected && !self.tcp.sockets[i].has_ended,
            FileSocket::Sctp(i) => self.sctp.sockets[i].connected && !self.sctp.sockets[i].has_ended,
        };
        if !open {
            return CallResult::Error("ENOTCONN");
        }
        if how != "SHUT_RD" {
            match file.socket {
                FileSocket::Tcp(i) => self.tcp.shutdown(self.now, i),
                FileSocket::Sctp(i) => self.sctp.shutdown(self.now, i),
            }
        }
        CallResult::Value(0)
    }

    fn pending_error(&mut self, file: OpenFile) -> &mut Option<&'static str> {
        match file.socket {
            FileSocket::Tcp(i) => &mut self.tcp.sockets[i].error,
            FileSocket::Sctp(i) => &mut self.sctp.sockets[i].error,
        }
    }

    fn call_read(&mut self, file: OpenFile, n: u32, flags: i64) -> CallResult {
        let peek = flags & 2 != 0;
        let (got, begun, end) = match file.socket {
            FileSocket::Tcp(i) => {
                let got = self.tcp.read(self.now, i, n, peek);
                let s = &self.tcp.sockets[i];
                (got, s.connection.is_some(), s.end || s.has_ended)
            }
            FileSocket::Sctp(i) => {
                let s = &mut self.sctp.sockets[i];
                let mut got = 0;
                if let Some(message) = s.inbox.front_mut() {
                    got = message.payload.len.min(n);
                    let left = message.payload.len - got;
                    if !peek && left == 0 {
                        s.inbox.pop_front();
                    } else if !peek {
                        message.payload = Payload::with_length(left);
                    }
                }
                (got, s.association.is_some(), s.has_ended)
            }
        };
        if got > 0 {
            return CallResult::Value(got.into());
        }
        if let Some(error) = self.pending_error(file).take() {
            return CallResult::Error(error);
        }
        if end {
            return CallResult::Value(0);
        }
        if !begun {
            return CallResult::Error("ENOTCONN");
        }
        if flags & 0x40 != 0 { CallResult::Error("EAGAIN") } else { Self::blocked_result(file) }
    }

    /// `implied`: the call names the peer and so opens a connection, too.
    fn call_write(
        &mut self,
        file: OpenFile,
        n: u32,
        flags: i64,
        message: UserMessage,
        implied: bool,
    ) -> CallResult {
        if let Some(error) = self.pending_error(file).take() {
            return CallResult::Error(error);
        }
        match file.socket {
            FileSocket::Tcp(i) => {
                let space = self.settings.send_space;
                let s = &self.tcp.sockets[i];
                if s.fast_open && s.connection.is_none() && !s.has_ended && implied {
                    self.tcp.connect_with(self.now, &self.settings, i, n);
                    return CallResult::Value(n.into());
                }
                let Some(c) = s.connection.as_ref().filter(|_| !s.has_ended) else {
                    return CallResult::Error(if s.has_ended { "EPIPE" } else { "ENOTCONN" });
                };
                if s.shut {
                    return CallResult::Error("EPIPE");
                }
                let free = space.saturating_sub(c.bytes_in_flight() + c.bytes_unsent());
                // A blocking call takes all data eventually, with the same result.
                let waits = file.flags & O_NONBLOCK != 0 || flags & 0x40 != 0;
                let n = if waits { n.min(free) } else { n };
                if n == 0 && waits {
                    return CallResult::Error("EAGAIN");
                }
                if self.tcp.write(self.now, i, n) {
                    CallResult::Value(n.into())
                } else {
                    CallResult::Error("EPIPE")
                }
            }
            FileSocket::Sctp(i) => {
                let s = &self.sctp.sockets[i];
                if s.association.is_none() {
                    return CallResult::Error("ENOTCONN");
                }
                if s.has_ended || s.shut {
                    return CallResult::Error("EPIPE");
                }
                let payload = Payload::copy_from_slice(&vec![0x55; n as usize]);
                let taken = self.sctp.send_message(self.now, i, UserMessage { payload, ..message });
                if taken { CallResult::Value(n.into()) } else { CallResult::Error("ESHUTDOWN") }
            }
        }
    }

    fn setsockopt(&mut self, file: OpenFile, args: &[ScriptValue]) -> Result<CallResult, ScriptFailure> {
        let (level, option) = (name_of(args.get(1)), name_of(args.get(2)));
        let unknown = || ScriptFailure::Unsupported(format!("setsockopt {level} {option}"));
        // Options without an effect that a script can observe.
        let quiet = ["SO_REUSEADDR", "SO_REUSEPORT", "SO_SNDBUF", "SO_SNDTIMEO", "SO_RCVTIMEO"];
        if quiet.contains(&option) {
            return Ok(CallResult::Value(0));
        }
        if option == "SO_LINGER" {
            let Some(ScriptValue::Struct(items)) = args.get(3) else { return Err(unknown()) };
            let field = |key: &str, at: usize| items.iter().find(|i| i.key == key).or(items.get(at));
            let value = |item: Option<&ScriptItem>| number_argument(item.map(|i| &i.value));
            let abort = value(field("onoff", 0))? != 0 && value(field("linger", 1))? == 0;
            match file.socket {
                FileSocket::Tcp(i) => self.tcp.sockets[i].abort_on_close = abort,
                FileSocket::Sctp(i) => self.sctp.sockets[i].abort_on_close = abort,
            }
            return Ok(CallResult::Value(0));
        }
        match file.socket {
            FileSocket::Tcp(i) => {
                let n = number_argument(args.get(3))?;
                let SystemSettings { tunneling_port, .. } = self.settings;
                let s = &mut self.tcp.sockets[i];
                let fresh = s.connection.is_none() && !s.listening;
                let byte = u8::try_from(n);
                match option {
                    "TCP_REMOTE_UDP_ENCAPS_PORT" => match u16::try_from(n) {
                        Ok(port) if fresh && (port == 0 || tunneling_port != 0) => {
                            s.header_settings.udp = port
                        }
                        _ => return Ok(CallResult::Error("EINVAL")),
                    },
                    "IP_TTL" | "IPV6_UNICAST_HOPS" | "IP_TOS" | "IPV6_TCLASS" => {
                        let Ok(byte) = byte else { return Ok(CallResult::Error("EINVAL")) };
                        let hops = matches!(option, "IP_TTL" | "IPV6_UNICAST_HOPS");
                        *(if hops { &mut s.header_settings.hops } else { &mut s.header_settings.class }) =
                            byte;
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
            FileSocket::Sctp(i) => {
                self.set_sctp(i, option, args.get(3)).ok_or_else(unknown)?;
                self.sctp.reconfigure(i);
            }
        }
        Ok(CallResult::Value(0))
    }

    /// Sets an SCTP option (RFC 6458, 8.1). `None` if it is unknown. Zero keeps a field.
    fn set_sctp(&mut self, i: usize, option: &str, value: Option<&ScriptValue>) -> Option<()> {
        let config = &mut self.sctp.sockets[i].config;
        let items = match value {
            Some(ScriptValue::Struct(items)) => items.as_slice(),
            _ => &[],
        };
        let field = |key: &str| {
            let item = items.iter().find(|i| i.key == key)?;
            item.value.as_int().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
        };
        let single = number_argument(value).ok();
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
                    Some(ScriptValue::Flags(values)) => values.iter().map(|v| name_of(Some(v))).collect(),
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

    fn getsockopt(&mut self, file: OpenFile, args: &[ScriptValue]) -> Result<CallResult, ScriptFailure> {
        let option = name_of(args.get(2));
        let wanted = match args.get(3) {
            Some(ScriptValue::List(values)) if values.len() == 1 => values[0].clone(),
            Some(other) => other.clone(),
            None => ScriptValue::Any,
        };
        let is = match (option, file.socket) {
            ("SO_ERROR", _) => match self.pending_error(file).take() {
                None => ScriptValue::Int(0),
                Some(error) => ScriptValue::Word(error.to_owned()),
            },
            ("SO_RCVBUF", FileSocket::Tcp(i)) => {
                ScriptValue::Int(self.receive_buffer(&self.tcp.sockets[i]).into())
            }
            ("TCP_REMOTE_UDP_ENCAPS_PORT", FileSocket::Tcp(i)) => {
                ScriptValue::Int(self.tcp.sockets[i].header_settings.udp.into())
            }
            ("TCP_KEEPINIT", FileSocket::Tcp(i)) if self.tcp.sockets[i].keep_init.is_some() => {
                ScriptValue::Int(self.tcp.sockets[i].keep_init.unwrap_or(0) as i64)
            }
            ("TCP_KEEPINIT" | "TCP_KEEPIDLE" | "TCP_KEEPINTVL" | "TCP_KEEPCNT", FileSocket::Tcp(_)) => {
                ScriptValue::Int(self.settings.preset_option(option).unwrap_or(0) as i64)
            }
            ("SCTP_STATUS", FileSocket::Sctp(i)) => return self.sctp_status(i, &wanted),
            ("TCP_NODELAY", FileSocket::Tcp(i)) => ScriptValue::Int(self.tcp.sockets[i].no_delay.into()),
            ("TCP_NOOPT", FileSocket::Tcp(i)) => ScriptValue::Int(self.tcp.sockets[i].no_options.into()),
            ("TCP_MAXSEG", FileSocket::Tcp(i)) => {
                let mss = self.tcp.sockets[i].connection.as_ref().map(|c| c.mss());
                ScriptValue::Int(mss.unwrap_or(self.settings.mss().into()).into())
            }
            _ => return Err(ScriptFailure::Unsupported(format!("getsockopt {option}"))),
        };
        if wanted != ScriptValue::Any && wanted != is {
            return Err(ScriptFailure::Diverges(format!(
                "getsockopt() says {option} is {is:?}, not {wanted:?}"
            )));
        }
        Ok(CallResult::Value(0))
    }

    /// Compares `SCTP_STATUS` (RFC 6458, 8.2.1) with the script.
    fn sctp_status(&self, i: usize, wanted: &ScriptValue) -> Result<CallResult, ScriptFailure> {
        let Some(a) = &self.sctp.sockets[i].association else { return Ok(CallResult::Error("EINVAL")) };
        let ScriptValue::Struct(items) = wanted else { return Ok(CallResult::Value(0)) };
        for ScriptItem { key, value } in items.iter().filter(|item| item.value != ScriptValue::Any) {
            let is = match key.as_str() {
                "sstat_state" => ScriptValue::Word(format!("SCTP_{}", sctp_state(a.state()))),
                "sstat_outstrms" => ScriptValue::Int(a.outbound_streams().into()),
                "sstat_instrms" => ScriptValue::Int(a.inbound_streams().into()),
                other => return Err(ScriptFailure::Unsupported(format!("{other} of SCTP_STATUS"))),
            };
            if is != *value {
                return Err(ScriptFailure::Diverges(format!("SCTP_STATUS has {key} {is:?}, not {value:?}")));
            }
        }
        Ok(CallResult::Value(0))
    }

    fn receive_buffer(&self, socket: &TcpSocket) -> u32 {
        match socket.connection {
            Some(_) => socket.buffer,
            None => socket.receive_buffer.unwrap_or(self.settings.receive_space),
        }
    }
}
