//! Series' names beside the ends of their curves.

use crate::figure::FigureSeries;

/// The line spacing of a label.
pub(super) const LINE: f64 = 15.0;
const GAP: f64 = 7.0;
const LONGEST: f64 = 170.0;

/// A series' name and its position.
#[derive(Debug)]
pub(super) struct SeriesLabel {
    pub(super) lines: Vec<String>,
    /// The end of the curve.
    pub(super) anchor: Option<(f64, f64)>,
    /// Its upper edge.
    pub(super) y: f64,
}

impl SeriesLabel {
    pub(super) fn width(&self) -> f64 {
        self.lines.iter().map(|l| text_width(l, 12.5)).fold(0.0, f64::max)
    }
    pub(super) fn height(&self) -> f64 {
        LINE * self.lines.len() as f64
    }
}

/// Breaks labels into lines at spaces, and long words after a punctuation mark. Still longer ones are truncated.
pub(super) fn wrap_labels(series: &[FigureSeries]) -> Vec<SeriesLabel> {
    series.iter().map(|s| SeriesLabel { lines: wrap_lines(&s.name, LONGEST), anchor: None, y: 0.0 }).collect()
}

/// Breaks a name into lines up to this length.
pub(super) fn wrap_lines(name: &str, longest: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split_whitespace() {
        let is_longer = text_width(word, 12.5) > longest;
        let pieces = word.split_inclusive(|c| is_longer && matches!(c, '.' | '-' | '_' | '/' | ','));
        for (n, piece) in pieces.enumerate() {
            let mut piece = piece.to_owned();
            if text_width(&piece, 12.5) > longest {
                while text_width(&piece, 12.5) > longest {
                    piece.pop();
                }
                piece.push('…');
            }
            let between = if n == 0 { " " } else { "" };
            match lines.last_mut() {
                Some(line) if text_width(&format!("{line}{between}{piece}"), 12.5) <= longest => {
                    line.push_str(between);
                    line.push_str(&piece);
                }
                _ => lines.push(piece),
            }
        }
    }
    if lines.is_empty() {
        lines.push("(unnamed)".to_owned());
    }
    lines
}

/// Places the labels at their curves' ends without overlaps, within `top..=bottom` if they fit. Returns the lower edge
/// of the lowest.
pub(super) fn place_labels_without_overlap(labels: &mut [SeriesLabel], top: f64, bottom: f64) -> f64 {
    let wish = |l: &SeriesLabel| l.anchor.map_or(bottom, |(_, y)| y);
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by(|&a, &b| wish(&labels[a]).total_cmp(&wish(&labels[b])));
    let mut free = top - 6.0;
    for &i in &order {
        labels[i].y = (wish(&labels[i]) - labels[i].height() / 2.0).max(free);
        free = labels[i].y + labels[i].height() + GAP;
    }
    let mut limit = bottom + 6.0;
    for &i in order.iter().rev() {
        labels[i].y = labels[i].y.min(limit - labels[i].height());
        limit = labels[i].y - GAP;
    }
    // There are too many labels to fit, so place them from the top down, and let the figure grow.
    let mut free = top - 6.0;
    for &i in &order {
        labels[i].y = labels[i].y.max(free);
        free = labels[i].y + labels[i].height() + GAP;
    }
    free - GAP
}

/// Returns the approximate width of a text in a common sans-serif font of this size; never far too small.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let ems = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.32,
        ' ' | 'f' | 't' | 'r' | '(' | ')' | '/' | '-' => 0.4,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.98,
        'A'..='Z' => 0.72,
        c if c.is_ascii() => 0.62,
        c if (c as u32) < 0x1100 => 0.66,
        _ => 1.05,
    };
    text.chars().map(ems).sum::<f64>() * size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_label(name: &str, y: f64) -> SeriesLabel {
        SeriesLabel { lines: wrap_lines(name, LONGEST), anchor: Some((0.0, y)), y: 0.0 }
    }

    fn labels_do_not_overlap(labels: &[SeriesLabel]) -> bool {
        let mut spans: Vec<(f64, f64)> = labels.iter().map(|l| (l.y, l.y + l.height())).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        spans.windows(2).all(|s| s[0].1 <= s[1].0)
    }

    #[test]
    fn long_names_are_broken() {
        assert_eq!(wrap_lines("Diameter/TCP", LONGEST), ["Diameter/TCP"]);
        assert_eq!(
            wrap_lines("RADIUS/UDP with fixed retransmission", LONGEST),
            ["RADIUS/UDP with fixed", "retransmission"]
        );
        assert_eq!(wrap_lines("ike.radius-response.messages", LONGEST), ["ike.radius-response.", "messages"]);
        assert!(wrap_lines(&"x".repeat(500), LONGEST)[0].ends_with('…'));
        assert_eq!(wrap_lines("", LONGEST), ["(unnamed)"]);
    }

    #[test]
    fn labels_keep_apart_and_within() {
        let mut labels =
            [test_label("a", 300.0), test_label("b", 299.0), test_label("c", 50.0), test_label("d", 301.0)];
        let lowest = place_labels_without_overlap(&mut labels, 40.0, 300.0);
        assert!(labels_do_not_overlap(&labels) && lowest <= 306.0, "{labels:?}");
        let mut many: Vec<SeriesLabel> = (0..40).map(|i| test_label("many", f64::from(i))).collect();
        assert!(place_labels_without_overlap(&mut many, 40.0, 300.0) > 300.0 && labels_do_not_overlap(&many));
    }
}
