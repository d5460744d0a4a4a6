//! Which tokens are the continuation of a context.
//!
//! The rule is that of lm-evaluation-harness: white space at the end of the context belongs to the continuation; both together are
//! encoded at once; the ids beyond as many as the context alone has are the continuation. Where a merge crosses the boundary the
//! context alone is not the beginning of the whole, and the harness scores the tail of the whole after the ids of the context. That
//! is done here too, and said ([`Pair::merged`]).
//!
//! The harness has no answer where the merge leaves the continuation no ids of its own. Here it then begins at the first id in which
//! the whole differs from the context, at the latest with the last id of the whole: it is never empty.

use super::{EvalError, TextCodec};

/// A context and its continuation as ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// What is given.
    pub context: Vec<u32>,
    /// What is scored, at least one id.
    pub continuation: Vec<u32>,
    /// Whether the tokenizer merged across the boundary.
    pub merged: bool,
}

/// Encodes a context with a continuation.
///
/// # Errors
/// A continuation without text, and what the tokenizer reports.
pub fn split_pair(
    codec: &dyn TextCodec,
    context: &str,
    continuation: &str,
) -> Result<Pair, EvalError> {
    if continuation.is_empty() {
        return Err(EvalError::Input("the continuation is empty".into()));
    }
    let kept = context.trim_end();
    let whole_text = format!("{context}{continuation}");
    let encode = |text: &str| codec.encode(text).map_err(EvalError::Input);
    let (mut before, whole) = (encode(kept)?, encode(&whole_text)?);
    let merged = !whole.starts_with(&before);
    if whole.is_empty() {
        return Err(EvalError::Input(
            "the continuation has no tokens".to_owned(),
        ));
    }
    if whole.len() <= before.len() {
        let same = before.iter().zip(&whole).take_while(|(a, b)| a == b);
        before.truncate(same.count().min(whole.len() - 1));
    }
    Ok(Pair {
        continuation: whole[before.len()..].to_vec(),
        context: before,
        merged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes, with one id for `: 7`, one for ` a` and one for `ab`.
    struct Merges;

    impl TextCodec for Merges {
        fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
            let mut ids = Vec::new();
            let mut rest = text;
            while let Some(first) = rest.bytes().next() {
                let merge = [": 7", " a", "ab"].iter().position(|m| rest.starts_with(m));
                let (id, n) = match merge {
                    Some(at) => (300 + at as u32, [3, 2, 2][at]),
                    None => (u32::from(first), 1),
                };
                ids.push(id);
                rest = &rest[n..];
            }
            Ok(ids)
        }

        fn decode(&self, _ids: &[u32]) -> Result<String, String> {
            Err("not needed".into())
        }
    }

    #[test]
    fn the_continuation_is_what_the_whole_has_beyond_the_context() {
        let pair = split_pair(&Merges, "xy", " a!").unwrap();
        assert_eq!((pair.context.len(), pair.merged), (2, false));
        assert_eq!(pair.continuation, [301, u32::from(b'!')]);
        // white space at the end of the context moves over
        assert_eq!(split_pair(&Merges, "xy ", "a!").unwrap(), pair);
    }

    #[test]
    fn a_merge_over_the_boundary_never_empties_the_continuation() {
        // `key:` has four ids, `key: 7` too, the last of them new
        let pair = split_pair(&Merges, "key:", " 7").unwrap();
        assert_eq!(pair.context, b"key".map(u32::from));
        assert_eq!(pair.continuation, [300]);
        assert!(pair.merged);
        // longer: the harness's rule, the ids beyond the context's own
        let pair = split_pair(&Merges, "a", "bc").unwrap();
        assert_eq!((pair.context, pair.continuation), (vec![97], vec![99]));
        assert!(split_pair(&Merges, "a", "").is_err());
    }
}
