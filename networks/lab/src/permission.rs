//! The right to create network namespaces: directly, or within a user namespace.

use nix::sched::{CloneFlags, unshare};
use std::fmt;
use std::fs;
use std::io;

/// The source of this process's right to create network namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamespacePrivilege {
    /// Its own: root, or CAP_SYS_ADMIN and CAP_NET_ADMIN.
    Own,
    /// The rights within a user namespace (user_namespaces(7)).
    UserNamespace,
}

impl fmt::Display for NamespacePrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own rights",
            Self::UserNamespace => "a user namespace",
        })
    }
}

/// The missing right, and how to get it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the lab creates network namespaces and veth links between them. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, or a \
     user namespace, and has neither: {0}"
)]
pub struct NamespacePermissionError(pub(crate) String);

/// Makes sure that this process may create network namespaces. Without the right, it moves for the rest of its life
/// into a user namespace where it is root. Only a process with a single thread can do that, so call this first.
///
/// # Errors
/// [`NamespacePermissionError`], which names the setting or right that is missing.
pub fn acquire_rights() -> Result<NamespacePrivilege, NamespacePermissionError> {
    if probe_unshare().is_ok() {
        return Ok(if is_in_user_namespace() {
            NamespacePrivilege::UserNamespace
        } else {
            NamespacePrivilege::Own
        });
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    wait_single_threaded();
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|e| NamespacePermissionError(why_no_user_namespace(e.into())))?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|e| {
            NamespacePermissionError(format!("cannot write /proc/self/{file} of the new user namespace: {e}"))
        })
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("0 {uid} 1"))?;
    map("gid_map", format!("0 {gid} 1"))?;
    probe_unshare().map_err(|e| NamespacePermissionError(why_no_network_namespace(&e)))?;
    Ok(NamespacePrivilege::UserNamespace)
}

/// Tests whether a network namespace can be created, in a thread that ends afterwards.
fn probe_unshare() -> io::Result<()> {
    let tried = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET));
    match tried.join() {
        Ok(result) => Ok(result?),
        Err(_) => Err(io::Error::other("the thread that tried it panicked")),
    }
}

/// Returns the number of threads of this process.
fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Waits briefly until the kernel has removed a joined thread.
fn wait_single_threaded() {
    for _ in 0..100 {
        if thread_count() == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// True if this process is in a user namespace other than the system's initial one.
pub(crate) fn is_in_user_namespace() -> bool {
    // The initial user namespace maps all ids to themselves (user_namespaces(7)).
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let words: Vec<&str> = map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

fn read_sysctl(path: &str) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().to_owned())
}

fn why_no_user_namespace(error: io::Error) -> String {
    let threads = thread_count();
    if read_sysctl("user/max_user_namespaces").as_deref() == Some("0") {
        return "/proc/sys/user/max_user_namespaces is 0: set it to some thousands, or run as root"
            .to_owned();
    }
    if read_sysctl("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "/proc/sys/kernel/unprivileged_userns_clone is 0: set it to 1, or run as root".to_owned();
    }
    if threads > 1 {
        return format!(
            "this process has {threads} threads, but only a process with one thread may enter a user namespace: run \
             as root"
        );
    }
    let cause = match error.raw_os_error() {
        Some(libc::EPERM) => " (a security policy or a container forbids it)",
        Some(libc::EINVAL) => " (the kernel is built without CONFIG_USER_NS)",
        _ => "",
    };
    format!("cannot create a user namespace{cause}: {error}; run as root")
}

fn why_no_network_namespace(error: &io::Error) -> String {
    if read_sysctl("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "/proc/sys/kernel/apparmor_restrict_unprivileged_userns is 1, so a user namespace gives no rights: set it to 0, \
                write an AppArmor profile with `userns,` for usher, or run as root"
            .to_owned();
    }
    if read_sysctl("user/max_net_namespaces").as_deref() == Some("0") {
        return "/proc/sys/user/max_net_namespaces is 0: set it to some thousands".to_owned();
    }
    format!("cannot create a network namespace, even in a user namespace: {error}; run as root")
}
