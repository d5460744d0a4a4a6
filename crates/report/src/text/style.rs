//! Width, glyphs and colour of a text document, all decided by the caller: the renderer looks at no terminal.

use anstyle::{AnsiColor, Style as Ansi};

/// How a text document is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns to stay within where wrapping is possible.
    pub width: usize,
    /// Whether to write ANSI colours.
    pub color: bool,
    /// Whether to keep to ASCII glyphs.
    pub ascii: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            width: 100,
            color: false,
            ascii: false,
        }
    }
}

/// What a piece of text is, rather than how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Warning,
    Error,
}

impl TextOptions {
    /// The text in its colours, or as it is.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        let ansi = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => Ansi::new().bold(),
            Style::Dim => Ansi::new().dimmed(),
            Style::Warning => AnsiColor::Yellow.on_default(),
            Style::Error => AnsiColor::Red.on_default(),
        };
        if self.color {
            format!("{ansi}{text}{ansi:#}")
        } else {
            text.to_owned()
        }
    }

    /// `text` broken at blanks to the width. The first line is written behind `start` columns; every other line starts with
    /// `indent` blanks.
    pub(crate) fn wrap(&self, text: &str, start: usize, indent: usize) -> String {
        let mut out = String::new();
        let mut column = start;
        for word in text.split_whitespace() {
            let length = word.chars().count();
            let empty = out.is_empty();
            if !empty && column + 1 + length > self.width {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            } else if !empty {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_long_words_stay_whole() {
        let options = TextOptions {
            width: 12,
            ..TextOptions::default()
        };
        assert_eq!(
            options.wrap("one two three four", 0, 2),
            "one two\n  three four"
        );
        assert_eq!(
            options.wrap("averyveryverylongword x", 0, 2),
            "averyveryverylongword\n  x"
        );
        assert_eq!(options.wrap("one two", 8, 2), "one\n  two");
    }

    #[test]
    fn colour_only_when_asked_for() {
        let plain = TextOptions::default();
        assert_eq!(plain.paint(Style::Error, "x"), "x");
        let coloured = TextOptions {
            color: true,
            ..plain
        };
        assert_eq!(coloured.paint(Style::Error, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
