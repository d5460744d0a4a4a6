//! Names come from files, and files may be hostile: nothing from them may move the cursor, change colours or reorder text.

use std::borrow::Cow;

/// The text with every control character, bidirectional override and zero-width character written as `\u{..}`.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_unsafe(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_and_plain_text_stays() {
        assert_eq!(
            escape("bloom-560m \u{e9}\u{6587}"),
            "bloom-560m \u{e9}\u{6587}"
        );
        assert_eq!(escape("a\x1b[31mb\r\nc"), r"a\u{1b}[31mb\u{d}\u{a}c");
        assert_eq!(escape("\u{202e}txt"), r"\u{202e}txt");
        assert_eq!(escape("\u{9b}x"), r"\u{9b}x");
    }
}
