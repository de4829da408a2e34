//! The end of labs: a lab killed at a random moment leaves nothing behind that the next one does not remove. Also the
//! right to build one. The program starts itself as the lab to kill, and as another user's.
//!
//! The tests compare network namespaces, interfaces, processes, mounts, nftables rules and the list of labs, before
//! and after. A leaked network namespace may be unreachable, so the kernel's own count decides. Labs are killed in a
//! user namespace. At the end, one network namespace can be created with a limit of one.

mod harness;
mod nftables;

use nix::sched::{CloneFlags, unshare};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration as Elapsed, Instant};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Seed};
use usher_lab::{
    HostSpec, Lab, LabRegistry, LabTopology, LinkEnd, LinkSpec, NamespacePrivilege, acquire_rights,
};
use usher_live::SystemClock;
use usher_sim::LinkConfig;

const HOSTS: usize = 6;

/// The number of times that a lab is killed.
const KILLS: u64 = 30;

/// The line that a lab prints when it is built.
const READY_LINE: &str = "stands";

/// The time limit for the system's cleanup, and for packets to cross a lab, on a busy machine.
const TEST_TIMEOUT: Elapsed = Elapsed::from_secs(180);

const TESTS: [(&str, fn()); 2] = [
    ("another_user_builds_a_lab", another_user_builds_a_lab),
    ("killed_labs_leave_nothing", killed_labs_leave_nothing),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("victim") => run_victim(Path::new(&arguments[1])),
        Some("killer") => run_killer(Path::new(&arguments[1])),
        Some("user") => run_as_user(Path::new(&arguments[1])),
        _ => harness::run_named_tests(&TESTS),
    }
    ExitCode::SUCCESS
}

fn host_address(host: usize) -> IpAddr {
    [10, 9, 0, host as u8 + 1].into()
}

/// A chain of hosts.
fn chain_topology() -> LabTopology {
    let host = |n: usize| HostSpec {
        name: format!("h{n}"),
        addresses: vec![host_address(n)],
        settings: Vec::new(),
        initial_window: None,
        quick_ack: false,
    };
    let channel = ChannelConfig { delay: Duration::from_millis(1), ..Default::default() };
    let config = LinkConfig { up: channel.clone(), down: channel, ..Default::default() };
    let link = |n: usize| LinkSpec {
        name: format!("l{n}"),
        ends: [LinkEnd::for_host(n), LinkEnd::for_host(n + 1)],
        config: config.clone(),
        capture: [None; 2],
    };
    LabTopology {
        name: "killed".to_owned(),
        seed: Seed::new(1),
        hosts: (0..HOSTS).map(host).collect(),
        links: (0..HOSTS - 1).map(link).collect(),
    }
}

/// Builds a lab with traffic from its first host to its last, and the socket that receives it.
fn busy_lab(registry: &LabRegistry) -> (Lab, UdpSocket) {
    let mut lab = Lab::build(chain_topology(), registry).unwrap();
    lab.start_relay(SystemClock::start(), None).unwrap();
    let bind = |host: usize| {
        lab.namespace(host).run_inside(|| UdpSocket::bind((host_address(host), 9000)).unwrap()).unwrap()
    };
    let (from, to) = (bind(0), bind(HOSTS - 1));
    to.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    std::thread::spawn(move || {
        loop {
            from.send_to(b"datagram", (host_address(HOSTS - 1), 9000)).unwrap();
            std::thread::sleep(Elapsed::from_millis(1));
        }
    });
    (lab, to)
}

/// Builds a lab, starts a program on one of its hosts, and waits to be killed.
fn run_victim(list: &Path) {
    let registry = LabRegistry::open_at(list).unwrap();
    let (lab, to) = busy_lab(&registry);
    let mut program = Command::new("sleep");
    program.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let program = lab.spawn_program(2, &mut program).unwrap().id();
    to.recv(&mut [0; 100]).unwrap();
    println!("{READY_LINE} {program}");
    loop {
        to.recv(&mut [0; 100]).unwrap();
    }
}

/// Runs as a user without root. Prints whether it could build a lab, and with which right.
fn run_as_user(list: &Path) {
    match acquire_rights() {
        Ok(rights) => {
            let registry = LabRegistry::open_at(list).unwrap();
            let (lab, to) = busy_lab(&registry);
            to.recv(&mut [0; 100]).unwrap();
            assert_eq!(
                (rights, lab.rights()),
                (NamespacePrivilege::UserNamespace, NamespacePrivilege::UserNamespace)
            );
            assert_eq!(registry.running_labs().unwrap().len(), 1);
            drop(lab);
            assert_eq!(registry.running_labs().unwrap().len(), 0);
            println!("{READY_LINE}");
        }
        Err(missing) => println!("{missing}"),
    }
}

/// A folder, removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("usher-lab-ends-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn self_command(mode: &str, list: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(mode).arg(list);
    command
}

/// A user without rights builds a lab in a user namespace, or gets an error that names the obstacle.
fn another_user_builds_a_lab() {
    const NOBODY_UID: u32 = 65_534;
    // A folder open to all users, with a copy of this program and the user's list.
    let place = TempDir::new("user");
    let (program, list) = (place.0.join("ends"), place.0.join("list"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::create_dir(&list).unwrap();
    std::os::unix::fs::chown(&list, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    for path in [&place.0, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&program);
    command.arg("user").arg(&list).uid(NOBODY_UID).gid(NOBODY_UID);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let setting =
        |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_owned();
    for (name, closed) in [
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ] {
        if setting(name) == closed {
            assert!(said.contains(&format!("/proc/sys/{name} is {closed}")), "{said}");
            println!("a user without rights is told why there is no lab");
            return;
        }
    }
    assert_eq!(said.trim(), READY_LINE);
}

/// Moves this process into namespaces in which no other program mounts anything or creates interfaces or rules.
/// Without the right the process stays.
fn enter_private_namespaces() {
    if unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).is_ok() {
        let private = Command::new("mount").args(["--make-rprivate", "/"]).status();
        assert!(private.unwrap().success(), "mounts can be made private");
    }
}

/// Labs are killed at random moments, during the build and the run.
fn killed_labs_leave_nothing() {
    enter_private_namespaces();
    let list = TempDir::new("list");
    let (before, mounts_before) = (SystemRemains::take_snapshot(&list.0, &BTreeSet::new()), list_mounts());
    let output = self_command("killer", &list.0).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let (labs, summary) = said.trim().split_once('\n').unwrap();
    let labs: BTreeSet<u32> = labs.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(labs.len() as u64, KILLS + 1);
    let begun = Instant::now();
    loop {
        let after = SystemRemains::take_snapshot(&list.0, &labs);
        let mounts_after = list_mounts();
        // Another program's mount disappears with its folder.
        if after == before && mounts_after.is_subset(&mounts_before) {
            break;
        }
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "before: {before:?}, {mounts_before:?}\nafter: {after:?}, {mounts_after:?}"
        );
        std::thread::sleep(Elapsed::from_millis(20));
    }
    println!("{summary}");
}

/// Kills labs, in a user namespace if possible, and prints their process ids.
fn run_killer(list: &Path) {
    let counted = enter_user_namespace();
    let mut labs = BTreeSet::new();
    let mut rng = Seed::new(fresh_seed()).derive_rng("kill", 0);
    let (mut killed_early, mut found) = (0, 0);
    let clean = || LabRegistry::open_at(list).unwrap().remove_remains().unwrap();
    for n in 0..KILLS {
        let mut lab = self_command("victim", list).stdout(Stdio::piped()).spawn().unwrap();
        labs.insert(lab.id().to_string());
        // Half of them are killed after the build, the others at some moment during it.
        let program = (n % 2 == 0).then(|| wait_until_built(&mut lab));
        std::thread::sleep(Elapsed::from_micros(rng.sample_below(60_000)));
        lab.kill().unwrap();
        let mut rest = String::new();
        lab.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
        lab.wait().unwrap();
        killed_early += u32::from(program.is_none() && !rest.contains(READY_LINE));
        // Sometimes the next lab comes much later.
        if n % 3 == 0 {
            let left = clean();
            assert!(n > 0 || left.labs == ["killed"], "{left:?}");
            found += left.labs.len();
        }
    }
    // The next lab removes the remains of the last ones.
    let mut last = self_command("victim", list).stdout(Stdio::piped()).spawn().unwrap();
    labs.insert(last.id().to_string());
    wait_until_built(&mut last);
    last.kill().unwrap();
    last.wait().unwrap();
    assert_eq!(clean().labs, ["killed"]);
    assert!(clean().labs.is_empty());
    if counted {
        wait_for_cleanup();
    }
    println!("{}", labs.into_iter().collect::<Vec<_>>().join(" "));
    println!(
        "{KILLS} kills, {killed_early} before the lab stood, {found} found by cleaning{}",
        if counted { "" } else { "; the kernel's count was not asked" }
    );
}

/// Waits until a lab is built. Returns the process id of the program that it started.
fn wait_until_built(lab: &mut Child) -> u32 {
    let mut line = String::new();
    let mut out = BufReader::new(lab.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    lab.stdout = Some(out.into_inner());
    line.trim()
        .strip_prefix(READY_LINE)
        .unwrap_or_else(|| panic!("the lab said {line:?}"))
        .trim()
        .parse()
        .unwrap()
}

/// Returns a number that differs between runs, since the moments should.
fn fresh_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into()
}

/// Moves this process into a user namespace, for which the kernel counts network namespaces separately.
fn enter_user_namespace() -> bool {
    if unshare(CloneFlags::CLONE_NEWUSER).is_err() {
        return false;
    }
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", "0 0 1").unwrap();
    fs::write("/proc/self/gid_map", "0 0 1").unwrap();
    true
}

/// Waits until the kernel has removed all network namespaces of this user namespace.
fn wait_for_cleanup() {
    fs::write("/proc/sys/user/max_net_namespaces", "1").unwrap();
    let begun = Instant::now();
    let make = || unshare(CloneFlags::CLONE_NEWNET).is_ok();
    while !std::thread::spawn(make).join().unwrap() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "namespaces of labs that were killed are still there");
        std::thread::sleep(Elapsed::from_millis(10));
    }
}

/// Lists the mounts of this process: id, parent and path.
fn list_mounts() -> BTreeSet<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().map(|line| line.split(' ').take(5).collect::<Vec<_>>().join(" ")).collect()
}

/// The visible remains except mounts.
#[derive(PartialEq, Eq, Debug)]
struct SystemRemains {
    namespaces: BTreeSet<PathBuf>,
    interfaces: Vec<String>,
    programs: usize,
    rules: usize,
    entries: usize,
}

impl SystemRemains {
    /// Takes a snapshot for these labs, by process id: others may run on this machine.
    fn take_snapshot(list: &Path, labs: &BTreeSet<u32>) -> Self {
        let processes: Vec<PathBuf> =
            fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).collect();
        let of_ours = |process: &&PathBuf| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|octet| *octet == 0).any(|variable| {
                let owner = std::str::from_utf8(variable).ok().and_then(|v| v.strip_prefix("USHER_LAB="));
                let lab = owner.and_then(|owner| owner.split('-').nth(1)?.parse().ok());
                lab.is_some_and(|lab| labs.contains(&lab))
            })
        };
        let programs: Vec<&PathBuf> = processes.iter().filter(of_ours).collect();
        let interfaces = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        Self {
            namespaces: programs
                .iter()
                .filter_map(|process| fs::read_link(process.join("ns/net")).ok())
                .collect(),
            interfaces: interfaces
                .lines()
                .filter_map(|l| Some(l.split_once(':')?.0.trim().to_owned()))
                .collect(),
            programs: programs.len(),
            rules: nftables::count_rules().unwrap(),
            entries: fs::read_dir(list).unwrap().count(),
        }
    }
}
