//! The answering side of the control socket: a thread that accepts, and one for each connection.

use crate::homes;
use crate::mailbox::Message;
use crate::running::Running;
use crate::stats::Outcome;
use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use usher_aaa::store::SessionRow;
use usher_aaa::{Command, DynamicResult, TRACES, TraceFilter, canonical_name, is_alias};
use usher_control::{Answer, ListStatus, Request, Session, Status};
use usher_core::Instant as MachineInstant;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;

/// Connections at one time.
const CONNECTIONS: usize = 16;
/// Octets of one request.
const REQUEST: usize = 1 << 16;
/// How long a request may take to come, and an answer to be read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where NASs take requests of RFC 5176.
const DYNAMIC_PORT: u16 = 3799;
/// How long the shards may take to forget a user.
const FORGETTING: Duration = Duration::from_secs(10);
/// What the system's clock may drift before a trace follows it.
const DRIFT: usher_core::Duration = usher_core::Duration::from_millis(1);
/// How long a NAS may take.
const DYNAMIC_WAIT: Duration = Duration::from_secs(40);

/// What the connections share.
#[derive(Default)]
struct Shared {
    open: AtomicUsize,
    /// The numbers of traces that are in use.
    traces: Mutex<[bool; TRACES]>,
    token: AtomicU64,
}

impl Shared {
    /// The number of a trace that begins; `None`: there are as many as there may be.
    fn trace(&self) -> Option<u8> {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = traces.iter().position(|used| !used)?;
        traces[slot] = true;
        u8::try_from(slot).ok()
    }
    /// A trace has ended.
    fn traced(&self, slot: u8) {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(slot)] = false;
    }
}

/// Whether no other server listens there.
pub(crate) fn free(path: &Path) -> io::Result<()> {
    if UnixStream::connect(path).is_ok() {
        let said = format!("another server listens on {}; stop it first", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, said));
    }
    Ok(())
}

/// Listens at a path, in place of a socket that nobody listens on. The socket is nobody else's from its first moment: it
/// is made in a folder that only its owner can enter, and comes to its place when its mode is set. (A umask would be that
/// of all threads.) The folder is this socket's and this process's: servers of sockets beside each other begin at a time.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("making the socket {}: {error}", path.display()))
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // Of a process that died its number may come again: what it left is in nobody's way.
    name.push(format!(".{}", std::process::id()));
    let folder = path.with_file_name(name);
    let new = folder.join("new");
    for (gone, path) in [(fs::remove_file(&new), &new), (fs::remove_dir(&folder), &folder)] {
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(path, error)),
            _ => {}
        }
    }
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| named(&folder, error))?;
    let made = UnixListener::bind(&new).and_then(|listener| {
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(listener)
    });
    if made.is_err() {
        // Nothing is there where it could not be made.
        let _ = fs::remove_file(&new);
    }
    let emptied = fs::remove_dir(&folder).map_err(|error| named(&folder, error));
    let listener = made.map_err(|error| named(path, error))?;
    emptied?;
    Ok(listener)
}

/// Begins to listen. A socket that nobody listens on is taken away.
pub(crate) fn begin(running: &Arc<Running>, path: &Path) -> io::Result<()> {
    free(path)?;
    let listener = listen(path)?;
    let running = running.clone();
    let shared = Arc::new(Shared::default());
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let (running, shared) = (running.clone(), shared.clone());
            if shared.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                shared.open.fetch_sub(1, Ordering::Relaxed);
                let message = format!("{CONNECTIONS} others ask already; try again");
                // It need not be heard: there is no time for who reads slowly.
                let _ = stream.set_nonblocking(true).and_then(|()| say(&stream, &Answer::Failed { message }));
                continue;
            }
            let serve = move || {
                // Who went away needs no answer.
                let _ = serve(&running, &shared, &stream);
                shared.open.fetch_sub(1, Ordering::Relaxed);
            };
            let _ = thread::Builder::new().name("usher-control".to_owned()).spawn(serve);
        }
    };
    thread::Builder::new().name("usher-control".to_owned()).spawn(accept)?;
    Ok(())
}

fn say(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The line that somebody says, all of it within `patience`.
fn line(mut stream: &UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let (mut line, mut part) = (Vec::new(), [0; 4096]);
    while line.last() != Some(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || line.len() > REQUEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            n => line.extend_from_slice(&part[..n]),
        }
    }
    Ok(line)
}

fn serve(running: &Running, shared: &Shared, stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = line(stream, PATIENCE)?;
    let failed = |message: String| Answer::Failed { message };
    let request: Request = match serde_json::from_slice(&line) {
        Ok(request) => request,
        Err(error) => return say(stream, &failed(format!("not a request: {error}"))),
    };
    let answer = match request {
        Request::Status => Answer::Status(status(running)),
        Request::Sessions { user } => {
            let rows = running.ledger.sessions(user);
            Answer::Sessions { sessions: rows.iter().map(Session::from).collect() }
        }
        Request::Forget { user, disconnect } => forget(running, shared, user.as_deref(), disconnect),
        Request::Reload => running.reload().map_or_else(failed, |parts| Answer::Reloaded {
            restart: parts.into_iter().map(str::to_owned).collect(),
        }),
        Request::Disconnect { session } => {
            let done = dynamic(running, shared, &session, Code::DISCONNECT_REQUEST, &[]);
            done.map_or_else(failed, |()| Answer::Done)
        }
        Request::Change { session, attributes } => {
            let done = dynamic(running, shared, &session, Code::COA_REQUEST, &attributes);
            done.map_or_else(failed, |()| Answer::Done)
        }
        Request::Trace { user, mac } => return trace(running, shared, stream, user, mac),
    };
    say(stream, &answer)
}

fn status(running: &Running) -> Status {
    let all = running.mailboxes.collect();
    let sum = |wanted: Outcome| {
        all.logins.iter().filter(|((_, _, outcome, _), _)| *outcome == wanted).map(|(_, n)| n).sum()
    };
    let now = crate::clock::wall().unix_secs() as f64;
    let tls = running.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
    let ends = tls.iter().flat_map(|tls| &tls.ends);
    let lists = tls.iter().flat_map(|tls| &tls.lists).map(|list| ListStatus {
        from: list.from.clone(),
        issuer: list.issuer.clone(),
        made: list.this_update.unix_secs(),
        ends: list.next_update.map(|end| end.unix_secs()),
        number: list.number.clone(),
    });
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: running.begun.elapsed().as_secs(),
        config: running.read_place().loaded.path.map(|p| p.display().to_string()),
        shards: running.shards,
        accepted: sum(Outcome::Accept),
        rejected: sum(Outcome::Reject),
        half_open: all.half_open,
        sessions: running.ledger.collect().map_or(0, |l| l.open),
        diameter_peers: all.diameter_peers,
        home_servers: homes::statuses(&all.homes),
        diameter_servers: all.diameter_servers.into_iter().collect(),
        reloads: *running.reloads.lock().unwrap_or_else(PoisonError::into_inner),
        lists: lists.collect(),
        certificates: ends
            .map(|(whose, end)| ((*whose).to_owned(), (*end as f64 - now) / 86_400.0))
            .collect(),
    }
}

/// Has all shards forget a user, or all users, and with `disconnect` NASs end the user's open sessions.
fn forget(running: &Running, shared: &Shared, user: Option<&str>, disconnect: bool) -> Answer {
    running.known.forget(user.map(str::as_bytes));
    if !running.mailboxes.forget(user.map(str::as_bytes), FORGETTING) {
        let message = "not every thread has forgotten the user yet; try again".to_owned();
        return Answer::Failed { message };
    }
    let Some(user) = user.filter(|_| disconnect) else { return Answer::Done };
    let name = canonical_name(user.as_bytes());
    let rows = running.ledger.sessions(None);
    let of_user = rows.iter().filter(|row| canonical_name(row.username.as_bytes()) == name);
    // All are asked before the first is waited for.
    let asked: Vec<_> = of_user.map(|row| ask(running, shared, row, Code::DISCONNECT_REQUEST, &[])).collect();
    let done: Vec<_> = asked.into_iter().map(|asked| asked.and_then(PendingRequest::wait)).collect();
    let ended = done.iter().filter(|done| done.is_ok()).count();
    Answer::Disconnected { ended, failures: done.into_iter().filter_map(Result::err).collect() }
}

/// A request to the NAS of a session.
fn dynamic(
    running: &Running,
    shared: &Shared,
    session: &str,
    code: Code,
    changes: &[String],
) -> Result<(), String> {
    let rows = running.ledger.sessions(None);
    let named = |row: &&SessionRow| row.acctuniqueid == session || row.acctsessionid == session;
    let found: Vec<&SessionRow> = rows.iter().filter(named).collect();
    let row = match found.as_slice() {
        [row] => row,
        [] => return Err(format!("there is no open session {session}; see: usher aaa session list")),
        _ => {
            return Err(format!(
                "several NASs have a session {session}; name it by the long one of: usher aaa session list"
            ));
        }
    };
    ask(running, shared, row, code, changes)?.wait()
}

/// A request that a NAS has still to answer.
struct PendingRequest {
    to: SocketAddr,
    until: Instant,
    receiver: Receiver<DynamicResult>,
}

/// Sends a request to the NAS of a session.
fn ask(
    running: &Running,
    shared: &Shared,
    row: &SessionRow,
    code: Code,
    changes: &[String],
) -> Result<PendingRequest, String> {
    let session = &row.acctuniqueid;
    if row.nasipaddress.is_unspecified() {
        return Err(format!(
            "session {session} came by Diameter without the address of its NAS, which cannot be asked then"
        ));
    }
    let mut attributes = identification(&row.username, &row.class, &row.acctsessionid, &row.callingstationid);
    for change in changes {
        running.attribute(change, &mut attributes)?;
    }
    let token = shared.token.fetch_add(1, Ordering::Relaxed);
    let to = SocketAddr::new(row.nasipaddress, DYNAMIC_PORT);
    let (sender, receiver) = sync_channel(1);
    let command = Command::Dynamic { token, to, code, attributes };
    running.mailboxes.send(0, Message::Dynamic(command, sender));
    Ok(PendingRequest { to, until: Instant::now() + DYNAMIC_WAIT, receiver })
}

impl PendingRequest {
    /// Waits for the answer.
    fn wait(self) -> Result<(), String> {
        let Self { to, until, receiver } = self;
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(DynamicResult::Ack) => Ok(()),
            Ok(DynamicResult::Nak(Some(cause))) => Err(format!("the NAS {to} refused (Error-Cause {cause})")),
            Ok(DynamicResult::Nak(None)) => Err(format!("the NAS {to} refused")),
            Ok(DynamicResult::TimedOut) | Err(RecvTimeoutError::Timeout) => Err(format!(
                "the NAS {to} does not answer; does it take Disconnect-Request and CoA-Request (RFC 5176)?"
            )),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("the NAS {to} is no client of this server, or proxies for one; nothing was sent"))
            }
        }
    }
}

fn trace(
    running: &Running,
    shared: &Shared,
    stream: &UnixStream,
    user: Option<String>,
    mac: Option<String>,
) -> io::Result<()> {
    let Some(slot) = shared.trace() else {
        let message = format!("{TRACES} traces run already; end one of them first");
        return say(stream, &Answer::Failed { message });
    };
    let filter = match (user, mac) {
        (Some(user), _) => TraceFilter::User(user.into_bytes()),
        (None, Some(mac)) => TraceFilter::Station(mac.into_bytes()),
        (None, None) => TraceFilter::All,
    };
    let (sender, lines) = sync_channel(4096);
    for mailbox in running.mailboxes.all() {
        mailbox.send(Message::Trace(slot, Some((filter.clone(), sender.clone()))));
    }
    drop(sender);
    let mut epoch = running.clock.wall_epoch();
    let done = say(stream, &Answer::Done).and_then(|()| {
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        loop {
            match lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => {
                    // Lines of one moment show one time, unless the clock is set.
                    let shown = running.clock.wall_epoch();
                    if shown > epoch + DRIFT || epoch > shown + DRIFT {
                        epoch = shown;
                    }
                    let at = (epoch + line.at.since(MachineInstant::ZERO)).unix_micros();
                    let cause = line.cause.map(str::to_owned);
                    say(stream, &Answer::Line { session: line.session, at, text: line.text, cause })?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    // Whoever reads the trace says nothing more: an end of the stream is the end.
                    let mut reader = stream;
                    if matches!(reader.read(&mut [0]), Ok(0)) {
                        return Ok(());
                    }
                }
            }
        }
    });
    for mailbox in running.mailboxes.all() {
        mailbox.send(Message::Trace(slot, None));
    }
    shared.traced(slot);
    done
}

/// What tells an access server which session is meant (RFC 5176 §3): of a user who is anonymous to it, the session alone.
fn identification(user: &str, class: &str, session: &str, station: &str) -> Attributes {
    let user = if is_alias(class) { "" } else { user };
    let mut attributes = Attributes::new();
    let all =
        [(kind::USER_NAME, user), (kind::ACCT_SESSION_ID, session), (kind::CALLING_STATION_ID, station)];
    for (kind, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
        // A value beyond an attribute's length was none when it came.
        let _ = attributes.push_bytes(kind, value.as_bytes());
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn an_access_server_is_told_whose_session_is_meant_and_which() {
        let told = identification("ann", "", "5f2a", "");
        assert_eq!(told.get_text(kind::USER_NAME), Some("ann"));
        assert_eq!(told.get_text(kind::ACCT_SESSION_ID), Some("5f2a"));
        assert_eq!(told.iter().count(), 2);
    }

    #[test]
    fn an_access_server_is_not_told_the_name_of_a_user_who_is_anonymous_to_it() {
        let told = |class| identification("ann", class, "s", "").iter().map(|a| a.kind).collect::<Vec<_>>();
        assert_eq!(told("7374616666"), [kind::USER_NAME, kind::ACCT_SESSION_ID]);
        assert_eq!(told("557368310011"), [kind::ACCT_SESSION_ID]);
    }

    #[test]
    fn nobody_else_reaches_the_socket_from_its_first_moment() {
        let folder = std::env::temp_dir().join(format!("usher-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control.sock");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    // Between two of them there may be none.
                    if let Ok(said) = fs::metadata(&path) {
                        assert_eq!(said.permissions().mode() & 0o777, 0o600);
                        seen += 1;
                    }
                }
                seen
            });
            for _ in 0..2000 {
                let listener = listen(&path).unwrap();
                assert!(UnixStream::connect(&path).is_ok());
                drop(listener);
                fs::remove_file(&path).unwrap();
            }
            // What a server that died left behind is in nobody's way.
            drop(listen(&path).unwrap());
            let left = folder.join(format!(".control.sock.{}", std::process::id()));
            fs::create_dir(&left).unwrap();
            drop(UnixListener::bind(left.join("new")).unwrap());
            drop(listen(&path).unwrap());
            done.store(true, Ordering::Relaxed);
            assert!(watch.join().unwrap() > 0);
        });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn servers_with_sockets_beside_each_other_begin_at_one_time() {
        let folder = std::env::temp_dir().join(format!("usher-control-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        thread::scope(|scope| {
            for name in ["one.sock", "two.sock"] {
                let path = folder.join(name);
                scope.spawn(move || {
                    for _ in 0..500 {
                        drop(listen(&path).unwrap());
                    }
                });
            }
        });
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["one.sock", "two.sock"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_named() {
        let path = std::env::temp_dir().join(format!("usher-control-none-{}/c.sock", std::process::id()));
        let error = listen(&path).unwrap_err().to_string();
        assert!(error.contains(path.parent().unwrap().to_str().unwrap()), "{error}");
        // Longer than a socket's address may be (unix(7)).
        let folder = std::env::temp_dir().join(format!("usher-control-long-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s".repeat(100));
        let error = listen(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_request_comes_within_its_time_or_not_at_all() {
        let patience = Duration::from_millis(300);
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"\"Status\"\n").unwrap();
        assert_eq!(line(&near, patience).unwrap(), b"\"Status\"\n");
        // One octet at a time, each long before the patience for a single read ends.
        let slow = thread::spawn(move || {
            while far.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let begun = Instant::now();
        assert!(line(&near, patience).is_err());
        assert!(begun.elapsed() >= patience);
        drop(near);
        slow.join().unwrap();
    }

    #[test]
    fn a_request_without_end_is_not_read_to_its_end() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let endless = thread::spawn(move || while far.write_all(&[b' '; 4096]).is_ok() {});
        assert!(line(&near, Duration::from_secs(600)).is_err());
        drop(near);
        endless.join().unwrap();
    }
}
