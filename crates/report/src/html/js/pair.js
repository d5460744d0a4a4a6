// Two results of one verb: what changed, head by head.

/** Quantities that can be compared in a cell, and whether more of them is better sight. */
const BETTER = {
  blind_share: false, blind_share_last_row: false, first_blind_distance: true, last_visible_distance: true, expected_horizon: true,
  guaranteed_visible: true, certified_horizon: true, reach_50: true, reach_90: true, reach_99: true, effective_horizon: true,
  distinct_bias_last_20: true, key0_excess: false, score_bound: false,
};
const SHARES = new Set(["blind_share", "blind_share_last_row", "key0_excess", "key0_mass"]);

/** Which way a change goes: 1 better, -1 worse, 0 the same, null where one of the two is missing. */
function direction(name, difference) {
  if (difference.change === null) return difference.a === null && difference.b === null ? 0 : null;
  return Math.sign(difference.change) * (BETTER[name] ? 1 : -1);
}

function quantityText(name, value) {
  if (value === null) return "none";
  return SHARES.has(name) ? percent(value) : short(value);
}

/** Words for a difference: `blind_share 83.7% → 12.0%`. */
function differenceText(name, difference) {
  return `${name} ${quantityText(name, difference.a)} → ${quantityText(name, difference.b)}`;
}

/** The cell of a change: a triangle up, a triangle down, a dot or a question mark. */
function changeCell(name, difference, largest) {
  const text = () => differenceText(name, difference);
  const way = direction(name, difference);
  if (way === null) return missing(text);
  if (way === 0) return new Cell("none", 0, 0.5, text, "●");
  const size = largest > 0 ? Math.abs(difference.change) / largest : 1;
  return known(Math.max(0.06, size), way > 0 ? 0.999 : 0, text, way > 0 ? "▲" : "▼");
}

/** Chart and table of the changes of one quantity. */
function pairCharts(pair, width, readout, open) {
  const say = sayer(readout);
  const names = [...new Set(pair.heads.flatMap((head) => Object.keys(head.quantities)))].filter((name) => name in BETTER);
  const plans = [...new Set(pair.heads.map((head) => head.plan_a))];
  const box = make("div", {});
  if (!names.length) {
    box.append(make("p", { class: "notice" }, "No head is in both results, so nothing is compared."));
    return box;
  }
  const preferred = ["blind_share", "expected_horizon"].find((name) => names.includes(name)) || names[0];
  const choose = chooser("Quantity", names.map((name) => [name, name]), preferred);
  const choosePlan = chooser("Plan", plans.map((plan) => [plan ?? "", visible(plan ?? "none")]), plans[0] ?? "");
  const stage = make("div", {});
  const render = () => {
    const name = choose.value();
    const heads = pair.heads.filter((head) => (head.plan_a ?? "") === choosePlan.value());
    const largest = Math.max(0, ...heads.map((head) => Math.abs(head.quantities[name]?.change ?? 0)));
    const layers = [...new Set(heads.map((head) => head.layer))].sort((a, b) => a - b);
    const columns = [...new Set(heads.map((head) => head.head))].sort((a, b) => a - b);
    const at = new Map(heads.map((head) => [oneId(head), head]));
    const grid = layers.map((layer) => columns.map((column) => {
      const head = at.get(oneId({ layer, head: column }));
      if (!head || !head.quantities[name]) return null;
      const cell = changeCell(name, head.quantities[name], largest);
      return { cell, mark: null, id: oneId(head), name: headName(head), head };
    }));
    const rows = layers.map((layer) => ({ label: layer === null ? "all" : String(layer) }));
    const chart = eyeChart({ rows, columns, grid, rowKind: layers[0] === null ? "layers" : "layer", label: `Change of ${name} from A to B`, say, open, width });
    const changed = heads.filter((head) => head.quantities[name] && head.quantities[name].change !== 0)
      .sort((a, b) => Math.abs(b.quantities[name].change ?? 0) - Math.abs(a.quantities[name].change ?? 0)).slice(0, ROWS_SHOWN);
    const table = simpleTable("Largest changes", [{ name: "head" }, { name: "A", number: true }, { name: "B", number: true }, { name: "change", number: true }],
      changed.map((head) => {
        const d = head.quantities[name];
        const change = d.change === null ? "none" : `${d.change > 0 ? "+" : ""}${SHARES.has(name) ? `${(100 * d.change).toFixed(1)} points` : short(d.change)}`;
        return [make("a", { href: `#${oneId(head)}` }, headName(head)), quantityText(name, d.a), quantityText(name, d.b), change];
      }));
    stage.replaceChildren(make("div", { class: "scroll" }, chart), legend(null, [], true),
      make("h3", {}, changed.length ? "Largest changes" : "No head changed"), ...(changed.length ? [table] : []));
  };
  choose.on(render);
  choosePlan.on(render);
  box.append(make("h2", {}, "What changed, head by head"), make("div", { class: "controls" }, choose.element, plans.length > 1 ? choosePlan.element : null), readout, stage);
  render();
  return box;
}

function oneId(head) {
  return head.layer === null ? `H${head.head}` : `L${head.layer}H${head.head}`;
}
