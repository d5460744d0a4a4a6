//! Values of arguments: lengths, sizes, index lists. Each parser says what it expected.

use std::collections::BTreeSet;

/// The longest sequence that is accepted: counts of pairs of all heads stay far inside 128 bits, and so does patience.
const LENGTH_MAX: u64 = 1 << 40;

/// A sequence length in tokens: `2048`, `16_384`, or with a binary suffix `16k` = 16384, `1M` = 1048576.
pub(crate) fn length(text: &str) -> Result<u64, String> {
    let expected = "expected a whole number of tokens of at least 1, such as 2048 or 16k";
    let plain = text.replace('_', "");
    let (digits, factor) = match plain.as_bytes().last() {
        Some(b'k' | b'K') => (&plain[..plain.len() - 1], 1024),
        Some(b'm' | b'M') => (&plain[..plain.len() - 1], 1024 * 1024),
        _ => (plain.as_str(), 1),
    };
    let number = digits.parse::<u64>();
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match number.as_ref().map(|number| number.checked_mul(factor)) {
        Err(_) if !is_number => Err(expected.to_owned()),
        Ok(Some(0)) => Err(format!("{expected}; a length of 0 has no pairs")),
        Ok(Some(tokens)) if tokens <= LENGTH_MAX => Ok(tokens),
        // also the digits that no 64-bit number holds
        _ => Err(format!(
            "longer than the longest sequence that is accepted, {LENGTH_MAX} tokens (1048576M)"
        )),
    }
}

/// A size in bytes: `4GB` (powers of 1000), `4GiB` or `4G` (powers of 1024), or plain bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let expected = "expected a size such as 4GiB, 500MB or 1000000";
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number: f64 = text[..split].parse().map_err(|_| expected.to_owned())?;
    let factor: f64 = match text[split..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(expected.to_owned()),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // saturates far above any memory
    Ok((number * factor) as u64)
}

/// A head of a result: `L2H5`, or `H5` where the result is the same in every layer.
pub(crate) fn head_place(text: &str) -> Result<report::figure::HeadPlace, String> {
    let number = |digits: &str| {
        let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        all.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let (layer, head) = match text.strip_prefix('L') {
        Some(rest) => match rest.split_once('H') {
            Some((layer, head)) => (Some(number(layer)), number(head)),
            None => (None, None),
        },
        None => (None, text.strip_prefix('H').and_then(number)),
    };
    match (layer, head) {
        (None, Some(head)) => Ok(report::figure::HeadPlace { layer: None, head }),
        (Some(Some(layer)), Some(head)) => Ok(report::figure::HeadPlace {
            layer: Some(layer),
            head,
        }),
        _ => Err("expected a layer and a head such as L2H5, or a head alone such as H5".to_owned()),
    }
}

/// A device to run on, by its name.
pub(crate) fn device(text: &str) -> Result<model::DeviceKind, String> {
    let kinds = model::DeviceKind::ALL;
    kinds
        .into_iter()
        .find(|kind| kind.name() == text)
        .ok_or_else(|| {
            let names = kinds.map(model::DeviceKind::name).join(", ");
            format!("expected one of {names}")
        })
}

/// A selection of layers or heads by their original indices: `3,5` or `0-7` or `0-3,12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection(BTreeSet<usize>);

impl std::str::FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected indices such as 3,5 or 0-7";
        let index = |part: &str| {
            part.trim()
                .parse::<usize>()
                .map_err(|_| format!("{expected}, found {part:?}"))
        };
        let mut chosen = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (index(first)?, index(last)?);
                    if last < first {
                        return Err(format!(
                            "the range {part:?} is empty: it ends before it begins"
                        ));
                    }
                    if last - first > 100_000 {
                        return Err(format!("the range {part:?} is too long"));
                    }
                    chosen.extend(first..=last);
                }
                None => {
                    chosen.insert(index(part)?);
                }
            }
        }
        if chosen.is_empty() {
            Err(format!("the selection is empty: {expected}"))
        } else {
            Ok(Self(chosen))
        }
    }
}

impl Selection {
    /// The chosen indices, every one below `count`; all of them when nothing was chosen.
    pub(crate) fn resolve(
        selection: Option<&Self>,
        flag: &str,
        count: usize,
    ) -> Result<Vec<usize>, crate::Failure> {
        let Some(Self(chosen)) = selection else {
            return Ok((0..count).collect());
        };
        match chosen.iter().find(|index| **index >= count) {
            Some(index) => Err(crate::Failure::error(format!(
                "{flag}: index {index} does not exist, the model has {count} (0 to {})",
                count.saturating_sub(1)
            ))),
            None => Ok(chosen.iter().copied().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_named_as_in_the_page() {
        let place = |text: &str| head_place(text).ok().map(|place| (place.layer, place.head));
        assert_eq!(place("L2H15"), Some((Some(2), 15)));
        assert_eq!(place("H0"), Some((None, 0)));
        for wrong in [
            "",
            "L2",
            "L2H",
            "LH2",
            "2/3",
            "h0",
            "L2H0x",
            "H99999999999999999999",
        ] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(length("2048"), Ok(2048));
        assert_eq!(length("16_384"), Ok(16384));
        assert_eq!(length("16k"), Ok(16384));
        assert_eq!(length("1"), Ok(1));
        assert_eq!(length("1048576M"), Ok(LENGTH_MAX));
        for long in ["1048577M", "99999999999999999999", "9999999999999999M"] {
            let error = length(long).unwrap_err();
            assert!(error.contains("longer than"), "{long}: {error}");
        }
        for bad in [
            "0",
            "-3",
            "",
            "k",
            "2.5",
            "1e3",
            "99999999999999999999",
            "9999999M",
        ] {
            assert!(length(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("4G"), Ok(4 << 30));
        assert_eq!(size("4GB"), Ok(4_000_000_000));
        assert_eq!(size("1.5 kb"), Ok(1500));
        assert_eq!(size("77"), Ok(77));
        for bad in ["", "G", "4 parsecs", "-4G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn selections_keep_original_indices() {
        let of = |text: &str| {
            text.parse::<Selection>()
                .map(|s| Selection::resolve(Some(&s), "--heads", 16).unwrap())
        };
        assert_eq!(of("3,5"), Ok(vec![3, 5]));
        assert_eq!(of("0-3,12,2"), Ok(vec![0, 1, 2, 3, 12]));
        for empty in ["", ",", "5-3"] {
            assert!(of(empty).unwrap_err().contains("empty"), "{empty}");
        }
        assert!(of("x").is_err());
        let beyond = "16".parse::<Selection>().unwrap();
        assert!(Selection::resolve(Some(&beyond), "--heads", 16).is_err());
        assert_eq!(Selection::resolve(None, "--heads", 3).unwrap(), [0, 1, 2]);
    }
}
