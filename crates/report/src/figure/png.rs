//! The figures as PNG: the SVG document, drawn by `resvg` with fonts that are part of the program.
//!
//! The same document gives the same picture on every machine: fonts of the system are not looked at, and nothing of the picture depends on
//! them. Letters that DejaVu Sans does not have (of Chinese, Japanese and Korean, say) are left blank; names that need them are whole in SVG.

use super::Chosen;
use crate::document::Document;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels of the picture for one of the document: sharp on screens of twice the density and in print.
const SCALE: f32 = 2.0;
/// Longest side in pixels; a longer picture is drawn smaller. At this size and four bytes a pixel a figure of ordinary width takes 130 MB
/// while it is drawn.
const SIDE_MAX: f32 = 16_384.0;

/// The figures of [`super::render`] as one PNG picture; `None` where there are none.
///
/// # Errors
/// In one line, when the picture cannot be drawn or packed: its own SVG is always read, so only for want of memory.
pub fn render(document: &Document, chosen: &Chosen) -> Option<Result<Vec<u8>, String>> {
    super::render(document, chosen).map(|svg| draw(&svg))
}

fn draw(svg: &str) -> Result<Vec<u8>, String> {
    let mut options = Options {
        font_family: FAMILY.to_owned(),
        ..Options::default()
    };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let tree = Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let (width, height) = (tree.size().width(), tree.size().height());
    let scale = SCALE.min(SIDE_MAX / width.max(height));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to SIDE_MAX
    let pixels = |side: f32| (side * scale).ceil().max(1.0) as u32;
    let mut picture = Pixmap::new(pixels(width), pixels(height))
        .ok_or_else(|| format!("no memory for a picture of {width} x {height}"))?;
    resvg::render(
        &tree,
        Transform::from_scale(scale, scale),
        &mut picture.as_mut(),
    );
    picture.encode_png().map_err(|error| error.to_string())
}

/// The family that is embedded; `file.css` names it among others.
const FAMILY: &str = "DejaVu Sans";

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixels of a picture as `(width, height, RGBA)`.
    fn pixels(svg: &str) -> (u32, u32, Vec<u8>) {
        let picture = Pixmap::decode_png(&draw(svg).unwrap()).unwrap();
        (picture.width(), picture.height(), picture.data().to_vec())
    }

    fn page(inside: &str, width: u32, height: u32) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\"><style>{}</style>\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>{inside}</svg>",
            super::super::STYLE
        )
    }

    /// Pixels darker than half grey.
    fn ink(svg: &str) -> usize {
        let (_, _, data) = pixels(svg);
        data.chunks(4).filter(|pixel| pixel[0] < 128).count()
    }

    #[test]
    fn letters_are_drawn_in_two_weights() {
        let word = |class: &str| {
            let text = format!("<text class=\"{class}\" x=\"5\" y=\"30\">Slopes ≥ 1 – ░ Ωд</text>");
            ink(&page(&text, 300, 50))
        };
        let (regular, bold) = (word("label"), word("count"));
        assert!(
            regular > 300 && bold > regular,
            "{regular} and {bold} dark pixels"
        );
        assert_eq!(ink(&page("", 300, 50)), 0, "the paper is white");
    }

    #[test]
    fn colours_are_those_of_the_classes_and_sizes_double() {
        let (width, height, data) = pixels(&page(
            "<rect class=\"c7\" width=\"10\" height=\"10\"/>",
            40,
            20,
        ));
        assert_eq!((width, height), (80, 40));
        assert_eq!(data[..4], [0x1d, 0x4e, 0xa8, 0xff]);
    }

    #[test]
    fn a_very_long_picture_is_drawn_smaller() {
        let (width, height, _) = pixels(&page("", 4, 40_000));
        assert_eq!((width, height), (2, 16_384));
    }
}
