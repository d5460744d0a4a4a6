// What a cell can show. A metric turns a head under a plan into
// `{ state, level, good, text, cell }`: `level` in [0, 1] is the height of the bar, `good` in [0, 1] its colour (1 sees all);
// `state` is `value`, `all` (no limit), `none` (nothing) or `missing` (not measured, or not provable: hatched, never a colour).

/** A cell. Its words may be functions: most cells of a large chart are painted and never read. */
class Cell {
  #text;
  #cell;
  constructor(state, level, good, text, cell) {
    Object.assign(this, { state, level, good });
    this.#text = text;
    this.#cell = cell;
  }
  get text() { return typeof this.#text === "function" ? this.#text() : this.#text; }
  get cell() { return typeof this.#cell === "function" ? this.#cell() : this.#cell; }
}

/** A value of which `good` in [0, 1] sees all; full colour is kept for `all`. */
const known = (level, good, text, cell) => new Cell("value", level, Math.min(good, 0.999999), text, cell);
const missing = (text) => new Cell("missing", 0, 0, text, "?");
const all = (text, cell = "all") => new Cell("all", 1, 1, text, cell);
const none = (text) => new Cell("none", 0, 0, text, "0");

/** A share of blind pairs; the bar is what is seen. */
function blindShare(share, whole, of) {
  if (share === null || share === undefined) return missing("not measured");
  if (share === 0) return all(`sees ${whole}`, "100%");
  return known(1 - share, 1 - share, () => `${percent(share)} of ${of} blind`, () => percent(1 - share));
}

/** A distance on the logarithmic axis. */
function tokens(at, length, absent, word) {
  if (at === null || at === undefined) return absent;
  const share = logShare(at, length - 1);
  const text = () => `${word} ${distance(at)}`;
  if (at >= length - 1) return all(() => `${text()} (all of the length)`, () => distance(at));
  if (at === 0) return none(text);
  return known(share, share, text, () => distance(at));
}

/** A share of which more is worse; the bar is the share, the colour its absence. */
function badShare(share, word) {
  if (share === null || share === undefined) return missing("not measured");
  const clipped = Math.max(0, Math.min(1, share));
  return known(clipped, 1 - clipped, () => `${percent(clipped)} ${word}`, () => percent(clipped));
}

/** A quantity against the largest of all heads. */
function amount(size, largest, text, absent) {
  if (size === null || size === undefined) return missing(absent);
  const share = largest > 0 ? size / largest : 0;
  return known(share, 1 - share, () => text(size), () => short(size));
}

const SHARE_TICKS = ["0%", "25%", "50%", "75%", "100%"];

function logTicks(length) {
  const last = Math.max(1, length - 1);
  const at = (share) => Math.round(2 ** (share * Math.log2(1 + last)) - 1);
  return [0, 0.25, 0.5, 0.75, 1].map((share) => distance(at(share)));
}

/** The metrics of a verb. Every `of(head, plan)` also takes heads that lack the plan. */
function metricsOf(view) {
  const L = view.length;
  const log = logTicks(L);
  const under = (head, plan) => head.plans.get(plan) || {};
  if (view.verb === "horizon") {
    return [
      { id: "seen", label: "What the last token sees", bar: "share of the last row that is seen", ticks: SHARE_TICKS, planned: true,
        of: (h, p) => blindShare(under(h, p).blind_share_last_row, "the whole length", "the last row") },
      { id: "pairs", label: "Pairs seen", bar: "share of all pairs that is seen", ticks: SHARE_TICKS, planned: true,
        of: (h, p) => blindShare(under(h, p).blind_share, "every pair", "the pairs") },
      { id: "first", label: "First blind distance", bar: "first blind distance, logarithmic", ticks: log, planned: true,
        of: (h, p) => tokens(under(h, p).first_blind_distance, L, all("never blind, at any length", "never"), "blind from") },
      { id: "collapse", label: "Distinct biases of the last 20 keys", bar: "distinct stored biases among the last 20 keys", ticks: ["0", "5", "10", "15", "20"], planned: true,
        of: (h, p) => distinct(under(h, p).distinct_bias_last_20) },
    ];
  }
  if (view.verb === "audit") {
    const bound = Math.max(0, ...view.heads.map((h) => h.own.score_bound || 0));
    const gone = (head, plan, text) => {
      const at = under(head, plan);
      if (at.always_visible) return all("never blind, at any distance", "never");
      return at.reason ? missing(visible(at.reason)) : missing(text);
    };
    return [
      { id: "expected", label: "Expected horizon", bar: "expected horizon, logarithmic", ticks: log, planned: true,
        of: (h, p) => tokens(under(h, p).expected_horizon, L, gone(h, p, "no such distance"), "expected blind past") },
      { id: "guaranteed", label: "Guaranteed visible", bar: "guaranteed-visible distance, logarithmic", ticks: log, planned: true,
        of: (h, p) => tokens(under(h, p).guaranteed_visible, L,
          h.own.score_bound === null ? missing("the scores are unbounded") : none("nothing is guaranteed"), "visible to") },
      { id: "certified", label: "Certified horizon", bar: "certified horizon, logarithmic", ticks: log, planned: true,
        of: (h, p) => tokens(under(h, p).certified_horizon, L, gone(h, p, "not provable"), "blind past") },
      { id: "bound", label: "Score bound", bar: "score bound against the largest", ticks: ["0", "", "", "", `${short(bound)} nats`], planned: false,
        of: (h) => amount(h.own.score_bound, bound, (v) => `score bound ${short(v)} nats`, "unbounded") },
    ];
  }
  if (view.verb === "measure") {
    return [
      { id: "seen", label: "Pairs seen", bar: "share of pairs that is seen", ticks: SHARE_TICKS, planned: true,
        of: (h, p) => blindShare(under(h, p).blind_share, "every pair", "the pairs") },
      { id: "first", label: "First blind distance", bar: "first blind distance, logarithmic", ticks: log, planned: true,
        of: (h, p) => tokens(under(h, p).first_blind_distance, L,
          under(h, p).blind_share === 0 ? all("no pair was blind", "none") : missing("not measured"), "blind from") },
      { id: "reach90", label: "Reach of nine tenths of the attention", bar: "reach, logarithmic", ticks: log, planned: false,
        of: (h) => tokens(h.own.reach_90, L, missing("not measured"), "90% within") },
      { id: "reach50", label: "Reach of half of the attention", bar: "reach, logarithmic", ticks: log, planned: false,
        of: (h) => tokens(h.own.reach_50, L, missing("not measured"), "50% within") },
      { id: "effective", label: "Effective horizon", bar: "effective horizon, logarithmic", ticks: log, planned: false,
        of: (h) => tokens(h.own.effective_horizon, L, missing("none: no advantage was seen, or the bias never outweighs it"), "bias outweighs content from") },
      { id: "sink", label: "Attention on the first token, above uniform", bar: "share on the first token", ticks: SHARE_TICKS, planned: false,
        of: (h) => badShare(h.own.key0_excess, "on the first token above uniform") },
    ];
  }
  return [];
}

function distinct(count) {
  if (count === null || count === undefined) return missing("not measured");
  if (count >= 20) return all("20 of 20 biases are distinct", "20");
  return known(count / 20, count / 20, () => `${count} of 20 biases are distinct`, () => String(count));
}
