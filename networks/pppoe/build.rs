//! Compiles the programs of eBPF mode, if they are wanted and clang exists. The crate then has `cfg(ebpf)`.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ebpf)");
    println!("cargo::rerun-if-changed=src/ebpf/program.c");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_EBPF").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR")).join("program.o");
    let named = env::var("CLANG").ok();
    let clang = named.clone().unwrap_or_else(|| "clang".to_owned());
    if named.is_none() && Command::new(&clang).arg("--version").output().is_err() {
        println!(
            "cargo::warning=clang is not installed: this build has no PPPoE eBPF mode. To add it, install Debian's \
             clang, run `cargo clean -p usher-pppoe` with the profile of this build, and build again"
        );
        return;
    }
    // The kernel's headers include some of the machine's. Debian keeps those under its triplet, clang looks under its
    // target.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let headers = format!("-I/usr/include/{machine}-linux-gnu");
    let arguments = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3", &headers];
    let done =
        Command::new(&clang).args(arguments).args(["-c", "src/ebpf/program.c", "-o"]).arg(&out).status();
    let error = match done {
        Ok(status) if status.success() && fs::metadata(&out).is_ok() => {
            println!("cargo::rustc-cfg=ebpf");
            return;
        }
        Ok(status) => format!("{clang} could not compile src/ebpf/program.c ({status})"),
        Err(error) => format!("{clang}: {error}"),
    };
    panic!(
        "{error}: set CLANG to another clang, or build without the feature \"ebpf\" (cargo build -p usher \
         --no-default-features --features live)"
    );
}
