//! A new configuration for a server that runs.

use super::Running;
use crate::assembly::ServerAssembly;
use crate::fetched;
use crate::installation::{self, Installation};
use crate::mailbox::Message;
use crate::shards;
use crate::status::CertificateStatus;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use usher_aaa::ShardConfig;
use usher_aaa::service::{Inline, Reading};
use usher_aaa::store::ClientRow;
use usher_aaa_config::model::{File, Realm};
use usher_aaa_config::{Built, lists, reading};
use usher_core::SecureRng;

/// How long a store that was away at the start is left alone before it is asked for its clients again.
const AGAIN: Duration = Duration::from_millis(500);

/// How long a shard may take to take another configuration.
const TAKING: Duration = Duration::from_secs(10);

/// What is taken up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// All of a configuration: what was known of users and of their certificates may be otherwise.
    All,
    /// Its revocation lists; `added`: they may take certificates back that they did not.
    Lists { added: bool },
}

impl Running {
    /// Reads the configuration again; where something is wrong with it, the old one stays. Says what of it takes effect only
    /// when the server is started again.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn reload(&self) -> Result<Vec<&'static str>, String> {
        let done = self.try_reload();
        let mut reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        match &done {
            Ok(later) => {
                reloads.0 += 1;
                match later.as_slice() {
                    [] => tracing::info!("reloaded"),
                    parts => tracing::warn!(
                        parts = parts.join(", "),
                        "reloaded, but for what has changed of these parts: it takes effect when the server is started again"
                    ),
                }
            }
            Err(error) => {
                reloads.1 += 1;
                for line in error.lines() {
                    tracing::error!(fault = line, "not reloaded; the old configuration stays");
                }
            }
        }
        done
    }

    fn try_reload(&self) -> Result<Vec<&'static str>, String> {
        // One after the other: the file that is read last is the one that all shards have in the end.
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        // Lists that were never fetched are fetched by who looks after them: nobody waits for their publishers here.
        let mut place = Installation::open(self.config_path.as_deref()).map_err(|e| e.to_string())?;
        if let Some(within) = &self.within {
            within.join(&mut place.loaded);
        }
        self.take_place(place, self.clients()?, Taken::All)
    }

    /// Takes up another configuration, with clients of the store; the caller is alone. Says what of it a running server does
    /// not take up.
    ///
    /// # Errors
    /// What is wrong with it.
    fn take_place(
        &self,
        mut place: Installation,
        rows: Vec<ClientRow>,
        what: Taken,
    ) -> Result<Vec<&'static str>, String> {
        let mut before = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.read_place();
        let later = fixed(&self.start, &place);
        keep_diameter(&mut place.loaded.file, &old.loaded.file);
        let own = place.own_secrets(true).map_err(|e| e.to_string())?;
        let mut rng = SecureRng::from_seed(installation::random().map_err(|e| e.to_string())?);
        let ServerAssembly { tls, built } =
            ServerAssembly::of(&place, (&rows, &own), self.shards, &self.wall, &mut rng)?;
        // Before the shards are told: they connect at once.
        let outgoing = || self.outgoing.write().unwrap_or_else(PoisonError::into_inner);
        let tls_before = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let homes = {
            let mut homes = outgoing();
            let next = homes.next(&place.loaded.file, tls.as_deref());
            std::mem::replace(&mut *homes, next)
        };
        // Before the shards forget whom they found: what they find from then on is of the new file.
        let mut inline = built.inline.clone();
        self.swap_inline(&mut inline);
        let mut rows_read = reading(&place.loaded);
        self.swap_reading(&mut rows_read);
        let users = &place.loaded.file.users;
        // The store may be away while a list is taken up: who was let in gets in, as lists say nothing of users.
        if what == Taken::All {
            self.known.reconfigure(users);
        }
        let back = || {
            self.swap_inline(&mut inline);
            self.swap_reading(&mut rows_read);
            if what == Taken::All {
                self.known.reconfigure(&old.loaded.file.users);
            }
            homes.take_back(&old.loaded.file, tls_before.as_deref());
            *outgoing() = homes;
        };
        let shards = self.mailboxes.all().len();
        take(shards, &built, &before, TAKING, back, |number, built| self.tell(number, built))?;
        *before = built;
        let status = CertificateStatus::of(&place.loaded, tls.as_ref());
        {
            let mut before = self.status.write().unwrap_or_else(PoisonError::into_inner);
            *before = match what {
                Taken::Lists { added: false } => status.remembering(&before),
                _ => status,
            };
        }
        if let Some(tls) = &tls {
            shards::replace_tls(&self.listeners, tls);
        }
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        // Within another program the log is that one's.
        if self.within.is_none() && old.loaded.file.log != place.loaded.file.log {
            usher_host::log::change(place.loaded.file.log);
        }
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows;
        *self.place.write().unwrap_or_else(PoisonError::into_inner) = place;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(later)
    }

    /// Takes up what is new of revocation lists, and nothing else: a store that is away does not keep them waiting.
    ///
    /// # Errors
    /// What is wrong with them, or who does not take them.
    pub(crate) fn take_lists(&self) -> Result<(), String> {
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.read_place();
        let mut place = before.clone();
        fetched::read_again(&mut place.loaded, &place.state_dir)?;
        let added = !lists::add_nothing(&before.loaded, &place.loaded);
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.take_place(place, rows, Taken::Lists { added }).map(drop)
    }

    fn swap_inline(&self, other: &mut Inline) {
        std::mem::swap(&mut *self.inline.write().unwrap_or_else(PoisonError::into_inner), other);
    }

    fn swap_reading(&self, other: &mut Reading) {
        std::mem::swap(&mut *self.reading.write().unwrap_or_else(PoisonError::into_inner), other);
    }

    /// Gives a shard a configuration; what is received says how that went.
    fn tell(&self, number: usize, built: &Built) -> Receiver<Result<(), String>> {
        let mut config = built.config.clone();
        let shard = u16::try_from(number).unwrap_or(u16::MAX);
        config.shard = Some(ShardConfig { number: shard, key: self.key.clone() });
        let (done, taken) = sync_channel(1);
        self.mailboxes.send(shard, Message::Reload(Box::new(config), built.clients.clone(), done));
        taken
    }

    /// Waits until the store answers, and then serves the clients that it has.
    pub(crate) fn await_clients(&self) {
        loop {
            std::thread::sleep(AGAIN);
            if self.clients().is_err() {
                continue;
            }
            match self.reload() {
                Ok(_) => return tracing::info!("the store's clients are served"),
                // A file that has become faulty meanwhile: its clients come with the next reload.
                Err(_) if self.clients().is_ok() => return,
                Err(_) => {}
            }
        }
    }

    fn clients(&self) -> Result<Vec<ClientRow>, String> {
        let mut store = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        store.clients().map_err(|e| e.to_string())
    }
}

/// Tells all shards what is new, and waits until they have taken it. Where one does not in time, or refuses it, `back` is
/// done and all are told again what was before, which reaches even the slow one behind the new: they do not differ for
/// long.
fn take<T>(
    shards: usize,
    new: &T,
    before: &T,
    patience: Duration,
    back: impl FnOnce(),
    tell: impl Fn(usize, &T) -> Receiver<Result<(), String>>,
) -> Result<(), String> {
    let waiting: Vec<_> = (0..shards).map(|number| tell(number, new)).collect();
    let mut all = waiting.into_iter().map(|taken| match taken.recv_timeout(patience) {
        Ok(taken) => taken,
        // It is slow, or has ended and takes nothing more.
        Err(_) => Err("a shard does not take it".to_owned()),
    });
    all.try_for_each(|taken| taken).inspect_err(|_| {
        back();
        for number in 0..shards {
            // It took this before.
            drop(tell(number, before));
        }
    })
}

/// Puts the Diameter part of the file of the start into a new one, since the node keeps its peers and routes: which realms
/// are known by Diameter is of the old file, all else of the new one. A realm that is new there is not known yet.
fn keep_diameter(new: &mut File, old: &File) {
    let of = |realms: &[Realm], name: &str| {
        realms.iter().find(|r| r.name.to_lowercase() == name.to_lowercase()).cloned()
    };
    new.diameter.clone_from(&old.diameter);
    let homes: Vec<String> = new.home_server.iter().map(|h| h.name.clone()).collect();
    let known = |realm: &Realm| realm.servers.iter().all(|server| homes.contains(server));
    let asked = std::mem::take(&mut new.realm);
    let gone = old.realm.iter().filter(|r| !r.diameter.is_empty() && of(&asked, &r.name).is_none()).cloned();
    let gone: Vec<Realm> = gone.collect();
    let kept = asked.into_iter().filter_map(|realm| match of(&old.realm, &realm.name) {
        Some(before) if before.diameter != realm.diameter => Some(before).filter(known),
        None if !realm.diameter.is_empty() => None,
        _ => Some(realm),
    });
    new.realm = kept.chain(gone).collect();
}

/// What is changed that a running server does not take up.
fn fixed(old: &Installation, new: &Installation) -> Vec<&'static str> {
    let (a, b) = (&old.loaded.file, &new.loaded.file);
    let says = |x: &dyn std::fmt::Debug, y: &dyn std::fmt::Debug| format!("{x:?}") != format!("{y:?}");
    let url = |p: &Installation| p.loaded.url.clone();
    let routes = |f: &File| -> BTreeMap<_, _> {
        let routes = f.realm.iter().filter(|r| !r.diameter.is_empty());
        routes.map(|r| (r.name.to_lowercase(), r.diameter.clone())).collect()
    };
    [
        ("shards", a.shards != b.shards),
        ("state_dir", a.state_dir != b.state_dir),
        ("listen", says(&a.listen, &b.listen)),
        (
            "users.store",
            a.users.store != b.users.store || a.users.path != b.users.path || url(old) != url(new),
        ),
        ("users.threads", a.users.threads != b.users.threads),
        ("diameter", says(&a.diameter, &b.diameter) || routes(a) != routes(b)),
        ("pool", says(&a.pool, &b.pool)),
        (
            "limits.failures",
            (a.limits.failures, a.limits.failures_within, a.limits.failures_hold)
                != (b.limits.failures, b.limits.failures_within, b.limits.failures_hold),
        ),
        ("limits.simultaneous", a.limits.simultaneous != b.limits.simultaneous),
        ("accounting", says(&a.accounting, &b.accounting)),
        ("metrics", says(&a.metrics, &b.metrics)),
        ("control", says(&a.control, &b.control)),
    ]
    .into_iter()
    .filter_map(|(what, changed)| changed.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::Upstreams;
    use std::cell::RefCell;
    use usher_live::Carriage;

    #[test]
    fn what_one_shard_does_not_take_is_taken_back_from_all() {
        let told = RefCell::new(Vec::new());
        let hanging = RefCell::new(Vec::new());
        let tell = |number: usize, what: &&'static str| {
            told.borrow_mut().push((number, *what));
            let (done, taken) = sync_channel(1);
            match number {
                1 => hanging.borrow_mut().push(done),
                _ => done.send(Ok(())).unwrap(),
            }
            taken
        };
        let back = || told.borrow_mut().push((9, "back"));
        assert_eq!(take(1, &"new", &"old", Duration::ZERO, back, tell), Ok(()));
        assert_eq!(told.take(), [(0, "new")]);
        let back = || told.borrow_mut().push((9, "back"));
        assert!(take(2, &"new", &"old", Duration::ZERO, back, tell).is_err());
        assert_eq!(told.take(), [(0, "new"), (1, "new"), (9, "back"), (0, "old"), (1, "old")]);
    }

    #[test]
    fn what_is_said_of_diameter_is_of_the_start() {
        let file = |peer: &str, realms: &str| -> File {
            let head = "[[home_server]]\nname = \"h\"\naddress = \"192.0.2.9:1812\"\n[diameter]\nidentity = \"a\"\nrealm = \"b\"\n";
            toml::from_str(&format!(
                "{head}[[diameter.peer]]\nidentity = \"c\"\nconnect = \"{peer}\"\n{realms}"
            ))
            .unwrap()
        };
        let realm = |name: &str, more: &str| format!("[[realm]]\nname = \"{name}\"\n{more}\n");
        let (to, home) = ("diameter = [\"c\"]", "servers = [\"h\"]");
        let old = file(
            "192.0.2.2:3868",
            &[realm("Kept", to), realm("gone", to), realm("home", home), realm("lost", "servers = [\"i\"]")]
                .concat(),
        );
        let mut new = file(
            "192.0.2.3:3868",
            &[
                realm("kept", &format!("{to}\nstrip = true")),
                realm("home", to),
                realm("lost", to),
                realm("added", to),
                realm("here", home),
            ]
            .concat(),
        );
        keep_diameter(&mut new, &old);
        assert_eq!(new.diameter.as_ref().unwrap().peer[0].connect, "192.0.2.2:3868".parse().ok());
        let lead: Vec<_> =
            new.realm.iter().map(|r| (r.name.as_str(), r.diameter.len(), r.servers.len())).collect();
        assert_eq!(lead, [("kept", 1, 0), ("home", 0, 1), ("here", 0, 1), ("gone", 1, 0)]);
        assert!(new.realm[0].strip);
        let homes = Upstreams::of(&new, None);
        let to = |address: &str| homes.carriage(address.parse().unwrap());
        assert!(matches!(to("192.0.2.2:3868"), Carriage::Plain), "the node connects there again");
        assert!(matches!(to("192.0.2.3:3868"), Carriage::Refused));
    }
}
