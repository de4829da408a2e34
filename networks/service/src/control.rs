//! The control socket of a service: a Unix socket that only its owner can open. Each request and each answer is one
//! line of JSON. A request has one answer, or several until one side closes the connection.

mod client;

pub use client::{ControlError, ControlService};

use crate::bounded_listener::REST;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of connections at one time.
const CONNECTIONS: usize = 16;
/// The octets of one request, at most.
const REQUEST: usize = 1 << 16;
/// The time limit for receiving a request, and for sending an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that no other server listens at `path`.
///
/// # Errors
/// Another server listens there.
pub fn ensure_control_socket_unused(path: &Path) -> io::Result<()> {
    if UnixStream::connect(path).is_ok() {
        let said = format!("another server listens on {}; stop it first", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, said));
    }
    Ok(())
}

/// Listens at a path. Replaces a stale socket on which no server listens.
///
/// Other users can never open the socket. It is created in a folder that only its owner can enter, and moves to its
/// path after its mode is set. (A umask would affect all threads.) The folder's name has the socket's name and the
/// process id, so servers can start side by side.
///
/// # Errors
/// An error of the system, or a file that cannot be created.
pub fn bind_control_socket(path: &Path) -> io::Result<UnixListener> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot create the socket {}: {error}", path.display()))
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // Another process with this id may have died and left a folder of the same name, so remove that first.
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
        // An error is ignored: if creating the file failed, there is none to remove.
        let _ = fs::remove_file(&new);
    }
    let emptied = fs::remove_dir(&folder).map_err(|error| named(&folder, error));
    let listener = made.map_err(|error| named(path, error))?;
    emptied?;
    Ok(listener)
}

/// A connection whose request is being answered.
#[derive(Debug)]
pub struct ControlConnection(UnixStream);

impl ControlConnection {
    /// Returns the user id of the peer, if the system provides it.
    #[must_use]
    pub fn peer_user_id(&self) -> Option<u32> {
        rustix::net::sockopt::socket_peercred(&self.0).ok().map(|peer| peer.uid.as_raw())
    }

    /// Writes one answer as a line.
    ///
    /// # Errors
    /// The peer does not read it.
    pub fn write_answer<A: Serialize>(&self, answer: &A) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        (&self.0).write_all(&line)
    }

    /// True if the peer has closed the connection. A peer sends nothing after its request.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let shortly = Some(Duration::from_millis(1));
        self.0.set_read_timeout(shortly).is_err() || matches!((&self.0).read(&mut [0]), Ok(0))
    }

    /// Reads one line within `patience`.
    ///
    /// # Errors
    /// The line does not arrive in time, or is too long.
    fn read_line(&self, patience: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + patience;
        let (mut line, mut part) = (Vec::new(), [0; 4096]);
        while line.last() != Some(&b'\n') {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || line.len() > REQUEST {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.set_read_timeout(Some(left))?;
            match (&self.0).read(&mut part)? {
                0 => break,
                n => line.extend_from_slice(&part[..n]),
            }
        }
        Ok(line)
    }

    /// Reads the request and has it answered.
    fn serve<Q: DeserializeOwned, A: Serialize>(
        &self,
        failed: fn(String) -> A,
        answer: impl FnOnce(Q, &Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.0.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        let line = self.read_line(REQUEST_TIMEOUT)?;
        match serde_json::from_slice(&line) {
            Ok(request) => answer(request, self),
            Err(error) => self.write_answer(&failed(format!("not a request: {error}"))),
        }
    }
}

/// Counts an open connection until it is dropped, also by a panic or because a thread does not start.
struct OpenConnectionCount {
    open: Arc<AtomicUsize>,
    others: usize,
}

impl OpenConnectionCount {
    fn add(open: &Arc<AtomicUsize>) -> Self {
        Self { others: open.fetch_add(1, Ordering::Relaxed), open: open.clone() }
    }
}

impl Drop for OpenConnectionCount {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections without end. Pauses when the system gives none, mostly for lack of descriptors.
fn accepted_connections(listener: &UnixListener) -> impl Iterator<Item = UnixStream> {
    listener.incoming().filter_map(|came| match came {
        Ok(stream) => Some(stream),
        Err(_) => {
            thread::sleep(REST);
            None
        }
    })
}

/// Starts to answer requests at a path, one answer each, like [`serve_connections`]. `answer` receives a request and
/// the peer's user id, if the system provides it.
///
/// # Errors
/// Another server listens there, or the socket cannot be created.
pub fn serve_requests<Q: DeserializeOwned + 'static, A: Serialize + 'static>(
    path: &Path,
    failed: fn(String) -> A,
    answer: impl Fn(Q, Option<u32>) -> A + Send + Sync + 'static,
) -> io::Result<()> {
    serve_connections(path, failed, move |request, connection| {
        connection.write_answer(&answer(request, connection.peer_user_id()))
    })
}

/// Starts to serve connections at a path, on threads that run until the program ends. `answer` receives the request
/// of a connection and writes its answers; an error of it ends the connection. `failed` makes an answer from an error
/// in a request.
///
/// # Errors
/// Another server listens there, or the socket cannot be created.
pub fn serve_connections<Q: DeserializeOwned + 'static, A: Serialize + 'static>(
    path: &Path,
    failed: fn(String) -> A,
    answer: impl Fn(Q, &ControlConnection) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    ensure_control_socket_unused(path)?;
    let listener = bind_control_socket(path)?;
    let (answer, open) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        for stream in accepted_connections(&listener) {
            let connection = ControlConnection(stream);
            let answer = answer.clone();
            let count = OpenConnectionCount::add(&open);
            if count.others >= CONNECTIONS {
                let said = failed(format!("{CONNECTIONS} requests are in progress; try again"));
                // A failed write is ignored, and the write does not block: a slow reader must not delay the accept
                // loop.
                let _ = connection.0.set_nonblocking(true).and_then(|()| connection.write_answer(&said));
                continue;
            }
            let serve = move || {
                // An error is ignored: a peer that has disconnected needs no answer.
                let _ = connection.serve(failed, |request, connection| answer(request, connection));
                drop(count);
            };
            let _ = thread::Builder::new().name("usher-control".to_owned()).spawn(serve);
        }
    };
    thread::Builder::new().name("usher-control".to_owned()).spawn(accept)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_request_is_answered_and_what_is_none_is_refused() {
        let path = std::env::temp_dir().join(format!("usher-control-ask-{}.sock", std::process::id()));
        type TestAnswer = Result<(u32, Option<u32>), String>;
        serve_requests(&path, TestAnswer::Err, |n: u32, user| Ok((n + 1, user))).unwrap();
        let service = ControlService { name: "server", command: "usher test serve" };
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(service.request_reply::<_, TestAnswer>(&path, &41).unwrap(), Ok((42, Some(own))));
        let refused = service.request_reply::<_, TestAnswer>(&path, &"x").unwrap().unwrap_err();
        assert!(refused.starts_with("not a request: "), "{refused}");
        assert_eq!(ensure_control_socket_unused(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
        let error = service.request_reply::<_, TestAnswer>(&path, &41).unwrap_err().to_string();
        assert!(error.starts_with("no server is running (cannot connect to "), "{error}");
        assert!(error.ends_with("; start it with: usher test serve"), "{error}");
    }

    #[test]
    fn a_request_may_have_many_answers_until_its_reader_leaves() {
        let path = std::env::temp_dir().join(format!("usher-control-many-{}.sock", std::process::id()));
        let (ended, seen) = std::sync::mpsc::channel();
        let ended = std::sync::Mutex::new(ended);
        serve_connections(
            &path,
            |message| message.len(),
            move |n: usize, connection| {
                for answer in n.. {
                    // The answer that ends this waits until the reader has gone, however busy the machine is.
                    if answer >= n + 3 && connection.is_closed() {
                        break;
                    }
                    if answer < n + 3 {
                        connection.write_answer(&answer)?;
                    }
                }
                let _ = ended.lock().unwrap().send(());
                Ok(())
            },
        )
        .unwrap();
        let mut heard = Vec::new();
        let service = ControlService { name: "server", command: "usher test serve" };
        service
            .follow_replies(&path, &7, &mut |n: usize| {
                heard.push(n);
                Ok(heard.len() < 3)
            })
            .unwrap();
        assert_eq!(heard, [7, 8, 9]);
        seen.recv().unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn nobody_else_reaches_the_socket_from_its_first_moment() {
        let folder = std::env::temp_dir().join(format!("usher-control-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control.sock");
        let (done, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Between two attempts the file may be absent.
                    if let Ok(said) = fs::metadata(&path) {
                        assert_eq!(said.permissions().mode() & 0o777, 0o600);
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let mut times = 0;
            // Until the other thread has run, too.
            while !watch.is_finished() && (times < 2000 || seen.load(Ordering::Relaxed) < 100) {
                let listener = bind_control_socket(&path).unwrap();
                assert!(UnixStream::connect(&path).is_ok());
                drop(listener);
                fs::remove_file(&path).unwrap();
                times += 1;
            }
            // A dead server's leftover does not prevent a start.
            drop(bind_control_socket(&path).unwrap());
            let left = folder.join(format!(".control.sock.{}", std::process::id()));
            fs::create_dir(&left).unwrap();
            drop(UnixListener::bind(left.join("new")).unwrap());
            drop(bind_control_socket(&path).unwrap());
            done.store(true, Ordering::Relaxed);
            watch.join().unwrap();
        });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn servers_with_sockets_beside_each_other_begin_at_one_time() {
        let folder = std::env::temp_dir().join(format!("usher-control-beside-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        thread::scope(|scope| {
            for name in ["one.sock", "two.sock"] {
                let path = folder.join(name);
                scope.spawn(move || {
                    for _ in 0..500 {
                        drop(bind_control_socket(&path).unwrap());
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
        let error = bind_control_socket(&path).unwrap_err().to_string();
        assert!(error.contains(path.parent().unwrap().to_str().unwrap()), "{error}");
        // Longer than the address of a socket may be (unix(7)).
        let folder = std::env::temp_dir().join(format!("usher-control-long-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s".repeat(100));
        let error = bind_control_socket(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_request_comes_within_its_time_or_not_at_all() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let near = ControlConnection(near);
        far.write_all(b"\"Status\"\n").unwrap();
        assert_eq!(near.read_line(Duration::from_secs(60)).unwrap(), b"\"Status\"\n");
        // One octet at a time, each well before a single read times out.
        let slow = thread::spawn(move || {
            while far.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let (begun, patience) = (Instant::now(), Duration::from_millis(300));
        assert!(near.read_line(patience).is_err());
        assert!(begun.elapsed() >= patience);
        drop(near);
        slow.join().unwrap();
    }

    #[test]
    fn a_request_without_end_is_not_read_to_its_end() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let near = ControlConnection(near);
        let endless = thread::spawn(move || while far.write_all(&[b' '; 4096]).is_ok() {});
        assert!(near.read_line(Duration::from_secs(600)).is_err());
        drop(near);
        endless.join().unwrap();
    }
}
