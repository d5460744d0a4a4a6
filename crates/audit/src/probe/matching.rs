//! Whether an answer is right.

/// The first integer of an answer: its first unbroken run of ASCII digits, whole. An answer is right when that run is the key, digit
/// for digit: `482135` and `9482130` do not contain the key 48213, and neither `4 8 2 1 3` nor `48,213` is one number here.
#[must_use]
pub fn first_integer(answer: &str) -> Option<&str> {
    let start = answer.find(|c: char| c.is_ascii_digit())?;
    let rest = &answer[start..];
    let end = rest.find(|c: char| !c.is_ascii_digit());
    Some(&rest[..end.unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::first_integer;

    #[test]
    fn answers_are_matched_on_digit_boundaries() {
        for (answer, right) in [
            ("48213", true),
            (" 48213.", true),
            ("The pass key is 48213. Remember", true),
            ("x48213", true),
            ("482135", false),
            ("9482130", false),
            ("4 8 2 1 3", false),
            ("48,213", false),
            ("7 48213", false),
            ("", false),
            ("none", false),
        ] {
            assert_eq!(first_integer(answer) == Some("48213"), right, "{answer:?}");
        }
    }
}
