//! Pictures of results, heads in them, and flags that would do nothing.
#![allow(clippy::unwrap_used)]

mod support;

use support::{measure_tiny, probe, run, snellen, tiny_folder};

/// Width and height of a PNG file, from its header.
fn size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

/// Width and height that an SVG document says.
fn said(svg: &str) -> (f64, f64) {
    let value = |name: &str| {
        let (_, rest) = svg.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse::<f64>().unwrap()
    };
    (value("width"), value("height"))
}

#[test]
fn a_picture_in_pixels_is_twice_the_size_of_the_drawing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let result = at("result.json");
    let line = format!(
        "{} --plan ieee,hf-eager:f16 --json --exit-zero",
        measure_tiny()
    );
    let args = line.split(' ').map(str::to_owned);
    assert_eq!(
        snellen(args.chain(["-o".to_owned(), result.clone()])).code,
        0
    );
    for head in [None, Some("L1H3")] {
        let (png, svg) = (at("out.png"), at("out.svg"));
        for (format, file) in [("png", &png), ("svg", &svg)] {
            let mut args = vec![
                "report",
                &result,
                "--format",
                format,
                "--out",
                file,
                "--exit-zero",
            ];
            args.extend(head.iter().flat_map(|head| ["--head", *head]));
            let run = snellen(args);
            assert_eq!(run.code, 0, "{run:?}");
        }
        let svg = std::fs::read_to_string(&svg).unwrap();
        let (width, height) = said(&svg);
        let (w, h) = size(&std::fs::read(&png).unwrap());
        assert_eq!(
            (f64::from(w), f64::from(h)),
            ((2.0 * width).ceil(), (2.0 * height).ceil())
        );
        // a chart a plan, or two figures of the head under each
        let figures = svg.matches("role=\"group\"").count();
        assert_eq!(figures, if head.is_some() { 4 } else { 2 }, "{head:?}");
        let said = svg.contains("Layer 1, head 3: what moves the horizon, under hf-eager:f16");
        assert_eq!(said, head.is_some());
    }
    for (args, part) in [
        (
            vec!["--format", "svg", "--head", "L9H0"],
            "this result has no layer 9, head 0",
        ),
        (
            vec!["--format", "svg", "--head", "H0"],
            "this result has no head 0",
        ),
        (
            vec!["--format", "png", "--head", "9"],
            "a layer and a head such as L2H5",
        ),
        (
            vec!["--head", "L0H0"],
            "--head: chooses the figures of a picture",
        ),
    ] {
        let run = snellen(["report", &result].into_iter().chain(args));
        assert!(run.error(2).contains(part), "{run:?}");
    }
}

/// The chart by another quantity holds the numbers of the document.
#[test]
fn the_eye_chart_is_drawn_by_any_quantity_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("result.json");
    let document = support::json(&format!("{} --plan ieee,hf-eager:f16", measure_tiny()));
    std::fs::write(&file, document.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let draw = |show: &str| {
        snellen([
            "report",
            file,
            "--format",
            "svg",
            "--exit-zero",
            "--show",
            show,
        ])
    };
    for (show, charts) in [
        ("blind_share", 2),
        ("first_blind_distance", 2),
        ("reach_50", 1),
        ("reach_90", 1),
        ("effective_horizon", 1),
        ("key0_excess", 1),
    ] {
        let svg = draw(show).stdout;
        assert_eq!(svg.matches("role=\"group\"").count(), charts, "{show}");
        if show.starts_with("reach") {
            for head in document["heads"].as_array().unwrap() {
                assert!(
                    svg.contains(&format!(">{}</text>", head[show])),
                    "{show} {head}"
                );
            }
        }
    }
    let refused = draw("reach90");
    assert!(
        refused
            .error(2)
            .contains("expected one of blind_share, first_blind_distance"),
        "{refused:?}"
    );
    let text = snellen(["report", file, "--show", "reach_90"]);
    assert!(
        text.error(2)
            .contains("--show: chooses the figures of a picture"),
        "{text:?}"
    );
    let pair = snellen([
        "report", file, file, "--format", "svg", "--show", "reach_90",
    ])
    .stdout;
    assert!(
        pair.contains("Change of reach_90 from A to B") && pair.contains("B: Reach of nine tenths")
    );
}

#[test]
fn the_same_result_is_the_same_picture() {
    let folder = tempfile::tempdir().unwrap();
    let mut pictures = Vec::new();
    for threads in ["1", "3"] {
        let file = folder.path().join(format!("{threads}.png"));
        let out = file.to_str().unwrap();
        let line = "horizon --heads 16 --plan ieee,hf-eager:f16 --format png --exit-zero";
        let args = line.split(' ').chain(["--threads", threads, "-o", out]);
        assert_eq!(snellen(args).code, 0);
        pictures.push(std::fs::read(file).unwrap());
    }
    assert!(pictures[0] == pictures[1] && size(&pictures[0]).0 == 2016);
}

#[test]
fn flags_that_would_do_nothing_are_refused_before_any_work() {
    for (line, part) in [
        (
            "eval /nosuch --text x --fail-on note",
            "--fail-on: `eval` has no findings",
        ),
        (
            "probe /nosuch --lengths 300 --fail-on error",
            "--fail-on: `probe` has no findings",
        ),
        (
            "explain SN001 --fail-on error",
            "--fail-on: `explain` has no findings",
        ),
        (
            "completions bash --fail-on error",
            "--fail-on: `completions` has no findings",
        ),
        ("man --format json", "--format: `man` writes no document"),
        (
            "report /nosuch --max-memory 1GiB",
            "--max-memory: `report` makes no estimate",
        ),
        (
            "explain --max-memory 1GiB",
            "--max-memory: `explain` makes no estimate",
        ),
        (
            "horizon --heads 2 --max-memory 1GiB",
            "--max-memory: `horizon` makes no estimate",
        ),
    ] {
        let run = run(line);
        assert!(run.error(2).contains(part), "{run:?}");
    }
}

/// At the top level of a file such a key is for the verbs that have it.
#[test]
fn a_file_of_defaults_serves_verbs_with_and_without_findings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snellen.toml");
    std::fs::write(&file, "fail-on = [\"note\"]\nmax-memory = \"8GiB\"\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(snellen(["explain", "SN001", "--config", file]).code, 0);
    assert_eq!(
        snellen([
            "horizon",
            "--like",
            "bloom-560m",
            "--plan",
            "hf-eager:f16",
            "--config",
            file
        ])
        .code,
        1
    );
    std::fs::write(
        folder.path().join("own.toml"),
        "[explain]\nfail-on = [\"note\"]\n",
    )
    .unwrap();
    let own = folder.path().join("own.toml");
    let run = snellen(["explain", "SN001", "--config", own.to_str().unwrap()]);
    assert!(run.error(2).contains("has no findings"), "{run:?}");
}

#[test]
fn prompts_that_were_not_run_are_read_back() {
    let folder = tiny_folder();
    let grid = "--lengths 300,400 --depths 2 --samples 2 --build-only";
    let file = folder.path().join("prompts.json");
    let json = probe(folder.path(), &format!("{grid} --json")).stdout;
    std::fs::write(&file, &json).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(snellen(["report", file, "--json"]).stdout, json);
    let text = probe(folder.path(), grid).stdout;
    assert_eq!(snellen(["report", file]).stdout, text);
    let page = snellen(["report", file, "--format", "html"]);
    assert!(
        page.error(2)
            .contains("has the forms text and json; it holds prompts that were not run"),
        "{page:?}"
    );
    let pair = snellen(["report", file, file]);
    assert!(
        pair.error(2).contains("expected the result of a run"),
        "{pair:?}"
    );
}

/// A probe and its control: which is which is said, and that nothing pairs.
#[test]
fn a_control_is_named_in_a_comparison() {
    let folder = tiny_folder();
    let grid = "--lengths 300 --depths 2 --samples 2 --no-witness --json";
    let mut files = Vec::new();
    for (name, more) in [("probe.json", ""), ("control.json", " --control")] {
        let file = folder.path().join(name);
        std::fs::write(&file, probe(folder.path(), &format!("{grid}{more}")).stdout).unwrap();
        files.push(file.to_str().unwrap().to_owned());
    }
    for format in ["text", "md", "html"] {
        let run = snellen(["report", &files[0], &files[1], "--format", format]);
        assert_eq!(run.code, 0, "{run:?}");
        for part in [
            "a control (its facts were left out)",
            "left out, a control in B",
        ] {
            // text breaks its lines
            let said = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(part), "{format}: {part}: {said}");
        }
    }
}
