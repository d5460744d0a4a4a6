//! Text into Markdown.

/// Text in a line of Markdown: visible control characters, and nothing that Markdown or HTML takes for markup.
#[must_use]
pub fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for character in crate::text::escape(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' => {
                out.push('\\');
                out.push(character);
            }
            // neither a mention nor an address that is linked by itself
            '@' => out.push_str("&#64;"),
            ':' => out.push(':'),
            other => out.push(other),
        }
    }
    out.replace("://", ":&#47;/")
}

/// Places before a message.
pub(super) fn lead(facts: &[String]) -> String {
    if facts.is_empty() {
        String::new()
    } else {
        format!("{}: ", facts.join(", "))
    }
}

/// Text of our own or of a message: as [`inline`], and what stands between backticks as code.
pub(super) fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return inline(text);
    }
    let parts = parts.iter().enumerate().map(|(index, part)| {
        if index % 2 == 1 && !part.is_empty() {
            code(part)
        } else {
            inline(part)
        }
    });
    parts.collect()
}

/// A source of a check: an address of harmless characters at its beginning is a link, everything else is text.
pub(super) fn reference(text: &str) -> String {
    let address = text.split(' ').next().unwrap_or_default();
    let harmless = |c: char| c.is_ascii_alphanumeric() || "./-_#?=%:".contains(c);
    if address.starts_with("https://") && address.chars().all(harmless) {
        format!("<{address}>{}", prose(&text[address.len()..]))
    } else {
        prose(text)
    }
}

/// A word as code, whatever backticks it holds.
pub(super) fn code(text: &str) -> String {
    let text = crate::text::escape(text).replace('|', "\\|");
    let longest = text
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if longest > 0 || text.starts_with(' ') {
        format!("{fence} {text} {fence}")
    } else {
        format!("{fence}{text}{fence}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(
            inline("a|b *c* <img> [x](http://e) @me"),
            r"a\|b \*c\* &lt;img&gt; \[x\](http:&#47;/e) &#64;me"
        );
        assert_eq!(inline("a\nb\u{202e}"), r"a\\u{a}b\\u{202e}");
        assert_eq!(code("x``y"), "``` x``y ```");
    }

    #[test]
    fn only_an_address_at_the_beginning_of_a_source_is_a_link() {
        assert_eq!(
            reference("https://a.org/x_y (see [b](https://c.org))"),
            r"<https://a.org/x_y> (see \[b\](https:&#47;/c.org))"
        );
        assert_eq!(reference("arXiv:2608.03994"), "arXiv:2608.03994");
        for other in ["http://a.org", "https://a.org/<b>", "see https://a.org"] {
            assert!(!reference(other).starts_with("<"), "{other}");
        }
    }
}
