//! The documentation: links lead somewhere, the catalogue is made from the checks, commands run.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{run, tiny_folder};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page under `docs`, and the README.
fn pages() -> Vec<PathBuf> {
    fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
        let mut entries: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    visit(&root().join("docs"), &mut found);
    found
}

/// The text without blocks of code and without code in a line.
fn prose(text: &str) -> String {
    let blocks = text.split("```").step_by(2).collect::<String>();
    let lines = blocks.lines().filter(|line| !line.starts_with("    "));
    lines
        .map(|line| line.split('`').step_by(2).collect::<Vec<_>>().join("x"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Names of a page's headings, as links spell them.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside = text.split("```").step_by(2).collect::<String>();
    let headings = outside.lines().filter(|line| line.starts_with('#'));
    let spell = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(spell).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for part in prose(&text).split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            if !path.exists() {
                dead.push(format!("{}: {target}", page.display()));
            } else if !anchor.is_empty() {
                let there = anchors(&std::fs::read_to_string(&path).unwrap());
                if !there.contains(anchor) {
                    dead.push(format!("{}: {target} has no such heading", page.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(count > 30, "only {count} links were found");
}

#[test]
fn every_page_is_in_the_contents() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in pages() {
        let Ok(name) = page.strip_prefix(root().join("docs")) else {
            continue;
        };
        let name = name.to_str().unwrap().replace('\\', "/");
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("]({name})")),
            "{name} is not in docs/SUMMARY.md"
        );
    }
}

/// Numbers and blanks of a line made alike: machines may differ in a last digit, and with it in the width of a column.
fn shape(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let mut out = String::new();
        for character in word.chars() {
            let same = if character.is_ascii_digit() {
                '0'
            } else {
                character
            };
            if !(same == '0' && out.ends_with('0')) {
                out.push(same);
            }
        }
        out
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The samples of the README are what the program prints; what they leave out is a line of three dots.
#[test]
fn samples_of_the_readme_are_real() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut lines = readme.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ snellen ") else {
            continue;
        };
        let mut sample = Vec::new();
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with("    ")) {
            sample.push(shape(line));
        }
        let sample: Vec<String> = sample.into_iter().filter(|line| !line.is_empty()).collect();
        let printed = run(command).stdout;
        let printed: Vec<String> = printed
            .lines()
            .map(shape)
            .filter(|line| !line.is_empty())
            .collect();
        let mut at = 0;
        for (index, piece) in sample.split(|line| line == "...").enumerate() {
            let found = printed[at..]
                .windows(piece.len().max(1))
                .position(|w| w == piece);
            let found = if piece.is_empty() { Some(0) } else { found };
            let found =
                found.unwrap_or_else(|| panic!("{command}: not printed in one piece: {piece:#?}"));
            assert!(
                index > 0 || found == 0,
                "{command}: the sample does not begin where the output does"
            );
            at += found + piece.len();
        }
        let whole = sample.last().is_some_and(|line| line != "...");
        assert!(
            !whole || at == printed.len(),
            "{command}: lines are left out at the end without three dots"
        );
        count += 1;
    }
    assert!(count >= 2, "{count} samples");
}

/// The verbs that `snellen --help` lists have a page each, and every part of a remedy a heading.
#[test]
fn every_verb_and_every_remedy_has_its_place() {
    let help = run("--help").stdout;
    let listed = help.split("Commands:").nth(1).unwrap();
    let lines = listed.lines().skip(1).take_while(|line| !line.is_empty());
    // what a verb does goes on further to the right
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in names.iter().filter(|name| **name != "help") {
        let page = root().join(format!("docs/verbs/{name}.md"));
        assert!(page.exists(), "{} is missing", page.display());
    }
    let refusal = run("horizon --heads 2 --remedy x");
    let parts = refusal.error(2).split("known: ").nth(1).unwrap();
    let page = std::fs::read_to_string(root().join("docs/remedies.md")).unwrap();
    let mut count = 0;
    for part in parts
        .split(", ")
        .map(|part| part.trim().trim_end_matches('='))
    {
        if part != "none" {
            assert!(
                page.contains(&format!("\n## {part}\n")),
                "{part} has no heading"
            );
            count += 1;
        }
    }
    assert!(count >= 8, "{parts}");
}

/// `SNELLEN_WRITE_DOCS=1 cargo test --workspace --test docs` writes the page anew.
#[test]
fn the_catalogue_is_made_from_the_checks() {
    let path = root().join("docs/checks.md");
    let page = format!(
        "# Checks\n\nMade by `snellen explain --format md` from the headings of each check; do not edit.\n\n{}",
        run("explain --format md").stdout
    );
    if std::env::var_os("SNELLEN_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/checks.md is not what the checks say: SNELLEN_WRITE_DOCS=1 writes it anew"
    );
}

/// What the commands of the documentation name, small: a model, texts, a corpus, a run file, a task.
fn prepare(folder: &Path, model: &Path) {
    std::fs::create_dir(folder.join("model")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(model.join(name), folder.join("model").join(name)).unwrap();
    }
    let text = include_str!("tiny/text.txt");
    std::fs::write(folder.join("text.txt"), text).unwrap();
    let sentences: Vec<&str> = text.split_inclusive(". ").collect();
    std::fs::write(folder.join("chapter.txt"), sentences[..4].concat()).unwrap();
    std::fs::create_dir(folder.join("books")).unwrap();
    // documents enough that some are held out, each long enough for a window
    let documents: Vec<String> = (0..60)
        .map(|n| {
            let order = (0..8).map(|k| sentences[(7 * n + 5 * k) % sentences.len()]);
            format!("Book {n}. {}", order.collect::<String>())
        })
        .collect();
    let books = documents.join("\n<|endoftext|>\n");
    std::fs::write(folder.join("books/all.txt"), books).unwrap();
    let run = "snellen-run = 1\n[data]\ntrain = \"train.tok\"\nheld = \"held.tok\"\ntokenizer = \"tokenizer.json\"\n\
               [model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 16\n\
               [schedule]\nstages = \"16:8\"\ntokens-per-step = 64\nlr = 1e-3\n\
               [watch]\neval-every = 4\neval-tokens = 64\nheads-every = 4\nsave-every = 4\n";
    std::fs::write(folder.join("run.toml"), run).unwrap();
    let item = |n: usize| {
        format!(
            "{{\"query\": \"{n} is\", \"choices\": [\"even\", \"odd\"], \"gold\": {}}}\n",
            n % 2
        )
    };
    let items: String = (0..6).map(item).collect();
    std::fs::write(folder.join("questions.jsonl"), items).unwrap();
}

/// Every `$ snellen ...` line of a console block, in order within its page, in a folder with small files of the names they use.
#[test]
fn commands_of_the_documentation_run() {
    let model = tiny_folder();
    let mut count = 0;
    for page in pages() {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), model.path());
        let content = std::fs::read_to_string(&page).unwrap();
        let blocks = content.split("```console\n").skip(1);
        let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
        for line in lines {
            let Some(command) = line.strip_prefix("$ snellen") else {
                continue;
            };
            let output = assert_cmd::Command::cargo_bin("snellen")
                .unwrap()
                .args(command.split_whitespace())
                .current_dir(folder.path())
                .output()
                .unwrap();
            let code = output.status.code().unwrap();
            assert!(
                code <= 1,
                "{}: {line}: exit {code}: {}",
                page.display(),
                String::from_utf8_lossy(&output.stderr)
            );
            count += 1;
        }
    }
    assert!(count >= 75, "only {count} commands were found");
}
