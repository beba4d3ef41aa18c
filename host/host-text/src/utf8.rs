//! Bytes from outside become text here, or are refused.

use crate::TextError;

/// The text that `bytes` spell.
///
/// # Errors
/// [`TextError::InvalidUtf8`] with the offset of the first byte that is not part of a character.
pub fn utf8_text(bytes: &[u8]) -> Result<&str, TextError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        TextError::InvalidUtf8 { offset, byte: bytes[offset] }
    })
}

/// Moves the characters that `bytes` spell to `text`, and leaves an unfinished last character in `bytes`.
///
/// What can never become a character turns into U+FFFD, once for each maximal part of one, as
/// [`String::from_utf8_lossy`] does; so text that is moved in pieces equals text that is moved at once.
pub(crate) fn move_characters(bytes: &mut Vec<u8>, text: &mut String) {
    let mut start = 0;
    while start < bytes.len() {
        match std::str::from_utf8(&bytes[start..]) {
            Ok(valid) => {
                text.push_str(valid);
                start = bytes.len();
            }
            Err(error) => {
                let end = start + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[start..end]));
                start = end;
                let Some(invalid) = error.error_len() else { break };
                text.push(char::REPLACEMENT_CHARACTER);
                start += invalid;
            }
        }
    }
    bytes.drain(..start);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_text_is_borrowed_and_the_first_bad_byte_is_named() {
        assert_eq!(utf8_text("né 🦀".as_bytes()).unwrap(), "né 🦀");
        for (bytes, offset, byte) in
            [(&b"ab\xffc"[..], 2, 0xff), (b"\xc3", 0, 0xc3), (b"ok \xf0\x9f\xa6", 3, 0xf0)]
        {
            match utf8_text(bytes) {
                Err(TextError::InvalidUtf8 { offset: o, byte: b }) => assert_eq!((o, b), (offset, byte)),
                other => panic!("{other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn moving_in_pieces_equals_the_lossy_text(bytes: Vec<u8>, cuts in prop::collection::vec(1usize..5, 1..9)) {
            let (mut pending, mut text) = (Vec::new(), String::new());
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                pending.extend_from_slice(now);
                move_characters(&mut pending, &mut text);
                prop_assert!(pending.len() < 4);
                rest = later;
            }
            if !pending.is_empty() { text.push(char::REPLACEMENT_CHARACTER) }
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
