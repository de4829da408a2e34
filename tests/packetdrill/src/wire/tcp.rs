//! TCP segments as bytes (RFC 9293, 3.1).

use super::FieldReader;
use crate::script::{ScriptSegment, TcpOption};

/// Encodes a segment. Fields that the script leaves open are zero.
///
/// # Errors
/// An option is unknown, or the options do not fill whole words.
pub(crate) fn encode_segment(s: &ScriptSegment, source: u16, destination: u16) -> Result<Vec<u8>, String> {
    let mut options = Vec::new();
    for option in s.options.iter().flatten() {
        match option {
            TcpOption::End => options.push(0),
            TcpOption::Nop => options.push(1),
            TcpOption::Mss(mss) => {
                options.extend([2, 4]);
                options.extend(mss.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => options.extend([3, 3, *shift]),
            TcpOption::SackPermitted => options.extend([4, 2]),
            TcpOption::Sack(blocks) => {
                options.extend([5, (2 + 8 * blocks.len()).min(255) as u8]);
                for (left, right) in blocks {
                    options.extend(left.to_be_bytes());
                    options.extend(right.to_be_bytes());
                }
            }
            TcpOption::Timestamp(val, ecr) => {
                options.extend([8, 10]);
                options.extend(val.to_be_bytes());
                options.extend(ecr.to_be_bytes());
            }
            TcpOption::FastOpen(cookie) => {
                options.extend([34, (2 + cookie.len()).min(255) as u8]);
                options.extend(cookie);
            }
            TcpOption::Other(text) => return Err(format!("TCP option `{text}`")),
        }
    }
    if options.len() > 40 || !options.len().is_multiple_of(4) {
        return Err(format!("{} bytes of TCP options, which are no whole words up to 40", options.len()));
    }
    let words = (20 + options.len()) / 4;
    let mut out = Vec::with_capacity(4 * words + s.len as usize);
    out.extend(source.to_be_bytes());
    out.extend(destination.to_be_bytes());
    out.extend(s.seq.unwrap_or(0).to_be_bytes());
    out.extend(s.ack.unwrap_or(0).to_be_bytes());
    out.extend([(words as u8) << 4, s.flags]);
    out.extend(s.window.unwrap_or(0).to_be_bytes());
    out.extend([0, 0]);
    out.extend(s.urgent.unwrap_or(0).to_be_bytes());
    out.extend(options);
    out.resize(out.len() + s.len as usize, 0);
    Ok(out)
}

/// Decodes a segment with all its fields. `None` if the bytes are not a segment.
pub(crate) fn decode_segment(bytes: &[u8]) -> Option<ScriptSegment> {
    let mut b = FieldReader(bytes);
    b.read_number(4)?;
    let (seq, ack) = (b.read_number(4)? as u32, b.read_number(4)? as u32);
    let (offset, flags) = (b.read_number(1)? as usize >> 4, b.read_number(1)? as u8);
    let (window, _, urgent) = (b.read_number(2)? as u16, b.read_number(2)?, b.read_number(2)? as u16);
    let options = decode_options(b.take((4 * offset).checked_sub(20)?)?)?;
    Some(ScriptSegment {
        flags,
        seq: Some(seq),
        absolute: false,
        len: b.0.len() as u32,
        ack: (flags & 16 != 0).then_some(ack),
        window: Some(window),
        urgent: (flags & 32 != 0).then_some(urgent),
        options: Some(options),
    })
}

fn decode_options(bytes: &[u8]) -> Option<Vec<TcpOption>> {
    let mut b = FieldReader(bytes);
    let mut found = Vec::new();
    while !b.0.is_empty() {
        let kind = b.read_number(1)?;
        if kind < 2 {
            found.push(if kind == 0 { TcpOption::End } else { TcpOption::Nop });
            continue;
        }
        let len = b.read_number(1)?;
        let mut body = FieldReader(b.take((len as usize).checked_sub(2)?)?);
        found.push(match (kind, len) {
            (2, 4) => TcpOption::Mss(body.read_number(2)? as u16),
            (3, 3) => TcpOption::WindowScale(body.read_number(1)? as u8),
            (4, 2) => TcpOption::SackPermitted,
            (5, _) => {
                let mut blocks = Vec::new();
                while !body.0.is_empty() {
                    blocks.push((body.read_number(4)? as u32, body.read_number(4)? as u32));
                }
                TcpOption::Sack(blocks)
            }
            (8, 10) => TcpOption::Timestamp(body.read_number(4)? as u32, body.read_number(4)? as u32),
            (34, _) => TcpOption::FastOpen(body.0.to_vec()),
            _ => TcpOption::Other(format!("{kind}")),
        });
    }
    Some(found)
}

/// Formats a segment in the script's notation.
pub(crate) fn format_segment(s: &ScriptSegment) -> String {
    let mut text = String::new();
    for (bit, letter) in [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P'), (32, 'U'), (64, 'E'), (128, 'W'), (16, '.')]
    {
        if s.flags & bit != 0 {
            text.push(letter);
        }
    }
    let seq = s.seq.unwrap_or(0);
    text.push_str(&format!(" {seq}:{}({})", seq.wrapping_add(s.len), s.len));
    if let Some(ack) = s.ack {
        text.push_str(&format!(" ack {ack}"));
    }
    if let Some(window) = s.window {
        text.push_str(&format!(" win {window}"));
    }
    let options = s.options.as_deref().unwrap_or_default();
    if !options.is_empty() {
        let words: Vec<String> = options.iter().map(show_option).collect();
        text.push_str(&format!(" <{}>", words.join(",")));
    }
    text
}

fn show_option(option: &TcpOption) -> String {
    match option {
        TcpOption::End => "eol".into(),
        TcpOption::Nop => "nop".into(),
        TcpOption::Mss(mss) => format!("mss {mss}"),
        TcpOption::WindowScale(shift) => format!("wscale {shift}"),
        TcpOption::SackPermitted => "sackOK".into(),
        TcpOption::Sack(blocks) => {
            let words: Vec<String> = blocks.iter().map(|(l, r)| format!("{l}:{r}")).collect();
            format!("sack {}", words.join(" "))
        }
        TcpOption::Timestamp(val, ecr) => format!("TS val {val} ecr {ecr}"),
        TcpOption::FastOpen(cookie) => {
            cookie.iter().fold("FO ".to_owned(), |text, byte| format!("{text}{byte:02x}"))
        }
        TcpOption::Other(text) => text.clone(),
    }
}
