//! Parses packets: TCP segments and SCTP packets with their surroundings.

use super::value::{parse_item, parse_items};
use super::{ScriptCursor, ScriptError};
use crate::script::{
    IcmpError, PacketBody, ScriptItem, ScriptPacket, ScriptSctpPacket, ScriptSegment, ScriptValue, TcpOption,
    UdpPorts,
};
use std::net::IpAddr;

pub(super) fn parse_packet(c: &mut ScriptCursor<'_>) -> Result<ScriptPacket, ScriptError> {
    let outbound = if c.eat_token("<") {
        false
    } else {
        c.expect_token(">")?;
        true
    };
    let mut ip = Vec::new();
    loop {
        let close = if c.eat_token("[") {
            "]"
        } else if c.eat_token("(") {
            ")"
        } else {
            break;
        };
        ip.extend(c.read_until(close)?.split([' ', ',']).filter(|w| !w.is_empty()).map(str::to_owned));
    }
    let addresses = parse_addresses(c)?;
    let mut ahead = *c;
    let body = match ahead.read_word() {
        "sctp" => {
            *c = ahead;
            PacketBody::Sctp(parse_sctp(c)?)
        }
        "icmp" => {
            *c = ahead;
            PacketBody::Icmp(parse_icmp(c)?)
        }
        name @ ("udp" | "udplite" | "ipv4" | "ipv6" | "gre" | "mpls") => {
            let name = name.to_owned();
            c.take_while(|c| c != '\n');
            PacketBody::Other(name)
        }
        _ => PacketBody::Tcp(parse_segment(c)?),
    };
    let udp = if matches!(body, PacketBody::Tcp(_)) { parse_udp(c)? } else { None };
    Ok(ScriptPacket { outbound, ip, addresses, udp, body })
}

/// Parses `10.0.0.1 > 10.0.0.2`, if present.
fn parse_addresses(c: &mut ScriptCursor<'_>) -> Result<Option<(IpAddr, IpAddr)>, ScriptError> {
    let address = |c: &mut ScriptCursor<'_>| {
        c.skip_blank();
        let text = c.take_while(|l| l.is_ascii_hexdigit() || l == ':' || l == '.');
        text.parse::<IpAddr>().ok()
    };
    let mut ahead = *c;
    let Some(source) = address(&mut ahead) else { return Ok(None) };
    ahead.expect_token(">")?;
    let at = ahead;
    let destination = address(&mut ahead).ok_or_else(|| at.expected_error("an address"))?;
    *c = ahead;
    Ok(Some((source, destination)))
}

/// Parses `/udp(1 > 9811)`, if present.
fn parse_udp(c: &mut ScriptCursor<'_>) -> Result<Option<UdpPorts>, ScriptError> {
    if !c.eat_token("/") {
        return Ok(None);
    }
    if !c.eat_word("udp") {
        return Err(c.expected_error("`udp`"));
    }
    c.expect_token("(")?;
    let source = c.read_fitting()?;
    c.expect_token(">")?;
    let destination = c.read_fitting()?;
    c.expect_token(")")?;
    Ok(Some(UdpPorts { source, destination }))
}

/// Parses `unreachable frag_needed mtu 1300 [1453:2905(1452)/udp(9811 > 1)]`.
fn parse_icmp(c: &mut ScriptCursor<'_>) -> Result<IcmpError, ScriptError> {
    c.skip_blank();
    let mut found = IcmpError { kind: c.read_word().to_owned(), ..IcmpError::default() };
    let mut word = c.read_word();
    if !["", "mtu", "id"].contains(&word) {
        found.code = word.to_owned();
        word = c.read_word();
    }
    if word == "mtu" || word == "id" {
        c.read_fitting::<u32>()?;
    } else if !word.is_empty() {
        return Err(c.expected_error("`mtu` or `[`"));
    }
    if c.eat_token("[") {
        found.seq = c.read_fitting()?;
        c.expect_token(":")?;
        c.read_fitting::<u32>()?;
        c.expect_token("(")?;
        c.read_fitting::<u32>()?;
        c.expect_token(")")?;
        found.udp = parse_udp(c)?;
        c.expect_token("]")?;
    }
    Ok(found)
}

/// Returns the control bits of a letter, in their wire positions.
fn flag_bits(letter: char) -> Option<u8> {
    Some(match letter {
        'F' => 1,
        'S' => 2,
        'R' => 4,
        'P' => 8,
        '.' => 16,
        'U' => 32,
        'E' => 64,
        'W' => 128,
        '-' => 0,
        _ => return None,
    })
}

fn parse_segment(c: &mut ScriptCursor<'_>) -> Result<ScriptSegment, ScriptError> {
    c.skip_blank();
    let start = *c;
    let mut s = ScriptSegment::default();
    let flags = c.take_while(|l| flag_bits(l).is_some());
    if flags.is_empty() {
        return Err(start.expected_error("TCP flags"));
    }
    s.flags = flags.chars().filter_map(flag_bits).fold(0, |all, bit| all | bit);
    if c.eat_token("...") {
        c.expect_token("(")?;
        s.len = c.read_fitting()?;
        c.expect_token(")")?;
    } else {
        let at = *c;
        let seq: u32 = c.read_fitting()?;
        c.expect_token(":")?;
        let end: u32 = c.read_fitting()?;
        c.expect_token("(")?;
        s.len = c.read_fitting()?;
        c.expect_token(")")?;
        if seq.wrapping_add(s.len) != end {
            return Err(at.error_here(format!("{seq}:{end} is not {} bytes", s.len)));
        }
        s.seq = Some(seq);
        s.absolute = c.eat_token("!");
    }
    if s.len > 65_535 {
        return Err(start.error_here("no segment carries more than 65535 bytes"));
    }
    if c.eat_word("ack") && !c.eat_token("...") {
        s.ack = Some(c.read_fitting()?);
    }
    if c.eat_word("win") && !c.eat_token("...") {
        s.window = Some(c.read_fitting()?);
    }
    if c.eat_word("urg") {
        s.urgent = Some(c.read_fitting()?);
    }
    s.options = Some(Vec::new());
    if c.eat_token("<") {
        s.options = parse_options(c)?;
    }
    Ok(s)
}

fn parse_options(c: &mut ScriptCursor<'_>) -> Result<Option<Vec<TcpOption>>, ScriptError> {
    if c.eat_token("...") {
        c.expect_token(">")?;
        return Ok(None);
    }
    let mut found = Vec::new();
    loop {
        if c.eat_token(">") {
            return Ok(Some(found));
        }
        if !found.is_empty() {
            c.expect_token(",")?;
        }
        found.push(parse_option(c)?);
    }
}

fn parse_option(c: &mut ScriptCursor<'_>) -> Result<TcpOption, ScriptError> {
    let start = *c;
    Ok(match c.read_word() {
        "eol" => TcpOption::End,
        "nop" => TcpOption::Nop,
        "mss" => TcpOption::Mss(c.read_fitting()?),
        "wscale" => TcpOption::WindowScale(c.read_fitting()?),
        "sackOK" => TcpOption::SackPermitted,
        "TS" => {
            let val = if c.eat_word("val") { c.read_fitting()? } else { 0 };
            let ecr = if c.eat_word("ecr") { c.read_fitting()? } else { 0 };
            TcpOption::Timestamp(val, ecr)
        }
        "FO" => {
            c.skip_blank();
            let at = *c;
            let digits = c.take_while(|d| d.is_ascii_hexdigit()).as_bytes();
            if digits.len() % 2 == 1 {
                return Err(at.error_here("a cookie has two digits for each byte"));
            }
            let digit = |d: u8| (d as char).to_digit(16).unwrap_or(0) as u8;
            TcpOption::FastOpen(digits.chunks(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect())
        }
        "sack" => {
            let mut blocks = Vec::new();
            loop {
                c.skip_blank();
                if !c.peek().is_some_and(|d| d.is_ascii_digit()) {
                    break;
                }
                let left = c.read_fitting()?;
                c.expect_token(":")?;
                blocks.push((left, c.read_fitting()?));
            }
            TcpOption::Sack(blocks)
        }
        "" => return Err(start.expected_error("a TCP option")),
        _ => {
            c.take_while(|c| c != ',' && c != '>');
            let len = start.remaining().len() - c.remaining().len();
            TcpOption::Other(start.remaining()[..len].trim().to_owned())
        }
    })
}

/// Parses bytes up to `]`.
fn parse_bytes(c: &mut ScriptCursor<'_>) -> Result<Vec<u8>, ScriptError> {
    let mut found = Vec::new();
    loop {
        if c.eat_token("]") {
            return Ok(found);
        }
        if !found.is_empty() {
            c.expect_token(",")?;
        }
        found.push(c.read_fitting()?);
    }
}

fn parse_sctp(c: &mut ScriptCursor<'_>) -> Result<ScriptSctpPacket, ScriptError> {
    let mut packet = ScriptSctpPacket::default();
    if c.eat_token("(") {
        for ScriptItem { key, value } in parse_items(c, ")", 0)? {
            match (key.as_str(), &value) {
                ("tag", ScriptValue::Int(tag)) => packet.tag = u64::try_from(*tag).ok(),
                ("", ScriptValue::Word(word)) if word == "bad_crc32c" => packet.bad_checksum = true,
                _ => return Err(c.error_here("in parentheses after sctp stand tag=N and bad_crc32c")),
            }
        }
    }
    if c.eat_token("/") {
        return Err(c.error_here("SCTP in UDP is not read"));
    }
    c.expect_token(":")?;
    if c.eat_token("[") {
        packet.raw = Some(parse_bytes(c)?);
        return Ok(packet);
    }
    loop {
        let start = *c;
        let chunk = parse_item(c, 0)?;
        if !matches!(chunk.value, ScriptValue::Node(..)) {
            return Err(start.expected_error("a chunk"));
        }
        packet.chunks.push(chunk);
        if !c.eat_token(";") {
            return Ok(packet);
        }
        c.skip_blank();
        // The last chunk may end with a semicolon, too.
        if !c.peek().is_some_and(|l| l.is_ascii_alphabetic()) {
            return Ok(packet);
        }
    }
}
