//! Warnings about a valid configuration.

use crate::installation::ServerInstallation;
use crate::lists;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use usher_aaa_config::LoadedAaaConfig;
use usher_aaa_config::model::RealmConfig;

/// Returns the warnings about a configuration.
///
/// They concern lists that expire, and realms whose name has another meaning in FreeRADIUS. If root checks the
/// configuration of a service of another user, they also concern files that this user cannot read.
#[must_use]
pub fn config_warnings(place: &ServerInstallation) -> Vec<String> {
    let mut all: Vec<String> = place.loaded.warnings.iter().map(ToString::to_string).collect();
    all.extend(lists::revocation_list_warnings(&place.loaded));
    let default = |realm: &&RealmConfig| realm.name.eq_ignore_ascii_case("default");
    all.extend(place.loaded.file.realm.iter().find(default).map(|realm| {
        format!(
            "[[realm]] {:?} matches only the realm of that name; for FreeRADIUS's DEFAULT, every realm without an \
             entry, write \"*\"",
            realm.name
        )
    }));
    if rustix::process::geteuid().is_root()
        && let Some(account) = ServiceAccount::from_state_dir_owner(&place.state_dir)
    {
        let mut files = configured_files(&place.loaded);
        files.sort();
        files.dedup();
        all.extend(files.iter().filter_map(|path| account.unreadable_reason(path)));
    }
    all
}

/// Returns the files that the server reads.
fn configured_files(loaded: &LoadedAaaConfig) -> Vec<PathBuf> {
    let file = &loaded.file;
    let tls = file
        .tls
        .iter()
        .flat_map(|tls| [&tls.certificate, &tls.key].into_iter().chain(&tls.ca).chain(&tls.crl));
    let all = loaded.path.iter().chain(&loaded.included).chain(&file.dictionary).chain(tls);
    let all = all.chain(file.client.iter().filter_map(|client| client.secret_file.as_ref()));
    let all = all.chain(file.home_server.iter().filter_map(|home| home.secret_file.as_ref()));
    let all = all.chain(&file.users.url_file).chain(&file.accounting.identity_key_file);
    all.cloned().collect()
}

/// The user of the service.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ServiceAccount {
    name: String,
    uid: u32,
    groups: Vec<u32>,
}

impl ServiceAccount {
    /// Returns the owner of the state directory. `None`: the owner is root, or the directory does not exist.
    fn from_state_dir_owner(state_dir: &Path) -> Option<Self> {
        let folder = fs::metadata(state_dir).ok().filter(|folder| folder.uid() != 0)?;
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Some(Self::user_groups_from_tables(
            folder.uid(),
            folder.gid(),
            &read("/etc/passwd"),
            &read("/etc/group"),
        ))
    }

    /// Reads the groups of a user from passwd(5) and group(5). `gid` is used if the tables do not have the user.
    fn user_groups_from_tables(uid: u32, gid: u32, users: &str, groups: &str) -> Self {
        let number = |text: Option<&&str>| text.and_then(|text| text.parse::<u32>().ok());
        let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let user = users.find(|fields| number(fields.get(2)) == Some(uid));
        let name = user.as_ref().and_then(|user| user.first()).map(|name| (*name).to_owned());
        let own = number(user.as_ref().and_then(|user| user.get(3))).unwrap_or(gid);
        let others = groups.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter_map(|fields| {
            let member = |name: &String| fields.get(3).is_some_and(|all| all.split(',').any(|m| m == name));
            name.as_ref().filter(|name| member(name))?;
            number(fields.get(2))
        });
        let groups = std::iter::once(own).chain(others).collect();
        Self { name: name.unwrap_or_else(|| uid.to_string()), uid, groups }
    }

    /// True if the file's mode permits the user this access: 4 read, 1 enter a directory.
    fn permits_file_access(&self, file: &Metadata, what: u32) -> bool {
        let shift = match () {
            () if file.uid() == self.uid => 6,
            () if self.groups.contains(&file.gid()) => 3,
            () => 0,
        };
        file.mode() >> shift & what != 0
    }

    /// Returns why the user cannot read a file, and how to fix it.
    fn unreadable_reason(&self, path: &Path) -> Option<String> {
        // A missing file needs no advice here, because it is reported elsewhere.
        let path = fs::canonicalize(path).ok()?;
        let Self { name, .. } = self;
        let way: Vec<&Path> = path.ancestors().skip(1).collect();
        for folder in way.into_iter().rev() {
            let said = fs::metadata(folder).ok()?;
            if !self.permits_file_access(&said, 1) {
                let (shown, mode) = (folder.display(), said.mode() & 0o7777);
                return Some(format!(
                    "the service's user {name} cannot enter {shown} (mode {mode:04o}) and so cannot read {}; run: \
                     chgrp {name} {shown}; chmod g+x {shown}",
                    path.display()
                ));
            }
        }
        let said = fs::metadata(&path).ok()?;
        if self.permits_file_access(&said, 4) {
            return None;
        }
        let (shown, mode) = (path.display(), said.mode() & 0o7777);
        Some(format!(
            "the service's user {name} cannot read {shown} (mode {mode:04o}); run: chgrp {name} {shown}; chmod 0640 \
             {shown}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn the_services_user_is_of_the_groups_that_the_tables_say() {
        let users = "root:x:0:0::/root:/bin/sh\nusher:x:995:994::/var/lib/usher:/bin/false\n";
        let groups = "root:x:0:\nusher:x:994:\nssl-cert:x:110:postgres,usher\nother:x:7:ushers\n";
        let known = ServiceAccount::user_groups_from_tables(995, 5, users, groups);
        assert_eq!(known, ServiceAccount { name: "usher".to_owned(), uid: 995, groups: vec![994, 110] });
        let unknown = ServiceAccount::user_groups_from_tables(4242, 5, users, groups);
        assert_eq!(unknown, ServiceAccount { name: "4242".to_owned(), uid: 4242, groups: vec![5] });
    }

    #[test]
    fn what_the_services_user_cannot_read_is_told_with_what_to_do() {
        let folder = std::env::temp_dir().join(format!("usher-advice-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("pki")).unwrap();
        let file = folder.join("pki/key");
        fs::write(&file, "x").unwrap();
        let mode =
            |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let own = fs::metadata(&file).unwrap();
        // An unknown user, in the file's group or in none.
        let of = |gid: u32| ServiceAccount { name: "usher".to_owned(), uid: 64_321, groups: vec![gid] };
        let (member, stranger) = (of(own.gid()), of(64_321));
        let said = |account: &ServiceAccount| account.unreadable_reason(&file).unwrap_or_default();
        mode(&folder, 0o755);
        for (of_folder, of_file, by_member, by_stranger) in [
            (0o755, 0o644, "", ""),
            (0o755, 0o640, "", "cannot read"),
            (0o750, 0o644, "", "cannot enter"),
            (0o700, 0o640, "cannot enter", "cannot enter"),
            (0o755, 0o600, "cannot read", "cannot read"),
            (0o755, 0o604, "cannot read", ""),
        ] {
            mode(&folder.join("pki"), of_folder);
            mode(&file, of_file);
            for (account, expected) in [(&member, by_member), (&stranger, by_stranger)] {
                let said = said(account);
                assert_eq!(said.is_empty(), expected.is_empty(), "{of_folder:o} {of_file:o}: {said}");
                assert!(said.contains(expected), "{of_folder:o} {of_file:o}: {said}");
            }
        }
        assert_eq!(said(&ServiceAccount { uid: own.uid(), ..stranger.clone() }), "", "its owner");
        assert_eq!(stranger.unreadable_reason(&folder.join("none")), None);
        if own.uid() == 0 {
            chown(&folder, Some(64_321), Some(64_321)).unwrap();
            let of = ServiceAccount::from_state_dir_owner(&folder).unwrap();
            assert_eq!((of.uid, of.groups), (64_321, vec![64_321]));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
