//! The manual pages and the Debian package.

use crate::place::{TempDir, USHER};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn every_command_has_a_manual_page() {
    let place = TempDir::new();
    place.run_usher(&["man", "man1"]).with_code(0);
    for page in
        ["usher.1", "usher-study-run.1", "usher-aaa-serve.1", "usher-aaa-cert-issue.1", "usher-load-eap.1"]
    {
        let text = std::fs::read_to_string(place.path("man1").join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains("SYNOPSIS"), "{page}");
    }
}

/// Builds the package of the program under test with this compressor, and returns its path.
fn build_package(place: &TempDir, compressor: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new(root.join("scripts/deb"))
        .arg(USHER)
        .arg(place.path("out"))
        .env("DPKG_DEB_COMPRESSOR_TYPE", compressor)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

#[test]
fn the_service_runs_as_a_user_who_can_read_what_root_wrote() {
    let unit = include_str!("../../../packaging/usher-aaa.service");
    let says = |line: &str| unit.lines().filter(|l| *l == line).count();
    for line in [
        "User=usher",
        "Group=usher",
        "StateDirectory=usher",
        // Without --config: the first start has no configuration.
        "ExecStart=/usr/bin/usher aaa serve",
    ] {
        assert_eq!(says(line), 1, "{line}");
    }
    assert!(!unit.contains("DynamicUser"), "its files would belong to a user without a name");
    // The package contains the page that it names.
    let place = TempDir::new();
    place.run_usher(&["man", "man1"]).with_code(0);
    let page = unit.lines().find_map(|l| l.strip_prefix("Documentation=man:")?.strip_suffix("(1)")).unwrap();
    assert!(place.path("man1").join(format!("{page}.1")).is_file(), "{page}");
}

/// Runs a test's script on a temporary copy of this system: an overlay in its own namespace, with the package as
/// /usher.deb. The index of manual pages is not rebuilt at each installation.
const ON_A_COPY: &str = "set -e\n\
    mkdir over; mount -t tmpfs tmpfs over; cd over; mkdir upper work root\n\
    mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root\n\
    mount --bind /dev root/dev; mount -t proc proc root/proc\n\
    cp \"$1\" root/usher.deb; cp \"$2\" root/within.sh\n\
    rm -f root/var/lib/man-db/auto-update\n\
    ip link set lo up\n\
    exec chroot root bash /within.sh\n";

/// Runs a script there and returns its output.
fn on_a_copy(place: &TempDir, within: &str) -> String {
    // Without compression, since some scripts unpack it several times.
    let package = build_package(place, "none");
    place.write("install.sh", ON_A_COPY);
    place.write("within.sh", within);
    let done = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "bash", "install.sh", package.trim()])
        .arg(place.path("within.sh"))
        .current_dir(place.path("."))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    said
}

/// systemd does not run there: its tool only handles files, and warns about the rest. The package has a later version
/// number, since upgrading from 0.2.0 is a separate case.
#[test]
fn the_timer_of_the_list_is_after_a_removal_as_it_was_before() {
    let said = on_a_copy(
        &TempDir::new(),
        "set -e; cd /; dpkg-deb -R usher.deb later; sed -i 's/^Version: .*/Version: 9.0.0/' later/DEBIAN/control\n\
         dpkg-deb -Znone -b later usher.deb >/dev/null; mkdir -p /run/systemd/system; mv /usr/bin/systemctl /usr/bin/systemctl.true\n\
         cat > /usr/bin/systemctl <<'END'\n\
         #!/bin/sh\n\
         echo \"asked: $*\" >>/asked\n\
         [ \"$2\" = --now ] && { verb=$1; shift 2; set -- \"$verb\" \"$@\"; }\n\
         case $1 in enable|disable|is-enabled) exec systemctl.true --root=/ \"$@\" ;; esac\n\
         END\n\
         chmod 755 /usr/bin/systemctl\n\
         say() { echo \"$1: $(systemctl is-enabled usher-aaa-crl.timer 2>/dev/null || true)\n\
         $(grep -c 'asked: start usher-aaa-crl.timer' asked || true) starts\"; }\n\
         dpkg -i usher.deb >/dev/null; say installed\n\
         dpkg -r usher >/dev/null; grep -q 'asked: stop usher-aaa-crl.timer' asked\n\
         dpkg -i usher.deb >/dev/null; say again\n\
         systemctl disable usher-aaa-crl.timer; dpkg -r usher >/dev/null; dpkg -i usher.deb >/dev/null; say off\n\
         systemctl enable usher-aaa-crl.timer; dpkg -r usher >/dev/null; dpkg -P usher >/dev/null\n\
         find /etc/systemd -name 'usher*'\n\
         dpkg -i usher.deb >/dev/null; say new\n",
    );
    assert_eq!(
        said,
        "installed: enabled\n1 starts\nagain: enabled\n2 starts\noff: disabled\n2 starts\nnew: enabled\n3 starts\n"
    );
}

/// Without systemd, the test sets up the service's user and state folder as its unit does.
#[test]
fn an_installed_package_starts_with_and_without_configuration() {
    let said = on_a_copy(
        &TempDir::new(),
        "set -e; cd /; dpkg -i usher.deb >/dev/null\n\
         serve() {\n\
           setpriv --reuid usher --regid usher --clear-groups env -i PATH=$PATH STATE_DIRECTORY=/var/lib/usher \\\n\
             usher aaa serve 2>log & server=$!\n\
           for i in $(seq 2400); do grep -q started log && return; sleep 0.05; done; cat log; return 1\n\
         }\n\
         end() { kill $server; wait $server; }\n\
         echo right | usher aaa user add ann --password-file -\n\
         serve; grep -q 'There is no configuration' log\n\
         echo right | usher aaa test ann --password-file - | grep Access-Accept\n\
         end\n\
         mkdir /var/lib/usher/pki; touch /var/lib/usher/pki/ca.key\n\
         usher aaa cert list 2>&1 | grep -q 'mv /var/lib/usher/pki /etc/usher/pki'\n\
         usher aaa cert --dir /var/lib/usher/pki list 2>&1 | grep -q '/var/lib/usher belongs to user'\n\
         usher aaa cert init --server radius.example.org\n\
         echo 'a secret of root' > /etc/usher/nas.secret\n\
         cat > /etc/usher/aaa.toml <<END\n\
         [[client]]\n\
         name = \"here\"\n\
         prefix = \"127.0.0.0/8\"\n\
         secret_file = \"nas.secret\"\n\
         [tls]\n\
         certificate = \"/etc/usher/pki/issued/radius.example.org.crt\"\n\
         key = \"/etc/usher/pki/issued/radius.example.org.key\"\n\
         END\n\
         chown root:usher /etc/usher/nas.secret /etc/usher/aaa.toml; chmod 0640 /etc/usher/nas.secret /etc/usher/aaa.toml\n\
         serve\n\
         echo right | usher aaa test ann --password-file - --method peap --ca /etc/usher/pki/ca.crt | grep Access-Accept\n\
         usher aaa status >/dev/null\n\
         stat -c '%U:%G %a %n' /etc/usher /var/lib/usher /var/lib/usher/usher.db /etc/usher/pki/ca.key \\\n\
           /etc/usher/pki/issued/radius.example.org.key\n\
         end\n\
         dpkg -P usher >/dev/null\n\
         for left in /etc/usher /var/lib/usher /usr/share/doc/usher /usr/bin/usher; do [ ! -e $left ] || exit 1; done\n\
         getent passwd usher && exit 1; getent group usher && exit 1\n\
         echo 'purged: nothing is left'\n",
    );
    for each in ["ann is accepted", "server: Access-Accept"] {
        assert_eq!(said.matches(each).count(), 2, "{each}: {said}");
    }
    assert!(said.contains("purged: nothing is left"), "{said}");
    for line in [
        "root:usher 750 /etc/usher",
        "usher:usher 750 /var/lib/usher",
        "usher:usher 600 /var/lib/usher/usher.db",
        "root:root 600 /etc/usher/pki/ca.key",
        "root:usher 640 /etc/usher/pki/issued/radius.example.org.key",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

/// Returns the dead relative links of the pages in a folder.
fn dead_links(folder: &Path) -> Vec<String> {
    let mut dead = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                for link in text.split("](").skip(1) {
                    let to = link.split([')', '#', ' ']).next().unwrap_or_default();
                    let elsewhere = to.contains(':') || to.is_empty();
                    if !elsewhere && !folder.join(to).exists() {
                        dead.push(format!("{}: {to}", path.display()));
                    }
                }
            }
        }
    }
    dead
}

#[test]
fn a_purge_ends_a_server_that_runs_outside_of_systemd() {
    let said = on_a_copy(
        &TempDir::new(),
        "set -e; cd /; dpkg -i usher.deb >/dev/null\n\
         setpriv --reuid usher --regid usher --clear-groups env -i PATH=$PATH STATE_DIRECTORY=/var/lib/usher \\\n\
           usher aaa serve 2>log & server=$!\n\
         for i in $(seq 2400); do grep -q started log && break; sleep 0.05; done\n\
         dpkg -r usher >/dev/null; kill -0 $server; echo 'removed: it runs on'\n\
         dpkg -P usher 2>&1 | grep 'ending what still runs'\n\
         wait $server && echo 'it ended in good order'\n\
         grep -q stopped log\n\
         getent passwd usher && exit 1; getent group usher && exit 1\n\
         [ ! -e /var/lib/usher ] && [ ! -e /etc/usher ]; echo 'nothing is left'\n",
    );
    assert!(
        said.starts_with("removed: it runs on\nusher: ending what still runs as user usher (TERM): "),
        "{said}"
    );
    assert!(said.ends_with("it ended in good order\nnothing is left\n"), "{said}");
}

#[test]
fn the_package_has_the_program_manuals_completions_and_services() {
    let place = TempDir::new();
    let package = build_package(&place, "gzip");
    let unpacked = place.path("root");
    let run = |program: &str, arguments: &[&str]| {
        let said = Command::new(program).args(arguments).output().unwrap();
        assert!(said.status.success(), "{program}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    run("dpkg-deb", &["-x", package.trim(), unpacked.to_str().unwrap()]);
    let control = run("dpkg-deb", &["-f", package.trim()]);
    assert!(
        control.contains("Package: usher")
            && control.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))),
        "{control}"
    );
    for file in [
        "lib/systemd/system/usher-aaa.service",
        "lib/systemd/system/usher-aaa-crl.service",
        "lib/systemd/system/usher-ike.service",
        "lib/systemd/system/usher-pppoe.service",
        "lib/systemd/system/usher-aaa-crl.timer",
        "usr/share/man/man1/usher-aaa-serve.1.gz",
        "usr/share/bash-completion/completions/usher",
        "usr/share/zsh/vendor-completions/_usher",
        "usr/share/fish/vendor_completions.d/usher.fish",
        "usr/share/usher/aaa-server.schema.json",
        "usr/share/doc/usher/copyright",
        "usr/share/doc/usher/docs/howto/aaa-server.md",
        "usr/share/doc/usher/docs/howto/why-refused.md",
    ] {
        assert!(unpacked.join(file).is_file(), "{file}");
    }
    assert_eq!(dead_links(&unpacked.join("usr/share/doc/usher")), [""; 0]);
    let said = run(unpacked.join("usr/bin/usher").to_str().unwrap(), &["--version"]);
    assert!(said.starts_with("usher "), "{said}");
    let example = unpacked.join("usr/share/doc/usher/examples/aaa.toml");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&example, mode).unwrap();
    place.run_usher(&["aaa", "check", example.to_str().unwrap()]).with_code(0);
}

#[test]
fn an_authority_is_made_issues_renews_and_takes_back() {
    let place = TempDir::new();
    let cert = |arguments: &[&str]| {
        let all: Vec<&str> = ["aaa", "cert", "--dir", "pki"].iter().chain(arguments).copied().collect();
        place.run_usher(&all)
    };
    assert!(cert(&["list"]).with_code(1).err.contains("usher aaa cert init"));
    let said = cert(&["init", "--server", "radius.example.org"]).with_code(0);
    assert!(
        said.out.contains("pki/issued/radius.example.org.crt") && said.err.contains("pki/ca.crt"),
        "{said:?}"
    );
    cert(&["issue", "ann@example.org"]).with_code(0);
    assert!(cert(&["issue", "ann@example.org"]).with_code(1).err.contains("renew"));
    cert(&["renew", "ann@example.org", "--days", "10"]).with_code(0);
    assert!(cert(&["renew", "--expiring", "30"]).with_code(0).out.contains("ann@example.org"));
    cert(&["revoke", "ann@example.org", "--reason", "key-compromise"]).with_code(0);
    let listed = cert(&["list"]).with_code(0).out;
    assert_eq!(listed.matches("revoked").count(), 3, "{listed}");
    let shown = cert(&["show", "pki/issued/radius.example.org.crt"]).with_code(0).out;
    assert!(shown.contains("CN=radius.example.org") && shown.contains("days left"), "{shown}");
}

#[test]
fn root_issues_nothing_in_a_folder_of_the_service() {
    let place = TempDir::new();
    place.write(
        "within.sh",
        "set -e; mkdir state other; chown 1:1 state\n\
         usher aaa cert --dir state/pki init && exit 1\n\
         mkdir state/pki; usher aaa cert --dir state/pki init --server radius.example.org && exit 1\n\
         rmdir state/pki; ln -s ../other state/pki\n\
         usher aaa cert --dir state/pki init && exit 1\n\
         usher aaa cert --dir pki init --server radius.example.org\n\
         mv pki/issued other/; ln -s ../state pki/issued\n\
         usher aaa cert --dir pki issue ann@example.org && exit 1\n\
         ls state other other/issued\n",
    );
    let said = place.run_shell("bash within.sh").with_code(0);
    assert_eq!(said.err.matches("belongs to user 1").count(), 4, "{said:?}");
    assert!(said.err.contains("such as /etc/usher/pki"), "{said:?}");
    assert!(
        said.out.ends_with(
            "other:\nissued\n\nother/issued:\nradius.example.org.crt\nradius.example.org.key\n\nstate:\npki\n"
        ),
        "{said:?}"
    );
}
