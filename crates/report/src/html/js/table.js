// Tables: the heads, worst first, and small tables of facts.

const ROWS_SHOWN = 25;

/** A table in a region that scrolls sideways and takes the keyboard. `columns` are `{ name, number }`, rows arrays of nodes. */
function simpleTable(label, columns, rows) {
  const head = make("tr", {}, columns.map((column) => make("th", { scope: "col", class: column.number ? "number" : null }, column.name)));
  const body = rows.map((row) => make("tr", {}, row.map((cell, i) => (i === 0
    ? make("th", { scope: "row", class: columns[0].number ? "number" : null }, cell)
    : make("td", { class: columns[i].number ? "number" : null }, cell)))));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    make("table", {}, make("thead", {}, head), make("tbody", {}, body)));
}

/** The columns of the table of heads: `value(head, plan)` sorts and is kept in `data-value`, `text(value)` is shown. */
function headColumns(view) {
  const under = (head, plan) => head.plans.get(plan) || {};
  // without a share there was nothing to count; with one, a distance that does not exist is a result
  const counted = (h, p) => (view.verb === "measure" && (under(h, p).blind_share ?? null) === null ? "not measured" : "none");
  const own = (name, field, text, absent = () => "not measured") => ({ name, value: (h) => h.own[field], text, field, absent });
  const of = (name, field, text) => ({ name, value: (h, p) => under(h, p)[field], text, field, absent: counted });
  const slope = own("slope", "effective_slope", short);
  if (view.verb === "horizon") {
    return [slope, of("blind pairs", "blind_share", percent), of("blind, last row", "blind_share_last_row", percent),
      of("first blind", "first_blind_distance", distance), of("last seen", "last_visible_distance", distance),
      of("distinct of last 20", "distinct_bias_last_20", String), of("longest equal run", "longest_equal_run", String),
      of("overflow at", "overflow_distance", distance), of("NaN rows", "nan_rows", String)];
  }
  if (view.verb === "audit") {
    return [slope, own("score bound", "score_bound", short, () => "unbounded"), of("visible to", "guaranteed_visible", distance),
      of("expected blind past", "expected_horizon", distance), of("blind past", "certified_horizon", distance)];
  }
  if (view.verb === "measure") {
    return [slope, of("blind", "blind_share", percent), of("first blind", "first_blind_distance", distance),
      of("last seen", "last_visible_distance", distance), own("reach 50%", "reach_50", distance), own("reach 90%", "reach_90", distance),
      own("reach 99%", "reach_99", distance), own("effective horizon", "effective_horizon", distance, () => "none"),
      own("entropy", "entropy_nats", short), own("key 0", "key0_mass", percent),
      of("attention moved", "total_variation", percent), of("undecided pairs", "undecided_pairs", String)];
  }
  return [own("slope", "slope", short), { ...slope, name: "effective slope" }];
}

/** The table of heads under a plan, sorted by `metric` worst first until a heading is pressed. */
function headTable(view, plan, metric, open) {
  const columns = headColumns(view);
  let order = { column: null, down: false };
  let shown = ROWS_SHOWN;
  const box = make("div", {});
  const key = (column, head) => {
    const value = column.value(head, plan);
    return value === null || value === undefined ? Number.POSITIVE_INFINITY : value;
  };
  const sorted = () => {
    const heads = [...view.heads];
    if (order.column === null) {
      if (!metric) return heads;
      const good = new Map(heads.map((head) => [head, rank(metric.of(head, plan))]));
      return heads.sort((a, b) => good.get(a) - good.get(b));
    }
    const column = columns[order.column];
    return heads.sort((a, b) => (order.down ? key(column, b) - key(column, a) : key(column, a) - key(column, b)) || 0);
  };
  const render = () => {
    const names = view.layers.length ? ["layer", "head"] : ["head"];
    const headings = names.map((name) => make("th", { scope: "col", class: "number" }, name));
    columns.forEach((column, i) => {
      const button = make("button", { type: "button" }, column.name);
      button.addEventListener("click", () => {
        order = { column: i, down: order.column === i ? !order.down : false };
        render();
        box.querySelectorAll("th button")[i].focus();
      });
      const sort = order.column === i ? (order.down ? "descending" : "ascending") : null;
      headings.push(make("th", { scope: "col", class: "number", "aria-sort": sort }, button));
    });
    const heads = sorted();
    const rows = heads.slice(0, shown).map((head) => make("tr", {},
      view.layers.length ? make("td", { class: "number" }, head.layer) : null,
      make("th", { scope: "row", class: "number" }, make("a", { href: `#${head.id}`, "aria-label": `Open ${headName(head)}` }, head.head)),
      columns.map((column) => {
        const value = column.value(head, plan);
        return make("td", { class: "number", "data-field": column.field, "data-value": value === undefined ? null : JSON.stringify(value) }, or(value, column.text, column.absent(head, plan)));
      })));
    const more = heads.length > shown
      ? make("button", { type: "button", class: "plain" }, `Show all ${heads.length} heads`) : null;
    if (more) {
      more.addEventListener("click", () => {
        shown = heads.length;
        render();
      });
    }
    box.replaceChildren(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Numbers of the heads${view.letter ? ` of ${view.letter}` : ""}` },
      make("table", {}, make("thead", {}, make("tr", {}, headings)), make("tbody", {}, rows))), ...(more ? [more] : []));
  };
  render();
  return box;
}

/** Worst first; what is not known comes last but for what has no limit. */
function rank(cell) {
  return { missing: 1.5, all: 2, none: -1, value: cell.good }[cell.state];
}
