//! Reload of the configuration of a running server.

use super::RunningServer;
use crate::assembly::AssembledServerParts;
use crate::fetched;
use crate::installation::ServerInstallation;
use crate::mailbox::ShardMessage;
use crate::shards;
use crate::status::CertificateCheckConfig;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use usher_aaa::ShardConfig;
use usher_aaa::service::{InlineUsers, UserRowReader};
use usher_aaa::store::ClientRow;
use usher_aaa_config::model::{ConfigFile, RealmConfig};
use usher_aaa_config::{BuiltConfig, lists, row_reader};
use usher_service::setup::secure_rng;

/// Interval of attempts to load the clients of a store that was unavailable at the start.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout for a shard to apply a configuration.
const TAKING: Duration = Duration::from_secs(10);

/// The scope of a reload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReloadScope {
    /// The whole configuration. Cached users and certificate checks may have changed.
    All,
    /// Revocation lists only. `added`: they may revoke further certificates.
    Lists { added: bool },
}

impl RunningServer {
    /// Reloads the configuration. After an error the former one stays. Returns the changed settings that need a
    /// restart.
    ///
    /// # Errors
    /// The error in the configuration.
    pub(crate) fn reload_config(&self) -> Result<Vec<&'static str>, String> {
        let done = self.try_reload();
        let mut reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        match &done {
            Ok(later) => {
                reloads.0 += 1;
                match later.as_slice() {
                    [] => tracing::info!("reloaded"),
                    parts => tracing::warn!(
                        parts = parts.join(", "),
                        "reloaded; changes of these parts take effect after a restart"
                    ),
                }
            }
            Err(error) => {
                reloads.1 += 1;
                for line in error.lines() {
                    tracing::error!(fault = line, "not reloaded: the old configuration stays");
                }
            }
        }
        done
    }

    fn try_reload(&self) -> Result<Vec<&'static str>, String> {
        // Reloads run one after another, so that all shards end with the file that was read last.
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread for lists fetches missing ones. A reload does not wait for their publishers.
        let mut place =
            ServerInstallation::from_config(self.config_path.as_deref()).map_err(|e| e.to_string())?;
        if let Some(within) = &self.embedding_client {
            within.add_embedded_client(&mut place.loaded);
        }
        self.apply_installation(place, self.load_clients()?, ReloadScope::All)
    }

    /// Applies another configuration with the store's clients. The caller holds the reload lock. Returns the
    /// changed settings that need a restart.
    ///
    /// # Errors
    /// The error in the configuration.
    fn apply_installation(
        &self,
        mut place: ServerInstallation,
        rows: Vec<ClientRow>,
        what: ReloadScope,
    ) -> Result<Vec<&'static str>, String> {
        let mut before = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.current_installation();
        let later = changed_fixed_settings(&self.start, &place);
        retain_diameter_config(&mut place.loaded.file, &old.loaded.file);
        let own = place.own_secrets(true).map_err(|e| e.to_string())?;
        let mut rng = secure_rng().map_err(|e| e.to_string())?;
        let AssembledServerParts { tls, built } = AssembledServerParts::from_installation(
            &place,
            (&rows, &own),
            self.shards,
            &self.wall,
            &mut rng,
        )?;
        // Update the outgoing peers before the shards, because shards connect to them at once.
        let outgoing = || self.outgoing.write().unwrap_or_else(PoisonError::into_inner);
        let tls_before = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let homes = {
            let mut homes = outgoing();
            let next = homes.with_replaced_config(&place.loaded.file, tls.as_deref());
            std::mem::replace(&mut *homes, next)
        };
        // Swap these before the shards evict users, because lookups that follow the eviction must use the new file.
        let mut inline = built.inline.clone();
        self.swap_inline_users(&mut inline);
        let mut rows_read = row_reader(&place.loaded);
        self.swap_row_reader(&mut rows_read);
        let users = &place.loaded.file.users;
        // The store may be unavailable while a list is applied. Cached users stay valid, since lists do not concern
        // them.
        if what == ReloadScope::All {
            self.user_cache.reconfigure(users);
        }
        let back = || {
            self.swap_inline_users(&mut inline);
            self.swap_row_reader(&mut rows_read);
            if what == ReloadScope::All {
                self.user_cache.reconfigure(&old.loaded.file.users);
            }
            homes.take_back(&old.loaded.file, tls_before.as_deref());
            *outgoing() = homes;
        };
        let shards = self.mailboxes.as_slice().len();
        update_or_restore_shards(shards, &built, &before, TAKING, back, |number, built| {
            self.send_config(number, built)
        })?;
        *before = built;
        let status = CertificateCheckConfig::from_config(&place.loaded, tls.as_ref());
        {
            let mut before = self.status.write().unwrap_or_else(PoisonError::into_inner);
            *before = match what {
                ReloadScope::Lists { added: false } => status.with_ocsp_cache_of(&before),
                _ => status,
            };
        }
        if let Some(tls) = &tls {
            shards::replace_tls(&self.listeners, tls);
        }
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        // An embedded server uses the log of its program.
        if self.embedding_client.is_none() && old.loaded.file.log != place.loaded.file.log {
            usher_service::log::change_logging(place.loaded.file.log);
        }
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows;
        *self.installation.write().unwrap_or_else(PoisonError::into_inner) = place;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(later)
    }

    /// Applies new revocation lists only. It does not need the store.
    ///
    /// # Errors
    /// A list is invalid, or a shard does not apply it.
    pub(crate) fn apply_revocation_lists(&self) -> Result<(), String> {
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current_installation();
        let mut place = before.clone();
        fetched::reload_revocation_list_files(&mut place.loaded, &place.state_dir)?;
        let added = !lists::revokes_no_new_certificates(&before.loaded, &place.loaded);
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.apply_installation(place, rows, ReloadScope::Lists { added }).map(drop)
    }

    fn swap_inline_users(&self, other: &mut InlineUsers) {
        std::mem::swap(&mut *self.inline.write().unwrap_or_else(PoisonError::into_inner), other);
    }

    fn swap_row_reader(&self, other: &mut UserRowReader) {
        std::mem::swap(&mut *self.reading.write().unwrap_or_else(PoisonError::into_inner), other);
    }

    /// Sends a configuration to a shard. The receiver gets the result.
    fn send_config(&self, number: usize, built: &BuiltConfig) -> Receiver<Result<(), String>> {
        let mut config = built.config.clone();
        let shard = u16::try_from(number).unwrap_or(u16::MAX);
        config.shard = Some(ShardConfig { number: shard, key: self.key.clone() });
        let (done, taken) = sync_channel(1);
        self.mailboxes.send(shard, ShardMessage::Reload(Box::new(config), built.clients.clone(), done));
        taken
    }

    /// Waits until the store is available, and then serves its clients.
    pub(crate) fn wait_for_store_clients(&self) {
        loop {
            std::thread::sleep(STORE_RETRY_INTERVAL);
            if self.load_clients().is_err() {
                continue;
            }
            match self.reload_config() {
                Ok(_) => return tracing::info!("the store's clients are loaded"),
                // The file now has errors. The clients are read at the next reload.
                Err(_) if self.load_clients().is_ok() => return,
                Err(_) => {}
            }
        }
    }

    fn load_clients(&self) -> Result<Vec<ClientRow>, String> {
        let mut store = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        store.list_clients().map_err(|e| e.to_string())
    }
}

/// Sends a change to all shards and waits until they have applied it.
///
/// If a shard fails or times out, calls `back` and sends the former state to all shards. A slow shard receives both
/// in order, so the shards soon agree again.
fn update_or_restore_shards<T>(
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
        // No reply came within the time limit: the shard is slow, or has ended.
        Err(_) => Err("a shard did not apply the configuration in time".to_owned()),
    });
    all.try_for_each(|taken| taken).inspect_err(|_| {
        back();
        for number in 0..shards {
            // The result is ignored: the shard has already run with this earlier configuration.
            drop(tell(number, before));
        }
    })
}

/// Keeps the Diameter part of the former file, since the node keeps its peers and routes. Diameter realms are those
/// of the former file. A realm that is new there is unknown until a restart.
fn retain_diameter_config(new: &mut ConfigFile, old: &ConfigFile) {
    let of = |realms: &[RealmConfig], name: &str| {
        realms.iter().find(|r| r.name.to_lowercase() == name.to_lowercase()).cloned()
    };
    new.diameter.clone_from(&old.diameter);
    let homes: Vec<String> = new.home_server.iter().map(|h| h.name.clone()).collect();
    let known = |realm: &RealmConfig| realm.servers.iter().all(|server| homes.contains(server));
    let asked = std::mem::take(&mut new.realm);
    let gone = old.realm.iter().filter(|r| !r.diameter.is_empty() && of(&asked, &r.name).is_none()).cloned();
    let gone: Vec<RealmConfig> = gone.collect();
    let kept = asked.into_iter().filter_map(|realm| match of(&old.realm, &realm.name) {
        Some(before) if before.diameter != realm.diameter => Some(before).filter(known),
        None if !realm.diameter.is_empty() => None,
        _ => Some(realm),
    });
    new.realm = kept.chain(gone).collect();
}

/// Returns the changed settings that need a restart.
fn changed_fixed_settings(old: &ServerInstallation, new: &ServerInstallation) -> Vec<&'static str> {
    let (a, b) = (&old.loaded.file, &new.loaded.file);
    let says = |x: &dyn std::fmt::Debug, y: &dyn std::fmt::Debug| format!("{x:?}") != format!("{y:?}");
    let url = |p: &ServerInstallation| p.loaded.url.clone();
    let routes = |f: &ConfigFile| -> BTreeMap<_, _> {
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
            (a.limits.failures, a.limits.failure_window, a.limits.lockout_time)
                != (b.limits.failures, b.limits.failure_window, b.limits.lockout_time),
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
    use crate::shards::UpstreamServers;
    use std::cell::RefCell;
    use usher_live::OutgoingConnectionSecurity;

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
        assert_eq!(update_or_restore_shards(1, &"new", &"old", Duration::ZERO, back, tell), Ok(()));
        assert_eq!(told.take(), [(0, "new")]);
        let back = || told.borrow_mut().push((9, "back"));
        assert!(update_or_restore_shards(2, &"new", &"old", Duration::ZERO, back, tell).is_err());
        assert_eq!(told.take(), [(0, "new"), (1, "new"), (9, "back"), (0, "old"), (1, "old")]);
    }

    #[test]
    fn what_is_said_of_diameter_is_of_the_start() {
        let file = |peer: &str, realms: &str| -> ConfigFile {
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
        retain_diameter_config(&mut new, &old);
        assert_eq!(new.diameter.as_ref().unwrap().peer[0].connect, "192.0.2.2:3868".parse().ok());
        let lead: Vec<_> =
            new.realm.iter().map(|r| (r.name.as_str(), r.diameter.len(), r.servers.len())).collect();
        assert_eq!(lead, [("kept", 1, 0), ("home", 0, 1), ("here", 0, 1), ("gone", 1, 0)]);
        assert!(new.realm[0].strip);
        let homes = UpstreamServers::from_file(&new, None);
        let to = |address: &str| homes.carriage(address.parse().unwrap());
        assert!(
            matches!(to("192.0.2.2:3868"), OutgoingConnectionSecurity::Plain),
            "the node connects there again"
        );
        assert!(matches!(to("192.0.2.3:3868"), OutgoingConnectionSecurity::Refused));
    }
}
