//! Numbers as they are written: distances that may be astronomically large, and values that may not exist.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest whole number up to which every `f64` is an exact integer: 2^53.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// A distance in tokens.
///
/// Ordinary distances are whole and are written as JSON integers. A closed form may give a distance that no integer type
/// holds (log-scaled distance puts the first blind pair of the steepest of 16 heads at 4.373e53 tokens): those are written as
/// floats.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Distance(f64);

impl Distance {
    /// A distance, or `None` when `tokens` is not a finite number of at least zero.
    #[must_use]
    pub fn new(tokens: f64) -> Option<Self> {
        (tokens.is_finite() && tokens >= 0.0).then_some(Self(tokens))
    }

    /// The distance in tokens.
    #[must_use]
    pub fn tokens(self) -> f64 {
        self.0
    }

    /// The distance as a whole number, when it is one that `f64` holds exactly.
    #[must_use]
    pub fn as_whole(self) -> Option<u64> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (self.0.fract() == 0.0 && self.0 <= EXACT_INTEGER_MAX).then_some(self.0 as u64)
    }
}

impl From<u64> for Distance {
    #[allow(clippy::cast_precision_loss)] // sequence lengths are far below 2^53
    fn from(tokens: u64) -> Self {
        Self(tokens as f64)
    }
}

impl std::fmt::Display for Distance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.as_whole() {
            Some(whole) => f.pad(&whole.to_string()),
            None => f.pad(&format!("{:.3e}", self.0)),
        }
    }
}

impl Serialize for Distance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_whole() {
            Some(whole) => serializer.serialize_u64(whole),
            None => serializer.serialize_f64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Distance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tokens = f64::deserialize(deserializer)?;
        Self::new(tokens)
            .ok_or_else(|| serde::de::Error::custom("a distance is finite and not negative"))
    }
}

/// The value, or `None` where it is NaN or infinite: what the strict schema writes as `null`.
#[must_use]
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// A share of a whole in `[0, 1]` as a percentage with one decimal, never rounded to a false 0 % or 100 %.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if share > 0.0 && percent < 0.05 {
        "<0.1%".to_owned()
    } else if share < 1.0 && percent >= 99.95 {
        ">99.9%".to_owned()
    } else {
        format!("{percent:.1}%")
    }
}

/// A number with about four significant digits, short enough for a table cell.
#[must_use]
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    if value.fract() == 0.0 && magnitude < 1e7 {
        format!("{value:.0}")
    } else if !(1e-4..1e7).contains(&magnitude) {
        format!("{value:.2e}")
    } else if magnitude >= 1000.0 {
        format!("{value:.0}")
    } else if magnitude >= 100.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else {
        // four significant digits below one: 0.7071, 0.01563, 0.0009766
        let leading_zeros = (-magnitude.log10()).floor();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let decimals = 4 + leading_zeros.max(0.0) as usize;
        format!("{value:.decimals$}")
    }
}

/// A whole number with thin groups of thousands: `1,048,576`.
#[must_use]
pub fn grouped(value: u128) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size in bytes for people: `1.5 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[allow(clippy::cast_precision_loss)] // a display value with two digits
    let mut amount = value as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{value} B")
    } else {
        format!("{amount:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_integers_until_no_integer_holds_them() {
        let json = |tokens: f64| serde_json::to_string(&Distance::new(tokens).unwrap()).unwrap();
        assert_eq!(json(124.0), "124");
        assert_eq!(json(0.0), "0");
        assert_eq!(json(4.373e53), "4.373e+53");
        assert_eq!(json(9_007_199_254_740_994.0), "9007199254740994.0");
        assert_eq!(Distance::new(f64::INFINITY), None);
        assert_eq!(Distance::new(f64::NAN), None);
        assert_eq!(Distance::new(-1.0), None);
        assert_eq!(Distance::new(4.3731e53).unwrap().to_string(), "4.373e53");
    }

    #[test]
    fn distances_read_back() {
        for tokens in [0.0, 124.0, 2_f64.powi(60)] {
            let distance = Distance::new(tokens).unwrap();
            let text = serde_json::to_string(&distance).unwrap();
            assert_eq!(
                serde_json::from_str::<Distance>(&text).unwrap(),
                distance,
                "{text}"
            );
        }
        // serde_json's quick float reader may be off in the last place; the text itself is exact
        let far: Distance = serde_json::from_str("4.373e53").unwrap();
        assert!((far.tokens() / 4.373e53 - 1.0).abs() < 4.0 * f64::EPSILON);
        assert!(serde_json::from_str::<Distance>("-3").is_err());
    }

    #[test]
    fn percentages_do_not_round_to_false_certainty() {
        assert_eq!(percent(0.0), "0.0%");
        assert_eq!(percent(1e-6), "<0.1%");
        assert_eq!(percent(0.3655), "36.5%");
        assert_eq!(percent(0.999_99), ">99.9%");
        assert_eq!(percent(1.0), "100.0%");
    }

    #[test]
    fn short_numbers_keep_their_leading_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.812_345, "0.8123"),
            (0.003_906_25, "0.003906"),
            (0.000_976_562_5, "0.0009766"),
            (12.345, "12.35"),
            (-103.972, "-104.0"),
            (26617.0, "26617"),
            (20.0, "20"),
            (-4.0, "-4"),
            (4.373e53, "4.37e53"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn thousands_and_sizes() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_048_576), "1,048,576");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1_610_612_736), "1.5 GiB");
    }
}
