use super::*;
use crate::data::prose::tests::words_and_text;

/// Ids, targets and questions of one sequence of the number `sample`.
fn laid(
    task: &RecallTask,
    text: &[u32],
    sample: u64,
) -> (Vec<u32>, Vec<u32>, Vec<Group>, Vec<Question>) {
    let n = text.len() - 1;
    let (mut ids, mut targets) = (text[..n].to_vec(), text[1..].to_vec());
    let mut groups = vec![Group::None; n];
    let mut stream = Stream::of(&[n as u64, sample]);
    let questions = task.lay(&mut ids, &mut targets, &mut groups, &mut stream);
    (ids, targets, groups, questions)
}

#[test]
fn every_answer_stands_where_the_question_says_and_nowhere_later() {
    let task = RecallTask::new(RecallConfig::default(), 100, None).unwrap();
    let mut asked = 0;
    for n in [8usize, 16, 64, 300] {
        for sample in 0..200 {
            let text: Vec<u32> = (0..=n as u32).map(|i| i % 100).collect();
            let (ids, targets, groups, questions) = laid(&task, &text, sample);
            asked += questions.len();
            for q in &questions {
                assert_eq!(ids[q.row - q.distance], q.answer);
                assert_eq!((targets[q.row], groups[q.row]), (q.answer, q.group));
                assert!(task.answers(q.group).contains(&q.answer));
            }
            for row in 0..n {
                assert!((ids[row] as usize) < task.vocab());
                if groups[row] == Group::Text && row + 1 < n {
                    assert_eq!(
                        ids[row + 1],
                        targets[row],
                        "a counted text row has its successor"
                    );
                }
            }
        }
    }
    assert!(asked > 3000, "{asked}");
}

#[test]
fn distances_cover_the_sequence() {
    let mut stream = Stream::of(&[1]);
    let drawn: Vec<usize> = (0..4000).map(|_| distance(&mut stream, 1, 254)).collect();
    assert!(drawn.iter().all(|d| (1..=254).contains(d)));
    let far = drawn.iter().filter(|d| **d > 128).count() as f64 / 4000.0;
    // 0.7 (126/254) + 0.3 (ln 255 - ln 129)/ln 255, five standard deviations.
    assert!((far - (0.347 + 0.037)).abs() < 0.04, "{far}");
}

/// What runs were trained on stays what it was: runs and records of before these bytes are valid.
#[test]
fn the_tasks_of_a_seed_are_always_the_same() {
    let task = RecallTask::new(RecallConfig::default(), 100, None).unwrap();
    let mut hasher = blake3::Hasher::new();
    for n in [7usize, 8, 9, 16, 64, 300] {
        let text: Vec<u32> = (0..=n as u32).map(|i| i % 100).collect();
        for sample in 0..100 {
            let (ids, targets, _, questions) = laid(&task, &text, sample);
            for value in ids.into_iter().chain(targets) {
                hasher.update(&value.to_le_bytes());
            }
            for q in questions {
                hasher.update(&(q.row as u64).to_le_bytes());
                hasher.update(&(q.distance as u64).to_le_bytes());
            }
        }
    }
    assert_eq!(
        hasher.finalize().to_hex().as_str(),
        "a7483c56e38b3d79556968d395aa96756f4bcac30d6fbaf6d5f2f23362a9d0c6"
    );
    let written = toml::to_string(&RecallConfig::default()).unwrap();
    assert_eq!(
        written,
        "keys = 32\nvalues = 32\npasskeys = 32\npairs = 4\nasks = 3\n"
    );
}

#[test]
fn far_questions_only() {
    let config = RecallConfig {
        distance_min: 49,
        ..RecallConfig::default()
    };
    let task = RecallTask::new(config, 100, None).unwrap();
    assert_eq!(task.length_min(), 57);
    for n in [50usize, 57, 64, 200] {
        let text: Vec<u32> = (0..=n as u32).map(|i| i % 100).collect();
        let mut asked = [0; 3];
        for sample in 0..300 {
            let (ids, _, _, questions) = laid(&task, &text, sample);
            for q in questions {
                assert!((49..n).contains(&q.distance), "{q:?}");
                assert_eq!(ids[q.row - q.distance], q.answer);
                asked[q.group.asked().unwrap()] += 1;
            }
        }
        assert_eq!(asked[2], 0);
        if n == 50 {
            assert_eq!(asked, [0; 3], "no distance of 49 fits");
        } else {
            assert!(asked[0] >= 300 && asked[1] > 100, "{n}: {asked:?}");
        }
    }
}

#[test]
fn all_three_tasks_share_a_sequence() {
    let (_folder, tokenizer, ids) = words_and_text();
    let config = RecallConfig {
        keys: 4,
        values: 4,
        needles: 2,
        ..RecallConfig::default()
    };
    let vocab = tokenizer.vocab_size();
    let task = RecallTask::new(config, vocab, Some(&tokenizer)).unwrap();
    let mut asked = [0; 3];
    for sample in 0..200 {
        let text = &ids[sample * 7..][..=256];
        let (inputs, targets, groups, questions) = laid(&task, text, sample as u64);
        for q in &questions {
            asked[q.group.asked().unwrap()] += 1;
            assert_eq!(inputs[q.row - q.distance], q.answer);
            assert_eq!((targets[q.row], groups[q.row]), (q.answer, q.group));
            assert!(task.answers(q.group).contains(&q.answer));
            assert_eq!((q.answer as usize) < vocab, q.group == Group::Needle);
        }
        assert!(questions.is_sorted_by_key(|q| q.row));
        for row in (0..255).filter(|&row| groups[row] == Group::Text) {
            assert_eq!(inputs[row + 1], targets[row]);
        }
        // no single-token task stands inside a sentence
        let mut plain = inputs.clone();
        plain.retain(|id| (*id as usize) < vocab);
        let said = tokenizer.decode(&plain).unwrap();
        let needles = questions.iter().filter(|q| q.group == Group::Needle);
        assert_eq!(
            said.matches(" The secret word of ").count(),
            2 * needles.count()
        );
    }
    assert!(asked.iter().all(|&n| n >= 200), "{asked:?}");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let refused = |config: RecallConfig, wanted: &str| {
        let error = RecallTask::new(config, 100, None).unwrap_err().to_string();
        assert!(error.contains(wanted) && !error.contains('\n'), "{error}");
    };
    let own = RecallConfig::default();
    refused(
        RecallConfig { needles: 33, ..own },
        "32 keys for 33 needles",
    );
    let distance_min = usize::MAX;
    refused(
        RecallConfig {
            distance_min,
            ..own
        },
        "recall.distance-min",
    );
    refused(RecallConfig { pairs: 33, ..own }, "32 keys for 33 pairs");
}
