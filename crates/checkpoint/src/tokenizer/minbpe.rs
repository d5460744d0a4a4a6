//! The model file of minbpe: byte-pair encoding within the pieces of a regex split.
//!
//! Text file: `minbpe v1`, the split pattern (may be empty: no split), the number of special tokens, one line `text id` each, then one
//! line `left right` for each merge; merge `k` makes the id `256 + k`. Ids below 256 are bytes. Merges are not lowered into
//! a `tokenizers` model because two merges may spell the same bytes, which that library's vocabularies cannot hold.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use tokenizers::utils::SysRegex;

use crate::error::{CheckpointError, quoted};

const FIRST_LINE: &[u8] = b"minbpe v1";

pub(super) fn is_minbpe(bytes: &[u8]) -> bool {
    bytes
        .strip_prefix(FIRST_LINE)
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'\n' | b'\r')))
}

#[derive(Debug)]
pub(super) struct MinBpe {
    split: Option<SysRegex>,
    merges: HashMap<(u32, u32), u32>,
    /// Operands of id `256 + k`, each smaller than it.
    parts: Vec<(u32, u32)>,
    /// Special tokens, only for decoding: text is encoded as text.
    special: HashMap<u32, String>,
}

impl MinBpe {
    pub(super) fn parse(bytes: &[u8]) -> Result<MinBpe, CheckpointError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|e| CheckpointError::malformed(format!("is not UTF-8: {e}")))?;
        let mut lines = text.lines().enumerate().skip(1);
        let wrong = |line: usize, expected: &str, found: &str| {
            CheckpointError::malformed(format!(
                "line {}: expected {expected}, found {}",
                line + 1,
                quoted(found)
            ))
        };
        let end = |expected: &str| {
            CheckpointError::malformed(format!("ends where {expected} is expected"))
        };
        let (line, pattern) = lines.next().ok_or_else(|| end("the split pattern"))?;
        let split = match pattern {
            "" => None,
            _ => Some(
                SysRegex::new(pattern)
                    .map_err(|e| wrong(line, &format!("a split pattern ({e})"), pattern))?,
            ),
        };
        let (line, count) = lines
            .next()
            .ok_or_else(|| end("the number of special tokens"))?;
        let n_special: usize = count
            .trim()
            .parse()
            .map_err(|_| wrong(line, "the number of special tokens", count))?;
        let mut special = HashMap::new();
        for _ in 0..n_special {
            let (line, text) = lines.next().ok_or_else(|| end("a special token"))?;
            let parsed = text
                .rsplit_once(' ')
                .and_then(|(t, id)| Some((t, id.trim().parse().ok()?)));
            let (token, id) =
                parsed.ok_or_else(|| wrong(line, "a special token and its id", text))?;
            special.insert(id, token.to_owned());
        }
        let mut merges = HashMap::new();
        let mut parts = Vec::new();
        for (line, text) in lines {
            let id = 256 + parts.len() as u32;
            let mut numbers = text.split_ascii_whitespace().map(str::parse::<u32>);
            let (Some(Ok(left)), Some(Ok(right)), None) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return Err(wrong(line, "the two ids of a merge", text));
            };
            if left >= id || right >= id {
                return Err(wrong(
                    line,
                    &format!("ids below {id}, the id that this merge makes"),
                    text,
                ));
            }
            if merges.insert((left, right), id).is_some() {
                return Err(wrong(line, "a merge that has not been listed before", text));
            }
            parts.push((left, right));
        }
        Ok(MinBpe {
            split,
            merges,
            parts,
            special,
        })
    }

    pub(super) fn vocab_size(&self) -> usize {
        let special = self.special.keys().max().map_or(0, |&id| id as usize + 1);
        special.max(256 + self.parts.len())
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, CheckpointError> {
        let mut ids = Vec::new();
        let Some(split) = &self.split else {
            self.encode_piece(text.as_bytes(), &mut ids);
            return Ok(ids);
        };
        let mut covered = 0;
        for (start, end) in split.find_iter(text) {
            if start != covered {
                break;
            }
            self.encode_piece(&text.as_bytes()[start..end], &mut ids);
            covered = end;
        }
        if covered != text.len() {
            return Err(uncovered(split, text, covered));
        }
        Ok(ids)
    }

    /// Merges the pair with the smallest id first, leftmost first, until no pair is in the table. A merge only makes pairs with larger
    /// ids than its own, so a queue ordered by (id, position) does what repeated scans do, in n log n.
    fn encode_piece(&self, bytes: &[u8], out: &mut Vec<u32>) {
        const GONE: u32 = u32::MAX;
        let n = bytes.len();
        let mut ids: Vec<u32> = bytes.iter().map(|&b| u32::from(b)).collect();
        let mut next: Vec<usize> = (1..=n).collect();
        let mut previous: Vec<Option<usize>> = (0..n).map(|i| i.checked_sub(1)).collect();
        let mut queue = BinaryHeap::new();
        let propose = |queue: &mut BinaryHeap<_>, ids: &[u32], left: usize, right: usize| {
            if let Some(&id) = ids
                .get(right)
                .and_then(|&r| self.merges.get(&(ids[left], r)))
            {
                queue.push(Reverse((id, left, right)));
            }
        };
        for left in 0..n {
            propose(&mut queue, &ids, left, left + 1);
        }
        while let Some(Reverse((id, left, right))) = queue.pop() {
            // Stale unless both neighbours are still what they were; an id names its operands, so comparing it is enough.
            let current = ids[left] != GONE
                && next[left] == right
                && right < n
                && self.merges.get(&(ids[left], ids[right])) == Some(&id);
            if !current {
                continue;
            }
            ids[left] = id;
            ids[right] = GONE;
            next[left] = next[right];
            if next[left] < n {
                previous[next[left]] = Some(left);
                propose(&mut queue, &ids, left, next[left]);
            }
            if let Some(before) = previous[left] {
                propose(&mut queue, &ids, before, left);
            }
        }
        out.extend(ids.into_iter().filter(|&id| id != GONE));
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, CheckpointError> {
        let mut bytes = Vec::new();
        for (position, &id) in ids.iter().enumerate() {
            if let Some(text) = self.special.get(&id) {
                bytes.extend_from_slice(text.as_bytes());
                continue;
            }
            if id as usize >= 256 + self.parts.len() {
                return Err(CheckpointError::malformed(format!(
                    "token {position}: id {id} is outside the vocabulary of {}",
                    self.vocab_size()
                )));
            }
            let mut stack = vec![id];
            while let Some(id) = stack.pop() {
                match u8::try_from(id) {
                    Ok(byte) => bytes.push(byte),
                    Err(_) => {
                        let (left, right) = self.parts[id as usize - 256];
                        stack.extend([right, left]);
                    }
                }
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Why the pieces end at byte `covered`. Text between matches would be dropped (that is what the original does), and the library does not
/// say when it gives up on a match.
fn uncovered(split: &SysRegex, text: &str, covered: usize) -> CheckpointError {
    const SAMPLE: usize = 1000;
    let rest = &text[covered..];
    let end = rest
        .char_indices()
        .nth(SAMPLE)
        .map_or(rest.len(), |(i, _)| i);
    let begins_a_piece = split
        .find_iter(&rest[..end])
        .next()
        .is_some_and(|(start, _)| start == 0);
    CheckpointError::malformed(if begins_a_piece {
        super::gave_up(covered)
    } else {
        format!("the split pattern does not cover the text at byte {covered}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> MinBpe {
        MinBpe::parse(text.as_bytes()).unwrap()
    }

    /// The original's algorithm: scan for the pair with the smallest id, merge all its occurrences, repeat.
    fn by_scanning(model: &MinBpe, bytes: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = bytes.iter().map(|&b| u32::from(b)).collect();
        loop {
            let pairs = ids
                .windows(2)
                .filter_map(|w| Some((*model.merges.get(&(w[0], w[1]))?, (w[0], w[1]))));
            let Some((id, pair)) = pairs.min() else {
                return ids;
            };
            let mut merged = Vec::new();
            let mut i = 0;
            while i < ids.len() {
                if i + 1 < ids.len() && (ids[i], ids[i + 1]) == pair {
                    merged.push(id);
                    i += 2;
                } else {
                    merged.push(ids[i]);
                    i += 1;
                }
            }
            ids = merged;
        }
    }

    #[test]
    fn queue_agrees_with_repeated_scans() {
        let model = model("minbpe v1\n\n0\n97 97\n256 97\n97 98\n256 256\n98 258\n258 257\n");
        let mut state = 7u32;
        for length in 0..60 {
            for _ in 0..20 {
                let piece: Vec<u8> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        if state >> 30 == 0 { b'b' } else { b'a' }
                    })
                    .collect();
                let mut ids = Vec::new();
                model.encode_piece(&piece, &mut ids);
                assert_eq!(
                    ids,
                    by_scanning(&model, &piece),
                    "{}",
                    String::from_utf8_lossy(&piece)
                );
                assert_eq!(model.decode(&ids).unwrap().as_bytes(), piece);
            }
        }
    }

    #[test]
    fn broken_files_say_which_line() {
        for (text, expect) in [
            ("minbpe v1", "split pattern"),
            ("minbpe v1\n(\n0\n", "line 2"),
            (
                "minbpe v1\n\nx\n",
                "line 3: expected the number of special tokens",
            ),
            ("minbpe v1\n\n0\n97 256\n", "line 4: expected ids below 256"),
            ("minbpe v1\n\n0\n97\n", "line 4: expected the two ids"),
            (
                "minbpe v1\n\n0\n97 98\n97 98\n",
                "line 5: expected a merge that has not",
            ),
            ("minbpe v1\n\n9999999999\n", "ends where a special token"),
        ] {
            let error = MinBpe::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    /// GPT-4's pattern on long runs: the pieces are those of short ones, and a run on which the library gives up is named.
    #[test]
    fn long_runs_are_one_piece_or_an_error() {
        let gpt4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
        let model = model(&format!("minbpe v1\n{gpt4}\n0\n97 97\n256 256\n257 257\n"));
        let ids = model.encode(&format!("{} b", "a".repeat(400_000))).unwrap();
        assert_eq!(ids.len(), 50_000 + 2);
        for long in ["a".repeat(1_200_000), " ".repeat(1_200_000)] {
            let error = model.encode(&format!("a b {long}\n c")).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("gives up on the text at byte 3,"), "{error}");
        }
    }

    #[test]
    fn text_the_pattern_does_not_cover_is_an_error() {
        let error = model("minbpe v1\n[a-z]+\n0\n")
            .encode("ab cd")
            .unwrap_err()
            .to_string();
        assert!(error.contains("at byte 2"), "{error}");
    }
}
