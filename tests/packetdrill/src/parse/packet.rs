//! Packets: TCP segments and SCTP packets with what stands around them.

use super::value::{item, items};
use super::{Cursor, Fault};
use crate::script::{Body, Icmp, Item, Packet, Sctp, Segment, TcpOption, Udp, Value};
use std::net::IpAddr;

pub(super) fn packet(c: &mut Cursor<'_>) -> Result<Packet, Fault> {
    let outbound = if c.eat("<") {
        false
    } else {
        c.expect(">")?;
        true
    };
    let mut ip = Vec::new();
    loop {
        let close = if c.eat("[") {
            "]"
        } else if c.eat("(") {
            ")"
        } else {
            break;
        };
        ip.extend(c.until(close)?.split([' ', ',']).filter(|w| !w.is_empty()).map(str::to_owned));
    }
    let addresses = addresses(c)?;
    let mut ahead = *c;
    let body = match ahead.word() {
        "sctp" => {
            *c = ahead;
            Body::Sctp(sctp(c)?)
        }
        "icmp" => {
            *c = ahead;
            Body::Icmp(icmp(c)?)
        }
        name @ ("udp" | "udplite" | "ipv4" | "ipv6" | "gre" | "mpls") => {
            let name = name.to_owned();
            c.run(|c| c != '\n');
            Body::Other(name)
        }
        _ => Body::Tcp(segment(c)?),
    };
    let udp = if matches!(body, Body::Tcp(_)) { udp(c)? } else { None };
    Ok(Packet { outbound, ip, addresses, udp, body })
}

/// `10.0.0.1 > 10.0.0.2`, if it stands here.
fn addresses(c: &mut Cursor<'_>) -> Result<Option<(IpAddr, IpAddr)>, Fault> {
    let address = |c: &mut Cursor<'_>| {
        c.skip();
        let text = c.run(|l| l.is_ascii_hexdigit() || l == ':' || l == '.');
        text.parse::<IpAddr>().ok()
    };
    let mut ahead = *c;
    let Some(source) = address(&mut ahead) else { return Ok(None) };
    ahead.expect(">")?;
    let at = ahead;
    let destination = address(&mut ahead).ok_or_else(|| at.wanted("an address"))?;
    *c = ahead;
    Ok(Some((source, destination)))
}

/// `/udp(1 > 9811)`, if it stands here.
fn udp(c: &mut Cursor<'_>) -> Result<Option<Udp>, Fault> {
    if !c.eat("/") {
        return Ok(None);
    }
    if !c.eat_word("udp") {
        return Err(c.wanted("`udp`"));
    }
    c.expect("(")?;
    let source = c.fitting()?;
    c.expect(">")?;
    let destination = c.fitting()?;
    c.expect(")")?;
    Ok(Some(Udp { source, destination }))
}

/// `unreachable frag_needed mtu 1300 [1453:2905(1452)/udp(9811 > 1)]`.
fn icmp(c: &mut Cursor<'_>) -> Result<Icmp, Fault> {
    c.skip();
    let mut found = Icmp { kind: c.word().to_owned(), ..Icmp::default() };
    let mut word = c.word();
    if !["", "mtu", "id"].contains(&word) {
        found.code = word.to_owned();
        word = c.word();
    }
    if word == "mtu" || word == "id" {
        c.fitting::<u32>()?;
    } else if !word.is_empty() {
        return Err(c.wanted("`mtu` or `[`"));
    }
    if c.eat("[") {
        found.seq = c.fitting()?;
        c.expect(":")?;
        c.fitting::<u32>()?;
        c.expect("(")?;
        c.fitting::<u32>()?;
        c.expect(")")?;
        found.udp = udp(c)?;
        c.expect("]")?;
    }
    Ok(found)
}

/// The control bits that a letter stands for, in their wire positions.
fn flag(letter: char) -> Option<u8> {
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

fn segment(c: &mut Cursor<'_>) -> Result<Segment, Fault> {
    c.skip();
    let start = *c;
    let mut s = Segment::default();
    let flags = c.run(|l| flag(l).is_some());
    if flags.is_empty() {
        return Err(start.wanted("TCP flags"));
    }
    s.flags = flags.chars().filter_map(flag).fold(0, |all, bit| all | bit);
    if c.eat("...") {
        c.expect("(")?;
        s.len = c.fitting()?;
        c.expect(")")?;
    } else {
        let at = *c;
        let seq: u32 = c.fitting()?;
        c.expect(":")?;
        let end: u32 = c.fitting()?;
        c.expect("(")?;
        s.len = c.fitting()?;
        c.expect(")")?;
        if seq.wrapping_add(s.len) != end {
            return Err(at.fault(format!("{seq}:{end} is not {} bytes", s.len)));
        }
        s.seq = Some(seq);
        s.absolute = c.eat("!");
    }
    if s.len > 65_535 {
        return Err(start.fault("no segment carries more than 65535 bytes"));
    }
    if c.eat_word("ack") && !c.eat("...") {
        s.ack = Some(c.fitting()?);
    }
    if c.eat_word("win") && !c.eat("...") {
        s.window = Some(c.fitting()?);
    }
    if c.eat_word("urg") {
        s.urgent = Some(c.fitting()?);
    }
    s.options = Some(Vec::new());
    if c.eat("<") {
        s.options = options(c)?;
    }
    Ok(s)
}

fn options(c: &mut Cursor<'_>) -> Result<Option<Vec<TcpOption>>, Fault> {
    if c.eat("...") {
        c.expect(">")?;
        return Ok(None);
    }
    let mut found = Vec::new();
    loop {
        if c.eat(">") {
            return Ok(Some(found));
        }
        if !found.is_empty() {
            c.expect(",")?;
        }
        found.push(option(c)?);
    }
}

fn option(c: &mut Cursor<'_>) -> Result<TcpOption, Fault> {
    let start = *c;
    Ok(match c.word() {
        "eol" => TcpOption::End,
        "nop" => TcpOption::Nop,
        "mss" => TcpOption::Mss(c.fitting()?),
        "wscale" => TcpOption::WindowScale(c.fitting()?),
        "sackOK" => TcpOption::SackPermitted,
        "TS" => {
            let val = if c.eat_word("val") { c.fitting()? } else { 0 };
            let ecr = if c.eat_word("ecr") { c.fitting()? } else { 0 };
            TcpOption::Timestamp(val, ecr)
        }
        "FO" => {
            c.skip();
            let at = *c;
            let digits = c.run(|d| d.is_ascii_hexdigit()).as_bytes();
            if digits.len() % 2 == 1 {
                return Err(at.fault("a cookie has two digits for each byte"));
            }
            let digit = |d: u8| (d as char).to_digit(16).unwrap_or(0) as u8;
            TcpOption::FastOpen(digits.chunks(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect())
        }
        "sack" => {
            let mut blocks = Vec::new();
            loop {
                c.skip();
                if !c.peek().is_some_and(|d| d.is_ascii_digit()) {
                    break;
                }
                let left = c.fitting()?;
                c.expect(":")?;
                blocks.push((left, c.fitting()?));
            }
            TcpOption::Sack(blocks)
        }
        "" => return Err(start.wanted("a TCP option")),
        _ => {
            c.run(|c| c != ',' && c != '>');
            let len = start.rest().len() - c.rest().len();
            TcpOption::Other(start.rest()[..len].trim().to_owned())
        }
    })
}

/// Bytes up to `]`.
fn bytes(c: &mut Cursor<'_>) -> Result<Vec<u8>, Fault> {
    let mut found = Vec::new();
    loop {
        if c.eat("]") {
            return Ok(found);
        }
        if !found.is_empty() {
            c.expect(",")?;
        }
        found.push(c.fitting()?);
    }
}

fn sctp(c: &mut Cursor<'_>) -> Result<Sctp, Fault> {
    let mut packet = Sctp::default();
    if c.eat("(") {
        for Item { key, value } in items(c, ")", 0)? {
            match (key.as_str(), &value) {
                ("tag", Value::Int(tag)) => packet.tag = u64::try_from(*tag).ok(),
                ("", Value::Word(word)) if word == "bad_crc32c" => packet.bad_checksum = true,
                _ => return Err(c.fault("in parentheses after sctp stand tag=N and bad_crc32c")),
            }
        }
    }
    if c.eat("/") {
        return Err(c.fault("SCTP in UDP is not read"));
    }
    c.expect(":")?;
    if c.eat("[") {
        packet.raw = Some(bytes(c)?);
        return Ok(packet);
    }
    loop {
        let start = *c;
        let chunk = item(c, 0)?;
        if !matches!(chunk.value, Value::Node(..)) {
            return Err(start.wanted("a chunk"));
        }
        packet.chunks.push(chunk);
        if !c.eat(";") {
            return Ok(packet);
        }
        c.skip();
        // The last chunk may be followed by a semicolon too.
        if !c.peek().is_some_and(|l| l.is_ascii_alphabetic()) {
            return Ok(packet);
        }
    }
}
