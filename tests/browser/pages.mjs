// The documents that are looked at: real runs of the binary, and altered ones that no real model gives.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const PLANS = "ieee,ftz,hf-eager:f16,llama-cpp-cuda-fa";

/** A name that would break a careless page: markup, control characters, right-to-left text and overrides. */
export const HOSTILE = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>\u0007\u202egnp.exe \u05d0\u05d1 {{data}} `|*_";

/** Runs the binary; findings (exit 1) are fine, anything worse is not. */
export function snellen(binary, args, options = {}) {
  try {
    return execFileSync(binary, args, { maxBuffer: 2 ** 28, stdio: ["pipe", "pipe", "pipe"], ...options });
  } catch (error) {
    if (error.status === 1 && error.stdout) return error.stdout;
    throw new Error(`snellen ${args.join(" ")}: exit ${error.status}: ${error.stderr}`);
  }
}

/** Writes every page into `folder`; returns `{ name: { html, json } }`. */
export function makePages(binary, root, folder) {
  mkdirSync(folder, { recursive: true });
  const model = join(folder, "embedded");
  mkdirSync(model, { recursive: true });
  for (const name of ["config.json", "model.safetensors"]) copyFileSync(join(root, "crates/cli/tests/tiny", name), join(model, name));
  const text = join(root, "crates/cli/tests/tiny/text.txt");
  const tiny = ["measure", model, "--bytes", "--text", text, "--plan", PLANS];
  const pages = {};
  const save = (name, document) => {
    const json = join(folder, `${name}.json`);
    writeFileSync(json, document);
    return json;
  };
  const render = (name, ...files) => {
    const html = join(folder, `${name}.html`);
    writeFileSync(html, snellen(binary, ["report", ...files, "--format", "html"]));
    pages[name] = { html, document: JSON.parse(snellen(binary, ["report", ...files, "--format", "json"])) };
  };
  const run = (name, ...args) => {
    const json = save(name, snellen(binary, [...args, "--format", "json", "--quiet"]));
    render(name, json);
    return json;
  };
  const horizon = run("horizon", "horizon", "--like", "bloom-560m", "--plan", PLANS);
  const clamped = save("clamped", snellen(binary, ["horizon", "--like", "bloom-560m", "--plan", PLANS, "--remedy", "clamp=-20", "--format", "json"]));
  const measured = run("measure", ...tiny);
  const audited = run("audit", "audit", model, "--length", "2371", "--plan", PLANS);
  run("inspect", "inspect", model);
  render("compare", horizon, clamped);
  const shorter = save("shorter", snellen(binary, [...tiny, "--length", "1024", "--format", "json", "--quiet"]));
  render("compare-measure", measured, shorter);
  render("together", measured, audited);
  render("large", save("large", JSON.stringify(enlarged(pages.measure.document, 70, 112))));
  render("two-thousand", save("two-thousand", JSON.stringify(enlarged(pages.measure.document, 40, 50))));
  render("hostile", save("hostile", JSON.stringify(hostile(pages.measure.document))));
  render("empty", save("empty", JSON.stringify({ ...pages.measure.document, heads: [], findings: [], checks: [], summary: { heads: 0, plans: {} } })));
  render("gaps", save("gaps", JSON.stringify(gaps(pages.measure.document))));
  const words = readFileSync(text, "utf8").slice(0, 1500);
  const several = join(folder, "several.txt");
  writeFileSync(several, [words.slice(0, 500), words.slice(500, 1100), words.slice(1100)].join("<|endoftext|>"));
  run("eval", "eval", model, "--text", several, "--bytes", "--length", "256");
  const questions = join(folder, "questions.jsonl");
  const item = (n) => JSON.stringify({ query: `The number ${n} is`, choices: ["even", "odd", "neither"], gold: n % 2 });
  writeFileSync(questions, Array.from({ length: 24 }, (_, n) => item(n)).join("\n"));
  run("task", "eval", model, "--task", questions, "--bytes");
  const grid = ["--bytes", "--lengths", "300,400,600,800,1200", "--depths", "5", "--samples", "4", "--what-if", "slopes/2"];
  const real = JSON.parse(snellen(binary, ["probe", model, ...grid, "--format", "json", "--quiet"]));
  const probed = save("probe", JSON.stringify(found(real, 1)));
  render("probe", probed);
  render("compare-probe", probed, save("probe-b", JSON.stringify(found(real, 0.6))));
  render("probe-hostile", save("probe-hostile", JSON.stringify(hostileProbe(found(real, 1)))));
  const nano = JSON.parse(snellen(binary, ["report", join(root, "runs/nano"), "--format", "json"]));
  render("train", save("train", JSON.stringify(recalled(nano))));
  render("study", save("study", snellen(binary, ["study", "report", join(root, "studies/small"), "--format", "json"])));
  return pages;
}

/** The document with `layers` x `heads` heads made of its own, each with numbers of its own so that they do not compress away. */
function enlarged(source, layers, heads) {
  const out = structuredClone(source);
  let seed = 1;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
  out.heads = [];
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) {
      const own = structuredClone(source.heads[(layer + head) % source.heads.length]);
      Object.assign(own, { layer, head, entropy_nats: 5 * random(), key0_mass: random(), mean_distance: 100 * random(), max_score: 9 * random() });
      for (const bin of own.mass_by_distance) bin.mass *= random();
      for (const plan of Object.values(own.plans)) {
        plan.blind_pairs = Math.floor(plan.blind_pairs * random());
        // a plan in f32 repeats the head's masses, one in f16 has its own
        plan.mass_by_distance = own.mass_by_distance.map((bin) => bin.mass * (plan === own.plans["hf-eager:f16"] ? random() : 1));
      }
      out.heads.push(own);
    }
  }
  out.model.n_layers = layers;
  out.model.n_heads = heads;
  out.summary.heads = layers * heads;
  out.findings = out.heads.slice(0, 2000).map((head) => ({ ...source.findings[0], layer: head.layer, head: head.head }));
  return settled(out);
}

/** The measurement with everything that follows from its counts and masses: the program refuses what does not. */
function settled(out) {
  const scaled = (masses) => {
    const sum = masses.reduce((all, mass) => all + mass, 0);
    return masses.map((mass) => (sum > 0 ? mass / sum : 0));
  };
  const first = out.plans[0].plan;
  for (const head of out.heads) {
    const masses = scaled(head.mass_by_distance.map((bin) => bin.mass));
    let left = head.plans[first].blind_pairs;
    head.mass_by_distance.forEach((bin, i) => { bin.mass = masses[i]; });
    // what is blind lies far away
    for (const bin of head.mass_by_distance.toReversed()) {
      bin.blind_pairs = Math.min(bin.pairs, left);
      left -= bin.blind_pairs;
    }
    head.key0_excess = head.key0_mass === null || head.key0_baseline === null ? null : head.key0_mass - head.key0_baseline;
    for (const plan of Object.values(head.plans)) {
      const counted = plan.pairs - plan.non_finite_pairs;
      plan.blind_share = counted > 0 ? plan.blind_pairs / counted : null;
      if (plan.blind_pairs === 0) plan.first_blind_distance = null;
      plan.mass_by_distance = scaled(plan.mass_by_distance);
      const apart = plan.mass_by_distance.reduce((all, mass, i) => all + Math.abs(mass - masses[i]), 0);
      if (plan.total_variation !== null) plan.total_variation = apart / 2;
    }
  }
  for (const [key, sum] of Object.entries(out.summary.plans)) {
    const plans = out.heads.map((head) => head.plans[key]);
    const total = (field) => plans.reduce((all, plan) => all + plan[field], 0);
    const counted = total("pairs") - total("non_finite_pairs");
    Object.assign(sum, {
      pairs: total("pairs"), non_finite_pairs: total("non_finite_pairs"), blind_pairs: total("blind_pairs"),
      blind_share: counted > 0 ? total("blind_pairs") / counted : null,
      heads_touched: plans.filter((plan) => plan.blind_pairs > 0).length,
    });
  }
  for (const check of out.checks) check.findings = out.findings.filter((finding) => finding.code === check.code).length;
  return out;
}

/** Every name of the document replaced by a hostile one. */
function hostile(source) {
  let text = JSON.stringify(source);
  const quoted = (name) => JSON.stringify(name).slice(1, -1);
  text = text.replaceAll('"hf-eager:f16"', `"${quoted(HOSTILE)}"`);
  const out = JSON.parse(text);
  out.model.name = HOSTILE;
  out.model.family = HOSTILE;
  out.model.hash = HOSTILE;
  out.text.source = HOSTILE;
  out.notes.push(HOSTILE);
  out.skipped.push({ what: HOSTILE, reason: HOSTILE });
  for (const finding of out.findings) Object.assign(finding, { message: HOSTILE, next_command: HOSTILE });
  return out;
}

/** Heads that were filtered away, and values that were not measured. */
function gaps(source) {
  const out = structuredClone(source);
  out.heads = out.heads.filter((head) => !(head.layer === 0 && head.head === 3));
  out.summary.heads = out.heads.length;
  for (const head of out.heads.slice(0, 5)) {
    for (const field of ["reach_50", "reach_90", "reach_99", "entropy_nats", "key0_mass", "key0_excess", "effective_horizon"]) head[field] = null;
    // every row overflows
    for (const plan of Object.values(head.plans)) {
      Object.assign(plan, { non_finite_rows: plan.pairs > 0 ? 1 : 0, non_finite_pairs: plan.pairs, blind_pairs: 0, blind_share: null, last_visible_distance: null });
    }
  }
  return settled(out);
}

/** A probe in which some is found: less with length, and in the middle. The embedded model itself finds nothing. */
function found(source, ease) {
  const out = structuredClone(source);
  let seed = 7;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
  out.model.trained_length = 512;
  const score = (hits, n, old) => ({ ...old, samples: n, hits, accuracy: hits / n, ...wilson(hits, n) });
  for (const cell of out.cells) {
    const share = ease * Math.max(0, 1.3 - cell.length / 1000) * (1 - 0.8 * Math.sin(Math.PI * cell.depth) * (cell.length / 1200));
    for (const sample of cell.results) {
      sample.hit = random() < share;
      if (sample.hit) sample.answer = ` ${sample.key}.`;
    }
    Object.assign(cell, scoreOf(cell.results));
    if (cell.hits === cell.samples) cell.what_if = [];
    for (const changed of cell.what_if) Object.assign(changed, score(cell.length > 700 ? cell.hits : Math.min(cell.samples, cell.hits + 1), cell.samples, {}));
  }
  return summedUp(out);
}

/** What a probe says of the samples of a cell, or of several: the program refuses sums that are not those of the samples. */
function scoreOf(samples) {
  const n = samples.length;
  const hits = samples.filter((sample) => sample.hit).length;
  const nats = samples.map((sample) => sample.log_probability).filter((value) => value !== null);
  const mean = nats.reduce((all, value) => all + value, 0) / nats.length;
  const spread = nats.reduce((all, value) => all + (value - mean) ** 2, 0);
  return {
    samples: n, hits, accuracy: hits / n, ...wilson(hits, n),
    log_probability: nats.length ? mean : null,
    log_probability_standard_error: nats.length > 1 ? Math.sqrt(spread / (nats.length - 1) / nats.length) : null,
  };
}

/** Mean height of points [x, y] by the trapezoid rule. */
function meanHeight(points) {
  points.sort((a, b) => a[0] - b[0]);
  const extent = points.at(-1)[0] - points[0][0];
  if (extent === 0) return points[0][1];
  return points.slice(1).reduce((all, [x, y], i) => all + ((x - points[i][0]) * (y + points[i][1])) / 2, 0) / extent;
}

/** The sums over the cells of a probe of a model trained at 512 tokens. */
function summedUp(out) {
  const sum = (cells) => {
    const lengths = [...new Set(cells.map((cell) => cell.length))];
    const heights = lengths.map((length) => [
      Math.log2(length),
      meanHeight(cells.filter((cell) => cell.length === length).map((cell) => [cell.depth, cell.accuracy])),
    ]);
    return { ...scoreOf(cells.flatMap((cell) => cell.results)), cells: cells.length, area_under_accuracy: meanHeight(heights) };
  };
  out.all = sum(out.cells);
  out.inside_trained_length = sum(out.cells.filter((cell) => cell.length <= 512));
  out.beyond_trained_length = sum(out.cells.filter((cell) => cell.length > 512));
  return out;
}

/** Wilson's 95 % interval. */
function wilson(hits, n) {
  const z2 = 1.959963984540054 ** 2;
  const p = hits / n;
  const centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Math.sqrt(z2) / (1 + z2 / n)) * Math.sqrt((p * (1 - p)) / n + z2 / (4 * n * n));
  return { accuracy_low: Math.max(0, centre - half), accuracy_high: Math.min(1, centre + half) };
}

/** Answers and names as a hostile model and user would have them; a cell that was not run. */
function hostileProbe(source) {
  const out = structuredClone(source);
  out.model.name = HOSTILE;
  out.settings.tokenizer = HOSTILE;
  for (const cell of out.cells) {
    for (const sample of cell.results) if (!sample.hit) sample.answer = HOSTILE;
    cell.what_if.forEach((changed, i) => { changed.change = `${HOSTILE}${i || ""}`; });
  }
  out.cells.splice(6, 1);
  return summedUp(out);
}

/** A run with recall tasks: the run of the repository has none. */
function recalled(source) {
  const out = structuredClone(source);
  const cell = (task, from, to, right) => ({ task, from, to, questions: 50, right, accuracy: right / 50, ...wilson(right, 50), nats: 3 - right / 25 });
  const edges = [[1, 15], [16, 31], [32, 63], [64, 127], [128, 255], [256, 511]];
  const cells = edges.flatMap(([from, to], i) => [cell("passkey", from, to, 50 - 9 * i), cell("pair", from, to, 40 - 7 * i)]);
  cells.sort((a, b) => (a.task < b.task ? -1 : a.task > b.task ? 1 : a.from - b.from));
  out.recall = [{ step: 1400, length: 512, cells }];
  return out;
}
