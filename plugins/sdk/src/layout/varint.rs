//! Zig-zag varints, in which the records of a batch write their numbers.

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

/// The bytes at `at` behind their length, or null; none if they are cut off.
#[inline]
pub(super) fn take_part<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let length = take(bytes, at)?;
    if length == -1 {
        return Some(None);
    }
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    let part = bytes.get(*at..end)?;
    *at = end;
    Some(Some(part))
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

/// Writes bytes behind their length, or null.
pub(super) fn put_part(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    put(bytes, part.map_or(-1, |part| i64::try_from(part.len()).expect("sizes in memory are below 2^63")));
    bytes.extend_from_slice(part.unwrap_or_default());
}

fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
