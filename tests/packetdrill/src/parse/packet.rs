//! Packets: TCP segments and SCTP packets with what stands around them.

use super::value::{item, items};
use super::{Cursor, Fault};
use crate::script::{Body, Item, Packet, Sctp, Segment, TcpOption, Value};

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
    let mut ahead = *c;
    let body = match ahead.word() {
        "sctp" => {
            *c = ahead;
            Body::Sctp(sctp(c)?)
        }
        name @ ("udp" | "icmp" | "udplite" | "ipv4" | "ipv6" | "gre" | "mpls") => {
            let name = name.to_owned();
            c.run(|c| c != '\n');
            Body::Other(name)
        }
        _ => Body::Tcp(segment(c)?),
    };
    Ok(Packet { outbound, ip, body })
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
