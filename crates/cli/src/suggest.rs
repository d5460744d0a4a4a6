//! The nearest known name to one that is not known.

/// `; did you mean "x"?` for the nearest of `known`, or nothing when none is near.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let lower = name.to_ascii_lowercase();
    let scored = known.map(|candidate| {
        (
            strsim::jaro_winkler(&lower, &candidate.to_ascii_lowercase()),
            candidate,
        )
    });
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((score, candidate)) if score > 0.8 => format!("; did you mean {candidate:?}?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn near_names_are_offered_and_far_ones_are_not() {
        let known = ["bloom-560m", "mpt-7b", "falcon-rw-1b"];
        assert_eq!(
            did_you_mean("blom-560m", known.into_iter()),
            "; did you mean \"bloom-560m\"?"
        );
        assert_eq!(
            did_you_mean("MPT7B", known.into_iter()),
            "; did you mean \"mpt-7b\"?"
        );
        assert_eq!(did_you_mean("qwerty", known.into_iter()), "");
    }
}
