//! Zig-zag varints, in which a record section writes its numbers. The log has its own twin, since neither crate may know
//! the other.

/// The number at `at`, which moves behind it. None: cut off, or wider than 64 bits.
#[inline]
pub(super) fn take(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(signed(first.into()));
    }
    let mut number = u64::from(first & 0x7f);
    for shift in (7..u64::BITS).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(signed(number));
        }
    }
    None
}

/// Writes `number`.
pub(super) fn put(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        bytes.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    bytes.push(rest.to_le_bytes()[0]);
}

/// Bytes that `number` takes.
pub(super) fn size(number: i64) -> usize {
    let bits = u64::BITS - ((((number << 1) ^ (number >> 63)).cast_unsigned()) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back_and_its_size_is_foretold() {
        let wide = (0..63).flat_map(|shift| [1_i64 << shift, -(1 << shift), (1 << shift) - 1]);
        for number in wide.chain([i64::MIN, i64::MAX, -1, 0]) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut at = 0;
            assert_eq!((take(&bytes, &mut at), at, bytes.len()), (Some(number), size(number), size(number)));
            assert_eq!(take(&bytes[..bytes.len() - 1], &mut 0), None, "cut off");
        }
    }

    #[test]
    fn numbers_that_are_too_wide_are_refused() {
        assert_eq!(take(&[0xff; 11], &mut 0), None);
        assert_eq!(take(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], &mut 0), None);
    }
}
