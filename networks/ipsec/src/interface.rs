//! The XFRM interface of Linux (xfrm_interface), found by the number of its SAs and policies (`if_id`).

use crate::kernel::{KernelEspConfig, KernelEspError};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoXfrm, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use usher_device::netlink::run_request;

/// The time limit for the kernel to remove an interface: it waits for packets in flight.
const LETS_GO: Duration = Duration::from_secs(10);

/// Returns the name of the interface with this number, if it exists.
fn find_interface(number: u32) -> io::Result<Option<String>> {
    let all = run_request(NLM_F_DUMP, RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let of = |link: &LinkMessage| {
        link.attributes.iter().any(|attribute| {
            match attribute {
            LinkAttribute::LinkInfo(infos) => infos.iter().any(|info| {
                matches!(info, LinkInfo::Data(InfoData::Xfrm(data)) if data.contains(&InfoXfrm::IfId(number)))
            }),
            _ => false,
        }
        })
    };
    let name = |link: LinkMessage| {
        link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        })
    };
    Ok(all.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) if of(&link) => name(link),
        _ => None,
    }))
}

/// Runs a command with a time limit. `None`: the time is over, and the command continues on its own.
fn run_with_timeout(command: &mut Command, within: Duration) -> io::Result<Option<ExitStatus>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= within {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes the interface with this number, if it exists.
///
/// It uses a process, ip(8). If the kernel has miscounted the interface's users (as Linux 6.1.192 does), the caller
/// of the removal waits forever and cannot be killed.
///
/// # Errors
/// ip(8) is missing or has failed. `TimedOut`: the kernel does not release the interface. The interface is then
/// invisible, its name and number can be reused, and ip(8) stays until a reboot.
pub(crate) fn remove_interface(number: u32) -> io::Result<()> {
    let Some(name) = find_interface(number)? else { return Ok(()) };
    let mut command = Command::new("ip");
    // ip(8) is in sbin, which is not in every user's PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["link", "delete", "dev", &name]).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let done = run_with_timeout(&mut command, LETS_GO)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run ip(8) of iproute2: {error}")))?;
    match done {
        Some(status) if status.success() => Ok(()),
        // ip(8) failed, but the interface no longer exists: another program removed it in the meantime.
        Some(_) if find_interface(number)?.is_none() => Ok(()),
        Some(status) => Err(io::Error::other(format!("`ip link delete dev {name}` failed: {status}"))),
        None => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the kernel does not release {name}: its reference count is wrong"),
        )),
    }
}

/// Creates the interface and returns its name.
pub(crate) fn create_interface(config: &KernelEspConfig) -> Result<String, KernelEspError> {
    let named = |name: &str| {
        let mut message = LinkMessage::default();
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(config.mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Xfrm),
                LinkInfo::Data(InfoData::Xfrm(vec![InfoXfrm::IfId(config.number)])),
            ]),
        ];
        run_request(NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message)).map(drop)
    };
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for n in 0..256 {
        let name = config.device.replace("%d", &n.to_string());
        match named(&name) {
            Ok(()) => return Ok(name),
            Err(error) => last = error,
        }
        let taken = last.kind() == io::ErrorKind::AlreadyExists;
        if !taken || name == config.device {
            break;
        }
    }
    Err(KernelEspError::Interface { name: config.device.clone(), error: last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_end_is_not_waited_for() {
        let patience = Duration::from_secs(60);
        let mut stays = Command::new("sleep");
        assert_eq!(run_with_timeout(stays.arg("60"), Duration::from_millis(20)).unwrap(), None);
        let ends = run_with_timeout(&mut Command::new("true"), patience).unwrap();
        assert!(ends.is_some_and(|status| status.success()));
        let missing = run_with_timeout(&mut Command::new("no-such-program-here"), patience).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
