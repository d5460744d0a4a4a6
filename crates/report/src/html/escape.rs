//! Text into HTML.

use crate::text::escape;

/// The text with control and bidirectional characters made visible and with HTML's own characters as entities: safe between
/// tags and inside a quoted attribute.
#[must_use]
pub fn escape_html(text: &str) -> String {
    let visible = escape(text);
    let mut out = String::with_capacity(visible.len() + 8);
    for character in visible.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// A name from a file: escaped, and isolated so that its direction does not spread to the text around it.
pub(super) fn name(text: &str) -> String {
    format!("<bdi>{}</bdi>", escape_html(text))
}

/// Text of our own or of a message: escaped, and what stands between backticks as code.
pub(super) fn prose(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escape_html).collect();
    if parts.len().is_multiple_of(2) {
        // a backtick without its partner is only a character
        return parts.join("`");
    }
    let parts = parts.iter().enumerate().map(|(index, part)| {
        if index % 2 == 1 {
            format!("<code>{part}</code>")
        } else {
            part.clone()
        }
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(
            escape_html("</script><img src=x onerror='a&b'>\""),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a&amp;b&#39;&gt;&quot;"
        );
        assert_eq!(escape_html("a\u{202e}b\u{0}"), r"a\u{202e}b\u{0}");
        assert_eq!(name("\u{5d0}"), "<bdi>\u{5d0}</bdi>");
        assert_eq!(prose("run `a<b` and `c"), "run `a&lt;b` and `c");
        assert_eq!(prose("run `a<b`."), "run <code>a&lt;b</code>.");
    }
}
