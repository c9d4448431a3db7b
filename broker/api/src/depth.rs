//! How deep JSON text nests, told without parsing it: a value that was sent as JSON is counted on its way in and out.

/// Bytes that are looked at together: few enough that a count of them fits into a byte.
const BLOCK_BYTES: usize = 128;

/// Whether well-formed JSON text nests arrays and objects deeper than `max`.
pub(crate) fn is_deeper_than(text: &[u8], max: usize) -> bool {
    // This settles nearly every value: brackets that are not there cannot nest, and those in strings only make the count
    // too large.
    count_opening(text) > max && nests_deeper_than(text, max)
}

/// How often `[` and `{` come, in strings too. A count that fits into a byte is one the compiler makes fast vector code
/// of; one of words takes sixteen times as long.
fn count_opening(text: &[u8]) -> usize {
    let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
    // `[` and `{` differ in one bit.
    let count = |block: &[u8]| usize::from(block.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>());
    blocks.iter().map(|block| count(block)).sum::<usize>() + count(rest)
}

fn nests_deeper_than(text: &[u8], max: usize) -> bool {
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opening_bracket_is_counted_wherever_it_stands_in_a_block() {
        for length in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5] {
            assert_eq!(count_opening(&vec![b'['; length]), length);
            assert_eq!(count_opening(&vec![b'{'; length]), length);
            assert_eq!(count_opening(&vec![b']'; length]), 0);
        }
    }

    #[test]
    fn only_brackets_outside_of_strings_nest() {
        for (text, depth) in
            [("1", 0), ("[]", 1), ("[[],[]]", 2), ("{\"a\":[1]}", 2), ("[\"[[[\"]", 1), ("[\"\\\"[[\",[]]", 2)]
        {
            assert!(!is_deeper_than(text.as_bytes(), depth), "{text}");
            assert!(depth == 0 || is_deeper_than(text.as_bytes(), depth - 1), "{text}");
        }
    }
}
