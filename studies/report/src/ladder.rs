//! Message-flow figures: the messages between hosts in order of time, as standards draw them.

use crate::figure::safe_file_stem;
use crate::format::{escape_markup, format_decimals, format_significant};
use crate::svg::{COLOURS, STYLE, format_px, text_width};
use std::fmt::Write as _;

/// The messages of one dialogue between its hosts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MessageFlow {
    /// A short name, the basis of the file's name.
    pub name: String,
    /// The title.
    pub title: String,
    /// Remarks in a sentence or two.
    pub caption: String,
    /// The hosts, from left to right.
    pub hosts: Vec<String>,
    /// The messages in the order of sending.
    pub messages: Vec<FlowMessage>,
    /// Duration of the dialogue in seconds.
    pub duration: f64,
    /// True if the dialogue succeeded.
    pub completed: bool,
}

/// A message.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FlowMessage {
    /// Sending time in seconds since the dialogue began.
    pub sent: f64,
    /// Arrival time in seconds since the dialogue began; `None` if it was lost.
    pub arrived: Option<f64>,
    /// Index of its sender in [`MessageFlow::hosts`].
    pub from: usize,
    /// Index of its receiver.
    pub to: usize,
    /// The protocol's name.
    pub protocol: String,
    /// The message's name in the protocol's standard.
    pub name: String,
    /// Octets of its packet.
    pub octets: u64,
    /// True if it was sent before.
    pub is_retransmission: bool,
}

/// A row of the figure.
enum MessageFlowRow<'a> {
    Message(&'a FlowMessage),
    /// A pause of this many seconds without messages.
    Pause(f64),
    End,
}

/// Pixels.
const LEFT: f64 = 92.0;
const NARROWEST: f64 = 130.0;
const MARGIN: f64 = 64.0;
const ROW: f64 = 33.0;
const SLOPE: f64 = 8.0;
const FONT: f64 = 12.0;

impl FlowMessage {
    fn label_text(&self) -> String {
        let again = if self.is_retransmission { " (retransmission)" } else { "" };
        let lost = if self.arrived.is_none() { " — lost" } else { "" };
        format!("{}{again}{lost}", self.name)
    }
}

impl MessageFlow {
    /// Returns the name for a file.
    pub fn file_stem(&self) -> String {
        safe_file_stem(&self.name, "ladder")
    }

    /// Returns the protocols in the order of their first message.
    fn protocols(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for message in &self.messages {
            if !all.contains(&message.protocol.as_str()) {
                all.push(&message.protocol);
            }
        }
        all
    }

    /// Returns the messages, the long pauses between them, and the end of the dialogue.
    fn rows(&self) -> Vec<MessageFlowRow<'_>> {
        let mut gaps: Vec<f64> = self.messages.windows(2).map(|m| m[1].sent - m[0].sent).collect();
        gaps.sort_by(f64::total_cmp);
        let usual = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
        let whole = self.messages.last().map_or(0.0, |m| m.sent);
        let mut rows = Vec::new();
        let mut before = 0.0;
        let mut over = false;
        for message in &self.messages {
            if !over && message.sent > self.duration {
                rows.push(MessageFlowRow::End);
                over = true;
            }
            let gap = message.sent - before;
            if gap > 5.0 * usual && gap > 0.15 * whole && !rows.is_empty() {
                rows.push(MessageFlowRow::Pause(gap));
            }
            before = message.sent;
            rows.push(MessageFlowRow::Message(message));
        }
        if !over {
            rows.push(MessageFlowRow::End);
        }
        rows
    }

    /// Returns the position of each host's line, and the total width.
    fn column_positions(&self) -> (Vec<f64>, f64) {
        let mut gaps = vec![NARROWEST; self.hosts.len().saturating_sub(1)];
        let mut by_span: Vec<&FlowMessage> = self.messages.iter().collect();
        by_span.sort_by_key(|m| m.from.abs_diff(m.to));
        for message in by_span {
            let (first, last) = (message.from.min(message.to), message.from.max(message.to));
            let Some(between) = gaps.get_mut(first..last).filter(|between| !between.is_empty()) else {
                continue;
            };
            let lacking = text_width(&message.label_text(), FONT) + 26.0 - between.iter().sum::<f64>();
            let each = lacking.max(0.0) / between.len() as f64;
            between.iter_mut().for_each(|gap| *gap += each);
        }
        let mut x = LEFT + MARGIN;
        let mut columns = vec![x];
        for gap in gaps {
            x += gap;
            columns.push(x);
        }
        (columns, x + MARGIN + 44.0)
    }

    /// Formats a time in the figure's unit.
    fn format_time(&self, seconds: f64) -> String {
        let whole = self.messages.last().map_or(0.0, |m| m.sent).max(self.duration);
        if whole < 1.0 {
            format!("{} ms", format_decimals(seconds * 1e3, 3))
        } else {
            format!("{} s", format_decimals(seconds, 4))
        }
    }

    fn message_flow_end_text(&self) -> String {
        let how = if self.completed { "completed" } else { "failed" };
        format!("{how} after {}", self.format_time(self.duration))
    }

    /// Returns the figure as a separate file.
    pub fn to_svg(&self) -> String {
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", self.draw_svg(true))
    }

    /// Draws the figure as an `svg` element; with `alone` it includes its title, a white background and its style.
    pub(crate) fn draw_svg(&self, alone: bool) -> String {
        let (columns, width) = self.column_positions();
        let width = width.max(if alone { text_width(&self.title, 16.0) + 32.0 } else { 0.0 });
        let protocols = self.protocols();
        let rows = self.rows();
        let top = if alone { 96.0 } else { 62.0 };
        let heights =
            rows.iter().map(|row| if matches!(row, MessageFlowRow::Message(_)) { ROW } else { 24.0 });
        let bottom = top + 14.0 + heights.sum::<f64>();
        let height = bottom + 14.0;
        let id = self.file_stem();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure ladder\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\" aria-labelledby=\"{id}-title\">\n<title id=\"{id}-title\">{}</title>\n",
            escape_markup(&self.title),
            w = format_px(width),
            h = format_px(height)
        );
        if alone {
            let _ = writeln!(
                out,
                "<style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
                 <text class=\"title\" x=\"16\" y=\"28\">{}</text>",
                escape_markup(&self.title)
            );
        }
        let mut x = 16.0;
        for (i, protocol) in protocols.iter().enumerate() {
            let y = format_px(top - 46.0);
            let _ = writeln!(
                out,
                "<g class=\"label c{}\"><path class=\"line\" d=\"M{} {}h16\"/><text x=\"{}\" y=\"{y}\">{}</text></g>",
                i % COLOURS,
                format_px(x),
                format_px(top - 50.0),
                format_px(x + 21.0),
                escape_markup(protocol)
            );
            x += 40.0 + text_width(protocol, 12.5);
        }
        for (x, host) in columns.iter().zip(&self.hosts) {
            let _ = writeln!(
                out,
                "<path class=\"lifeline\" d=\"M{0} {1}V{2}\"/><text class=\"host\" x=\"{0}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
                format_px(*x),
                format_px(top - 10.0),
                format_px(bottom),
                format_px(top - 17.0),
                escape_markup(host)
            );
        }
        let mut y = top + 14.0;
        for row in rows {
            match row {
                MessageFlowRow::Message(message) => {
                    self.draw_arrow(&mut out, message, &columns, y, &protocols);
                    y += ROW;
                }
                MessageFlowRow::Pause(seconds) => {
                    let ends = columns.first().zip(columns.last());
                    let middle = format_px(ends.map_or(LEFT, |(first, last)| f64::midpoint(*first, *last)));
                    let _ = writeln!(
                        out,
                        "<text class=\"tick\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">⋮ {} later</text>",
                        format_px(y),
                        escape_markup(&self.format_time(seconds))
                    );
                    y += 24.0;
                }
                MessageFlowRow::End => {
                    let line = format_px(y - 6.0);
                    let _ = writeln!(
                        out,
                        "<path class=\"over\" d=\"M{LEFT} {line}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                        format_px(width - 12.0),
                        format_px(width - 12.0),
                        format_px(y - 10.0),
                        escape_markup(&self.message_flow_end_text())
                    );
                    y += 24.0;
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw_arrow(
        &self,
        out: &mut String,
        message: &FlowMessage,
        columns: &[f64],
        y: f64,
        protocols: &[&str],
    ) {
        let (Some(&from), Some(&to)) = (columns.get(message.from), columns.get(message.to)) else { return };
        let colour = protocols.iter().position(|p| *p == message.protocol).unwrap_or_default() % COLOURS;
        let side = if to > from { 1.0 } else { -1.0 };
        let share = if message.arrived.is_some() { 1.0 } else { 0.62 };
        let (x, end) = (from + share * (to - from), y + share * SLOPE);
        let tail = if message.is_retransmission { " again" } else { "" };
        let mut tip = format!(
            "{}\n{}\nsent {}",
            message.label_text(),
            message.protocol,
            self.format_time(message.sent)
        );
        match message.arrived {
            Some(arrived) => {
                let took = format_significant((arrived - message.sent) * 1e3, 4);
                let _ = write!(tip, "\narrived {}, after {took} ms", self.format_time(arrived));
            }
            None => tip.push_str("\nlost"),
        }
        let _ = write!(tip, "\n{} B", message.octets);
        let _ = writeln!(
            out,
            "<g class=\"series message c{colour}{tail}\"><text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <path class=\"line\" d=\"M{} {}L{} {}\"/>",
            format_px(LEFT - 14.0),
            format_px(y + 4.0),
            escape_markup(&self.format_time(message.sent)),
            format_px(from),
            format_px(y),
            format_px(x),
            format_px(end)
        );
        let head = match message.arrived {
            Some(_) => format!("M{} {}l{} -4.6v9.2z", format_px(x), format_px(end), format_px(-9.0 * side)),
            None => format!("M{} {}l8 8m0 -8l-8 8", format_px(x - 4.0), format_px(end - 4.0)),
        };
        let class = if message.arrived.is_some() { "head" } else { "cross" };
        let _ = writeln!(
            out,
            "<path class=\"{class}\" d=\"{head}\"/><text class=\"said\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <path class=\"hit\" data-tip=\"{}\" transform=\"translate({} {})\" d=\"M-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0z\"/></g>",
            format_px(f64::midpoint(from, to)),
            format_px(y - 3.5),
            escape_markup(&message.label_text()),
            escape_markup(&tip).replace('\n', "&#10;"),
            format_px(f64::midpoint(from, to)),
            format_px(y + SLOPE / 2.0)
        );
    }

    /// Returns the figure as text for a terminal.
    pub fn to_text(&self) -> String {
        const TIME: usize = 13;
        let label = |m: &FlowMessage| m.label_text();
        let mut gaps = vec![12; self.hosts.len().saturating_sub(1)];
        for (gap, hosts) in gaps.iter_mut().zip(self.hosts.windows(2)) {
            *gap = hosts.iter().map(|h| h.chars().count()).sum::<usize>() / 2 + 3;
        }
        let mut by_span: Vec<&FlowMessage> = self.messages.iter().collect();
        by_span.sort_by_key(|m| m.from.abs_diff(m.to));
        for message in by_span {
            let (first, last) = (message.from.min(message.to), message.from.max(message.to));
            let Some(between) = gaps.get_mut(first..last).filter(|between| !between.is_empty()) else {
                continue;
            };
            let lacking = (label(message).chars().count() + 7).saturating_sub(between.iter().sum());
            let each = lacking.div_ceil(between.len());
            between.iter_mut().for_each(|gap| *gap += each);
        }
        let first = TIME + 3 + self.hosts.first().map_or(0, |h| h.chars().count() / 2);
        let columns: Vec<usize> = std::iter::once(first)
            .chain(gaps.iter().scan(first, |x, gap| {
                *x += gap;
                Some(*x)
            }))
            .collect();
        let lines = |time: &str| {
            let mut line: Vec<char> = vec![' '; columns.last().map_or(0, |last| last + 1)];
            columns.iter().for_each(|x| line[*x] = '|');
            put_text(&mut line, TIME.saturating_sub(time.chars().count()), time);
            line
        };
        let mut out = format!("{}\n\n", self.title);
        let mut heads: Vec<char> = Vec::new();
        for (x, host) in columns.iter().zip(&self.hosts) {
            put_text(&mut heads, x.saturating_sub(host.chars().count() / 2), host);
        }
        out.push_str(heads.iter().collect::<String>().trim_end());
        out.push('\n');
        for row in self.rows() {
            let line = match row {
                MessageFlowRow::Message(message) => {
                    let mut line = lines(&self.format_time(message.sent));
                    let (Some(&a), Some(&b)) = (columns.get(message.from), columns.get(message.to)) else {
                        continue;
                    };
                    if a == b {
                        continue;
                    }
                    let (left, right) = (a.min(b) + 1, a.max(b) - 1);
                    let stroke = if message.is_retransmission { '·' } else { '-' };
                    line[left..=right].fill(stroke);
                    let (at, head) = if b > a { (right, '>') } else { (left, '<') };
                    line[at] = if message.arrived.is_some() { head } else { 'x' };
                    let text = format!(" {} ", label(message));
                    let room = (right - left + 1).saturating_sub(text.chars().count());
                    put_text(&mut line, left + room / 2, &text);
                    line
                }
                MessageFlowRow::Pause(seconds) => {
                    let mut line = lines("");
                    put_text(&mut line, TIME.saturating_sub(1), ":");
                    line.extend(format!("  {} later", self.format_time(seconds)).chars());
                    line
                }
                MessageFlowRow::End => {
                    let mut line = lines("=");
                    line.extend(format!("  {}", self.message_flow_end_text()).chars());
                    line
                }
            };
            out.push_str(line.iter().collect::<String>().trim_end());
            out.push('\n');
        }
        if !self.caption.is_empty() {
            let _ = write!(out, "\n{}\n", self.caption);
        }
        out
    }
}

/// Writes a text into a line, which grows as needed.
fn put_text(line: &mut Vec<char>, at: usize, text: &str) {
    let end = at + text.chars().count();
    if line.len() < end {
        line.resize(end, ' ');
    }
    for (place, c) in line[at..].iter_mut().zip(text.chars()) {
        *place = c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_message(sent: f64, from: usize, to: usize, name: &str) -> FlowMessage {
        let arrived = Some(sent + 0.01);
        FlowMessage {
            sent,
            arrived,
            from,
            to,
            protocol: "RADIUS".into(),
            name: name.into(),
            octets: 90,
            is_retransmission: false,
        }
    }

    fn test_flow() -> MessageFlow {
        let lost = FlowMessage { arrived: None, ..test_message(0.0, 0, 2, "Access-Request") };
        let again = FlowMessage { is_retransmission: true, ..test_message(3.0, 0, 2, "Access-Request") };
        let messages =
            vec![lost, again, test_message(3.02, 2, 0, "Access-Accept"), test_message(3.05, 0, 1, "done")];
        let hosts = ["nas", "router", "server"].map(str::to_owned).to_vec();
        MessageFlow {
            title: "A <login>".into(),
            hosts,
            messages,
            duration: 3.03,
            completed: true,
            ..MessageFlow::default()
        }
    }

    #[test]
    fn in_letters() {
        let text = test_flow().to_text();
        for word in [
            "Access-Request — lost",
            "x|",
            "3.0000 s later",
            "Access-Request (retransmission)",
            ">|",
            "|<",
            "completed after 3.0300 s",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let order =
            ["Access-Request — lost", "later", "(retransmission)", "Access-Accept", "completed", "done"]
                .map(|w| text.find(w).unwrap());
        assert!(order.is_sorted(), "{text}");
        let lines: Vec<&str> = text.lines().skip(3).collect();
        let last = |line: &str| line.chars().collect::<Vec<_>>().iter().rposition(|c| *c == '|');
        assert!(lines.iter().take(6).all(|line| last(line) == last(lines[0])), "{text}");
    }

    #[test]
    fn as_a_picture_it_holds_all_and_hostile_names_are_only_text() {
        let svg = test_flow().to_svg();
        assert!(svg.contains("A &lt;login&gt;") && !svg.contains("<login>"));
        assert_eq!(svg.matches("class=\"head\"").count(), 3);
        assert_eq!(svg.matches("class=\"cross\"").count(), 1);
        assert_eq!(svg.matches("class=\"lifeline\"").count(), 3);
        assert_eq!(svg.matches(" again\">").count(), 1);
        assert!(svg.contains("completed after 3.0300 s") && svg.contains("3.0000 s later"));
    }

    #[test]
    fn an_empty_flow_and_unknown_hosts_are_drawn_without_a_fault() {
        let odd = MessageFlow {
            messages: vec![test_message(0.0, 7, 9, "a"), test_message(f64::NAN, 0, 0, "b")],
            ..test_flow()
        };
        for ladder in [MessageFlow::default(), odd] {
            assert!(ladder.to_svg().contains("</svg>") && !ladder.to_text().is_empty());
        }
    }
}
