//! Where records failed together: the parts in which they are asked again, and how often the record was tried that failed
//! alone.
//!
//! Only offsets are kept, and the records are read again, so that whoever waits between two tries holds none of them.

use levada_model::Offset;

/// What a task knows of the records behind its position that failed.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Ends of the parts that are asked one by one, the next one last.
    ends: Vec<Offset>,
    /// The record that failed alone, and how often.
    record: Option<(Offset, u32)>,
}

impl Trouble {
    /// Where the next part ends; none where nothing failed.
    pub(super) fn end(&self) -> Option<Offset> {
        self.ends.last().copied()
    }

    /// The part up to `end` failed; it is asked again in two, the second of which begins at `middle`.
    pub(super) fn split(&mut self, middle: Offset, end: Offset) {
        assert!(middle < end, "each of the two has a record");
        self.push(end);
        self.push(middle);
    }

    /// A record failed alone; answers how often it has by now. It stays alone until it has passed.
    pub(super) fn failed(&mut self, at: Offset) -> u32 {
        self.push(at.advance(1));
        let before = self.record.filter(|(offset, _)| *offset == at).map_or(0, |(_, count)| count);
        self.record = Some((at, before + 1));
        before + 1
    }

    /// All before this position is done.
    pub(super) fn passed(&mut self, position: Offset) {
        while self.ends.pop_if(|end| *end <= position).is_some() {}
        self.record = self.record.filter(|(offset, _)| *offset >= position);
    }

    fn push(&mut self, end: Offset) {
        if self.end().is_none_or(|there| end < there) {
            self.ends.push(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for records up to `count` as a task does, where those of `poison` fail; answers which failed alone, and how many
    /// parts were asked.
    fn search(count: u64, poison: &[u64], attempts: u32) -> (Vec<u64>, usize) {
        let (mut trouble, mut position, mut found, mut asked) = (Trouble::default(), 0, Vec::new(), 0);
        while position < count {
            let end = trouble.end().map_or(count, |end| end.0.min(count));
            asked += 1;
            if !(position..end).any(|offset| poison.contains(&offset)) {
                position = end;
            } else if end - position > 1 {
                trouble.split(Offset(u64::midpoint(position, end)), Offset(end));
            } else if trouble.failed(Offset(position)) == attempts {
                found.push(position);
                position += 1;
            }
            trouble.passed(Offset(position));
        }
        (found, asked)
    }

    #[test]
    fn one_record_among_many_is_found_in_few_parts() {
        for poison in 0..100 {
            let (found, asked) = search(100, &[poison], 3);
            assert_eq!(found, [poison]);
            assert!(asked <= 2 * 7 + 3, "{asked} parts for record {poison}");
        }
    }

    #[test]
    fn where_all_fail_each_costs_its_tries_and_one_part_more_at_most() {
        let all: Vec<_> = (0..64).collect();
        let (found, asked) = search(64, &all, 3);
        assert_eq!(found, all);
        assert_eq!(asked, 64 * 3 + 63);
    }
}
