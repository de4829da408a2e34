//! The few commands of a shell that scripts use, answered from the world's state.

use super::Stop;
use super::tcp::{LOCAL_PORT, REMOTE_PORT, Socket};
use super::world::Socket as Held;
use super::world::World;
use usher_sim::tcp::{FastOpenCache, State};

/// A state's name as `sockstat` and `tcpdrop` have it.
pub(super) fn state_name(socket: &Socket) -> &'static str {
    match socket.connection.as_ref().map(|c| c.state()) {
        _ if socket.listening => "LISTEN",
        None | Some(State::Closed) => "CLOSED",
        Some(State::SynSent) => "SYN_SENT",
        Some(State::SynReceived) => "SYN_RCVD",
        Some(State::Established) => "ESTABLISHED",
        Some(State::FinWait1) => "FIN_WAIT_1",
        Some(State::FinWait2) => "FIN_WAIT_2",
        Some(State::CloseWait) => "CLOSE_WAIT",
        Some(State::Closing) => "CLOSING",
        Some(State::LastAck) => "LAST_ACK",
        Some(State::TimeWait) => "TIME_WAIT",
    }
}

impl World {
    /// Runs commands, each a pipeline; one that fails is a divergence.
    pub(super) fn shell(&mut self, text: &str) -> Result<(), Stop> {
        for line in text.split(['\n', ';']).flat_map(|l| l.split("&&")) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut piped = Vec::new();
            let mut succeeded = true;
            for command in line.split('|') {
                let words: Vec<&str> = command.split_whitespace().collect();
                (piped, succeeded) = self.command(&words, &piped)?;
            }
            if !succeeded {
                return Err(Stop::Diverges(format!("`{line}` fails")));
            }
        }
        self.collect();
        Ok(())
    }

    /// Runs one command on what was piped to it; its output, and whether it succeeded.
    fn command(&mut self, words: &[&str], piped: &[String]) -> Result<(Vec<String>, bool), Stop> {
        let unknown = || Stop::Unsupported(format!("the command `{}`", words.join(" ")));
        let (program, args) = words.split_first().ok_or_else(unknown)?;
        match *program {
            "sysctl" => {
                for setting in args.iter().filter(|a| !a.starts_with('-')) {
                    let (name, value) = setting.split_once('=').ok_or_else(unknown)?;
                    self.settings.set(name, value)?;
                    if !self.settings.fast_open_client {
                        // FreeBSD forgets its cookies then.
                        self.tcp.fast_open = FastOpenCache::default();
                    }
                }
                Ok((Vec::new(), true))
            }
            "grep" => {
                let pattern = args.iter().find(|a| !a.starts_with('-')).ok_or_else(unknown)?;
                let known = ["-c", "-v", "-q", "-F", "-w"];
                if args.iter().any(|a| a.starts_with('-') && !known.contains(a)) {
                    return Err(unknown());
                }
                let pattern = pattern.trim_matches(['\'', '"']);
                let keeps = |line: &&String| line.contains(pattern) != args.contains(&"-v");
                let found: Vec<String> = piped.iter().filter(keeps).cloned().collect();
                let succeeded = !found.is_empty();
                let shown = if args.contains(&"-c") { vec![found.len().to_string()] } else { found };
                Ok((shown, succeeded))
            }
            "sockstat" => self.sockstat(args).ok_or_else(unknown).map(|lines| (lines, true)),
            "tcpdrop" => match args {
                ["-s", state] => {
                    let all = 0..self.tcp.sockets.len();
                    let meant: Vec<usize> =
                        all.filter(|&i| state_name(&self.tcp.sockets[i]) == *state).collect();
                    for i in meant {
                        self.tcp.abort(self.now, i);
                    }
                    Ok((Vec::new(), true))
                }
                ["-a"] => {
                    for i in 0..self.tcp.sockets.len() {
                        self.tcp.abort(self.now, i);
                    }
                    Ok((Vec::new(), true))
                }
                _ => Err(unknown()),
            },
            "true" | "sync" => Ok((Vec::new(), true)),
            _ => Err(unknown()),
        }
    }

    /// The sockets as FreeBSD's `sockstat` lists them; `None` for options that are not known here.
    fn sockstat(&self, args: &[&str]) -> Option<Vec<String>> {
        let (mut family, mut port) = (None, None);
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match *arg {
                "-4" => family = Some(false),
                "-6" => family = Some(true),
                "-s" | "-n" => {}
                "-P" if *rest.next()? == "tcp" => {}
                "-p" => port = Some(rest.next()?.parse::<u16>().ok()?),
                _ => return None,
            }
        }
        let meant = family.is_none_or(|six| six == self.settings.ipv6)
            && port.is_none_or(|p| p == LOCAL_PORT || p == REMOTE_PORT);
        let held = |i: usize| {
            self.files.iter().find(|(_, f)| matches!(f.socket, Held::Tcp(s) if s == i)).map(|(fd, _)| *fd)
        };
        let line = |(i, s): (usize, &Socket)| {
            let state = state_name(s);
            let fd = held(i);
            // What is closed and in no application's hand is not there.
            if !meant || (fd.is_none() && state == "CLOSED") {
                return None;
            }
            let owner = fd.map_or("? ? ? ?".to_owned(), |fd| format!("root packetdril 1 {fd}"));
            let kind = if self.settings.ipv6 { "tcp6" } else { "tcp4" };
            Some(format!("{owner} {kind} local:{LOCAL_PORT} remote:{REMOTE_PORT} {state}"))
        };
        Some(self.tcp.sockets.iter().enumerate().filter_map(line).collect())
    }
}
