//! Codes of 2 to 8 bits as a little-endian bit stream along a row, the way MLX packs them into u32 words.
//!
//! Eight codes of `b` bits fill `b` bytes exactly, whatever `b` is, so one loop serves every width.

/// Unpacks a row of codes; `packed` has `codes.len() * bits / 8` bytes and `codes.len()` is a multiple of 8.
pub(crate) fn unpack_row(bits: u8, packed: &[u8], codes: &mut [u8]) {
    match bits {
        2 => unpack::<2>(packed, codes),
        3 => unpack::<3>(packed, codes),
        4 => unpack::<4>(packed, codes),
        5 => unpack::<5>(packed, codes),
        6 => unpack::<6>(packed, codes),
        8 => codes.copy_from_slice(packed),
        _ => unreachable!("the readers admit 2, 3, 4, 5, 6 and 8 bits"),
    }
}

fn unpack<const BITS: usize>(packed: &[u8], codes: &mut [u8]) {
    let (bytes, eights) = (packed.as_chunks::<BITS>().0, codes.as_chunks_mut::<8>().0);
    for (bytes, eight) in bytes.iter().zip(eights) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        *eight = spread::<BITS>(u64::from_le_bytes(word)).to_le_bytes();
    }
}

/// Moves eight adjacent `BITS`-wide fields to the low ends of eight bytes, halving the distance in three steps.
#[inline(always)]
fn spread<const BITS: usize>(word: u64) -> u64 {
    let field = |width: usize| (1_u64 << width) - 1;
    let half = field(4 * BITS);
    let quarter = field(2 * BITS) * 0x0000_0001_0000_0001;
    let single = field(BITS) * 0x0001_0001_0001_0001;
    let word = (word & half) | (word >> (4 * BITS) & half) << 32;
    let word = (word & quarter) | (word >> (2 * BITS) & quarter) << 16;
    (word & single) | (word >> BITS & single) << 8
}

/// Packs a row of codes into `packed`; the inverse of [`unpack_row`]. Each code fits `bits`.
pub fn pack_row(bits: u8, codes: &[u8], packed: &mut [u8]) {
    let bits = usize::from(bits);
    for (eight, bytes) in codes.as_chunks::<8>().0.iter().zip(packed.chunks_exact_mut(bits)) {
        let word =
            eight.iter().enumerate().fold(0_u64, |word, (i, code)| word | u64::from(*code) << (i * bits));
        bytes.copy_from_slice(&word.to_le_bytes()[..bits]);
    }
}
