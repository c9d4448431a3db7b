//! Cuts a stream of bytes into lines, without copying those that come in one piece, and without keeping those that are
//! too long.

use bytes::{Buf, Bytes, BytesMut};

/// One line, numbered from 1 as the stream has them (empty ones are counted too).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number.
    pub(super) number: u64,
    /// Its bytes without the line break; none if there were too many.
    pub(super) text: Option<Bytes>,
}

/// The cutter. Holds what came last and at most one unfinished line.
#[derive(Debug)]
pub(super) struct LineCutter {
    line_bytes_max: usize,
    piece: Bytes,
    unfinished: BytesMut,
    too_long: bool,
    number: u64,
}

impl LineCutter {
    /// A cutter that keeps lines of at most `line_bytes_max` bytes.
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self { line_bytes_max, piece: Bytes::new(), unfinished: BytesMut::new(), too_long: false, number: 0 }
    }

    /// Takes the next bytes.
    ///
    /// # Panics
    /// When the bytes before were not used up.
    pub(super) fn push(&mut self, piece: Bytes) {
        assert!(self.piece.is_empty(), "lines are taken before more is pushed");
        self.piece = piece;
    }

    /// The next whole line that is not empty; none: push more.
    pub(super) fn next_line(&mut self) -> Option<Line> {
        while let Some(at) = self.piece.iter().position(|byte| *byte == b'\n') {
            let end = self.piece.split_to(at);
            self.piece.advance(1);
            let line = self.complete(end);
            if line.is_some() {
                return line;
            }
        }
        let rest = std::mem::take(&mut self.piece);
        self.keep(&rest);
        None
    }

    /// The last line where the stream ended well without a line break behind it.
    pub(super) fn last_line(&mut self) -> Option<Line> {
        assert!(self.piece.is_empty(), "lines are taken before the end");
        self.complete(Bytes::new())
    }

    fn complete(&mut self, end: Bytes) -> Option<Line> {
        self.number += 1;
        let text = if self.unfinished.is_empty() && !self.too_long && end.len() <= self.line_bytes_max {
            Some(end)
        } else {
            self.keep(&end);
            let whole = std::mem::take(&mut self.unfinished).freeze();
            (!std::mem::take(&mut self.too_long)).then_some(whole)
        };
        let is_blank = text.as_ref().is_some_and(|text| text.trim_ascii().is_empty());
        (!is_blank).then_some(Line { number: self.number, text })
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.too_long || self.unfinished.len() + bytes.len() > self.line_bytes_max {
            self.too_long = true;
            self.unfinished = BytesMut::new();
        } else {
            self.unfinished.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]], line_bytes_max: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut cutter = LineCutter::new(line_bytes_max);
        let mut lines = Vec::new();
        for piece in pieces {
            cutter.push(Bytes::copy_from_slice(piece));
            lines.extend(std::iter::from_fn(|| cutter.next_line()));
        }
        lines.extend(cutter.last_line());
        lines.into_iter().map(|line| (line.number, line.text.map(|text| text.to_vec()))).collect()
    }

    fn kept(number: u64, text: &str) -> (u64, Option<Vec<u8>>) {
        (number, Some(text.as_bytes().to_vec()))
    }

    #[test]
    fn empty_lines_are_counted_and_skipped_and_the_last_needs_no_line_break() {
        assert_eq!(cut(&[b"a\n\n \r\nb\r\nc"], 10), [kept(1, "a"), kept(4, "b\r"), kept(5, "c")]);
        assert_eq!(cut(&[b"a\n"], 10), [kept(1, "a")]);
        assert_eq!(cut(&[], 10), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_alone_and_never_kept() {
        let mut cutter = LineCutter::new(4);
        for _ in 0..100 {
            cutter.push(Bytes::from_static(b"xxx"));
            assert_eq!(cutter.next_line(), None);
            assert!(cutter.unfinished.len() <= 4);
        }
        cutter.push(Bytes::from_static(b"x\nabcd\n"));
        assert_eq!(cutter.next_line(), Some(Line { number: 1, text: None }));
        assert_eq!(cutter.next_line(), Some(Line { number: 2, text: Some(Bytes::from_static(b"abcd")) }));
        assert_eq!(cut(&[b"abcde\nab", b"cde\nabcd"], 4), [(1, None), (2, None), kept(3, "abcd")]);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_stream_is_cut(
            text in "[ab\n ]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..6),
            line_bytes_max in 1_usize..8,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for at in cuts.into_iter().chain([text.len()]) {
                pieces.push(&text.as_bytes()[from..at]);
                from = at;
            }
            let expected: Vec<_> = (1_u64..)
                .zip(text.split('\n'))
                .filter(|(_, line)| line.len() > line_bytes_max || !line.trim_ascii().is_empty())
                .map(|(number, line)| (number, (line.len() <= line_bytes_max).then(|| line.as_bytes().to_vec())))
                .collect();
            prop_assert_eq!(cut(&pieces, line_bytes_max), expected);
        }
    }
}
