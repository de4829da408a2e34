//! Lines of a stream.

use alloc::vec::Vec;

/// Maximum octets of a line, its end included. A receiver of a longer line may close the connection (§5, note 2).
pub const MAX_LINE: usize = 1000;

/// The line exceeds [`MAX_LINE`] octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{MAX_LINE} octets without a line end")]
pub struct LineTooLong;

/// The incomplete line of a stream, at most [`MAX_LINE`] octets.
#[derive(Clone, Debug, Default)]
pub struct LineBuffer(Vec<u8>);

impl LineBuffer {
    /// Consumes `data` up to the end of a line and returns the line without its end. The end is CR LF, or LF alone,
    /// which some peers send. `None`: the line is incomplete, and all of `data` is consumed.
    ///
    /// # Errors
    /// The line is too long. The stream cannot be read further.
    pub fn next_line(&mut self, data: &mut &[u8]) -> Result<Option<Vec<u8>>, LineTooLong> {
        let end = data.iter().position(|octet| *octet == b'\n');
        let (head, rest) = data.split_at(end.map_or(data.len(), |at| at + 1));
        if self.0.len() + head.len() > MAX_LINE - usize::from(end.is_none()) {
            return Err(LineTooLong);
        }
        *data = rest;
        self.0.extend_from_slice(head);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = core::mem::take(&mut self.0);
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_lines(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let (mut lines, mut found) = (LineBuffer::default(), Vec::new());
        for mut data in pieces.iter().copied() {
            while let Some(line) = lines.next_line(&mut data)? {
                found.push(line);
            }
            assert!(data.is_empty());
        }
        Ok(found)
    }

    #[test]
    fn lines_end_by_cr_lf_or_lf_wherever_the_stream_is_cut() {
        let expected = [&b"6193, 23"[..], b"", b"a\rb"].map(<[u8]>::to_vec);
        assert_eq!(all_lines(&[b"6193, 23\r\n\na\rb\r\nrest"]).unwrap(), expected);
        let octets = b"6193, 23\r\n\na\rb\r\n";
        for cut in 0..octets.len() {
            let (a, b) = octets.split_at(cut);
            assert_eq!(all_lines(&[a, b]).unwrap(), expected, "cut at {cut}");
        }
        let single: Vec<&[u8]> = octets.chunks(1).collect();
        assert_eq!(all_lines(&single).unwrap(), expected);
    }

    #[test]
    fn a_line_has_a_thousand_octets_with_its_end() {
        let mut line = [b' '; MAX_LINE];
        line[MAX_LINE - 1] = b'\n';
        assert_eq!(all_lines(&[&line]).unwrap()[0].len(), MAX_LINE - 1);
        assert_eq!(all_lines(&[&line[..1], &line]), Err(LineTooLong));
        assert_eq!(all_lines(&[&line[..MAX_LINE - 1]]), Ok(Vec::new()));
        assert_eq!(all_lines(&[&[b' '; MAX_LINE]]), Err(LineTooLong), "no end can fit any more");
        assert_eq!(all_lines(&[&[b' '; 600], &[b' '; 400]]), Err(LineTooLong));
    }
}
