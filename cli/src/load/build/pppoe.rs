//! Subscribers of a PPPoE access concentrator.

use super::{
    PreparedLoad, assemble_load, describe_mix, method_share, possible_value_name, read_users,
    weighted_methods,
};
use crate::load::args::{PppoeLoadArgs, PppoeMethod};
use crate::output::CommandFailure;
use clap::ValueEnum;
use std::sync::Arc;
use usher_core::Duration;
use usher_load::{LoadProtocolConfig, PppoeConfig, PppoeLogin, SessionEchoConfig, SessionHoldTime};

/// Octets of the longest payload of a frame: what Ethernet carries without another agreement.
const MTU: u16 = 1500;

const fn pppoe_login(method: PppoeMethod) -> PppoeLogin {
    match method {
        PppoeMethod::Pap => PppoeLogin::Pap,
        PppoeMethod::Chap => PppoeLogin::Chap,
        PppoeMethod::MsChapV2 => PppoeLogin::MsChapV2,
        PppoeMethod::EapMd5 => PppoeLogin::EapMd5,
        PppoeMethod::EapMsChapV2 => PppoeLogin::EapMsChapV2,
    }
}

pub(super) fn prepare_pppoe(p: &PppoeLoadArgs) -> Result<PreparedLoad, CommandFailure> {
    let load = &p.load;
    let sessions = p.sessions.get();
    if load.threads > p.sessions {
        return Err(CommandFailure::usage_error(format!(
            "{} threads cannot share {sessions} stations: --sessions must be at least --threads",
            load.threads
        )));
    }
    if sessions > 1 << 20 {
        return Err(CommandFailure::usage_error(
            "--sessions is at most 1048576; one concentrator takes 65534",
        ));
    }
    if load.calibrate.is_some() {
        return Err(CommandFailure::usage_error("--calibrate does not measure concentrators"));
    }
    if p.keep && load.ramp {
        return Err(CommandFailure::usage_error(
            "--keep does not go with --ramp, which needs more sessions than there are stations; use --hold",
        ));
    }
    if p.rounds.get() > 1 && (load.duration.is_some() || load.count.is_some()) {
        return Err(CommandFailure::usage_error(
            "--rounds does not go with --duration or --count: each station sets up one session in a round",
        ));
    }
    if let Some(rate) = p.echo.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
        return Err(CommandFailure::usage_error(format!("--echo {rate}: it must be a number above 0")));
    }
    let known = "pap, chap, mschapv2, eap-md5, eap-mschapv2";
    let one = || Ok((possible_value_name(&p.method), p.method));
    let all = weighted_methods(load, one, known, |text| PppoeMethod::from_str(text, true).ok())?;
    let mix: Vec<_> = all.iter().map(|(name, share, _)| method_share(name, *share, true)).collect();
    let hold = if p.keep { SessionHoldTime::UntilRunEnd(p.stay.0) } else { SessionHoldTime::For(p.hold.0) };
    let front = LoadProtocolConfig::Pppoe(PppoeConfig {
        stations: sessions,
        first: 0,
        address: p.station.0,
        mtu: MTU,
        logins: all.iter().map(|(.., method)| pppoe_login(*method)).collect(),
        service: p.service.clone(),
        concentrator: p.concentrator.clone(),
        discovery: p.discovery.0,
        attempts: p.attempts.get(),
        keepalive: p.keepalive.0,
        setup: p.setup.0,
        session_hold: hold,
        power_cut: p.power_cut,
        echo: p.echo.map(|rate| SessionEchoConfig { rate, size: p.echo_size.into(), to: p.echo_to }),
    });
    let users = Arc::new(read_users(load, true)?);
    let what = describe_mix(load, &mix);
    let mut job = assemble_load("pppoe", what, load, front, mix, users, Vec::new(), None)?;
    let set = &mut job.settings;
    set.insert("stations".to_owned(), sessions.to_string());
    set.insert(
        "sessions".to_owned(),
        match hold {
            SessionHoldTime::For(Duration::ZERO) => "end as soon as they are set up".to_owned(),
            SessionHoldTime::For(time) => format!("end after {time}"),
            SessionHoldTime::UntilRunEnd(_) if p.power_cut => "drop silently between rounds".to_owned(),
            SessionHoldTime::UntilRunEnd(time) => format!("stay until all are set up, and {time} longer"),
        },
    );
    if let Some(rate) = p.echo {
        set.insert("echoes".to_owned(), format!("{rate} 1/s of {} octets in each session", p.echo_size));
    }
    if p.keep && load.duration.is_none() {
        let plan = &mut job.plan;
        if load.count.is_none() {
            (plan.load.count, plan.load.duration) = (Some(sessions as u64), None);
            plan.load.warmup = load.warmup.map_or(Duration::ZERO, |time| time.0);
            plan.timeline_interval = plan.interval;
            set.remove("duration");
            set.insert("count".to_owned(), sessions.to_string());
            set.insert("warmup".to_owned(), plan.load.warmup.to_string());
        }
        plan.rounds = p.rounds.get();
        set.insert("rounds".to_owned(), p.rounds.to_string());
    }
    job.plan.interface = Some(load.server.clone());
    Ok(job)
}
