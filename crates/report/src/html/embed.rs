//! The JSON document inside the page.

use crate::document::Document;
use base64::Engine as _;
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;

/// Documents up to this size are embedded as they are, so that a reader of the page's source sees them; larger ones are
/// compressed, which keeps the page of 2,000 heads under 2 MB.
const PLAIN_BYTES_MAX: usize = 256 * 1024;

/// The element that holds the document.
pub(super) fn document(document: &Document) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(document)?;
    if json.len() <= PLAIN_BYTES_MAX {
        return Ok(element("application/json", "plain", &script_safe(&json)));
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // writing to memory cannot fail; if it did, the plain form is as good
    let packed = encoder
        .write_all(json.as_bytes())
        .and_then(|()| encoder.finish());
    Ok(match packed {
        Ok(bytes) => {
            let text = base64::engine::general_purpose::STANDARD.encode(bytes);
            element("text/plain", "gzip", &text)
        }
        Err(_) => element("application/json", "plain", &script_safe(&json)),
    })
}

fn element(kind: &str, encoding: &str, body: &str) -> String {
    format!("<script type=\"{kind}\" id=\"result\" data-encoding=\"{encoding}\">{body}</script>")
}

/// JSON with every character that HTML or a terminal could take for something else written as `\uXXXX`; it parses to the same
/// value. JSON has these characters inside strings only, where the escape means the character itself.
pub(super) fn script_safe(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        let visible = !crate::text::escape(character.encode_utf8(&mut [0; 4])).starts_with('\\')
            || character == '\\';
        if matches!(character, '<' | '>' | '&') || !visible {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escaped_document_is_the_same_document() {
        let hostile = "</script><!--<script>&\u{202e}\u{2028}\u{7f}\\\"\u{feff}\u{1f600}\n";
        let json = serde_json::to_string(&hostile).unwrap();
        let safe = script_safe(&json);
        assert!(!safe.contains(['<', '>', '&', '\u{202e}', '\u{2028}', '\u{7f}', '\u{feff}']));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }
}
