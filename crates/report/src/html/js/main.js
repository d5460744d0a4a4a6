// Wiring: one overview, one page a head, addresses of the form #L3H5.

const WORDS = JSON.parse(document.getElementById("words").textContent);

const HINT = "Point at a cell, or walk with the arrow keys; Enter opens the head.";

/** A labelled select. */
function chooser(label, options, value) {
  const select = make("select", {}, options.map(([key, text]) => make("option", { value: key }, text)));
  select.value = value;
  return {
    element: make("label", {}, label, select), value: () => select.value,
    set: (next) => { select.value = next; }, on: (act) => select.addEventListener("change", act),
  };
}

/** Sentence for the line above a chart. */
function sayer(readout) {
  return (entry) => {
    if (!entry) return;
    readout.replaceChildren(make("strong", {}, entry.name), ": ", entry.cell.text,
      entry.mark ? `; ${entry.mark.letter} = ${entry.mark.meaning}` : "", entry.more ? make("br", {}) : "", entry.more || "");
  };
}

const openHead = (entry) => { location.hash = entry.id; };

/** Everything else the document says of the head, in a line. */
function moreOf(view, head, plan, metrics, metric) {
  const others = metrics.filter((other) => other !== metric).map((other) => other.of(head, plan))
    .filter((cell) => cell.state !== "missing").map((cell) => cell.text);
  return [`slope ${short(head.effective)}`, ...others].join(" · ");
}

/** Chart, controls, small multiples and table of one result. */
function resultCharts(view, box, tableBox, state, width) {
  const metrics = metricsOf(view);
  const chooseMetric = metrics.length ? chooser("Show", metrics.map((m) => [m.id, m.label]), metrics[0].id) : null;
  const choosePlan = chooser(view.verb === "horizon" ? "Plan of the table" : "Plan", view.plans.map((plan) => [plan, visible(plan)]), view.plans[0] || "");
  state.plan = () => choosePlan.value() || null;
  const readout = make("p", { class: "readout" }, HINT);
  const stage = make("div", {});
  const multiples = make("div", { class: "multiples" });
  const byPlan = view.verb === "horizon";
  const render = () => {
    const metric = metrics.find((m) => m.id === chooseMetric?.value());
    if (metric) {
      const marks = new Map();
      const entry = (head, plan) => {
        if (!head || !head.plans.has(plan)) return null;
        const mark = markOf(view, head, plan);
        if (mark) marks.set(mark.letter, mark.meaning);
        return { cell: metric.of(head, plan), mark, id: head.id, plan,
          get name() { return byPlan ? `${visible(plan)}, ${headName(head)}` : headName(head); },
          get more() { return moreOf(view, head, plan, metrics, metric); } };
      };
      const [rows, grid] = gridOf(view, byPlan, choosePlan.value(), entry);
      const where = byPlan || !metric.planned ? "" : ` under ${visible(choosePlan.value())}`;
      const chart = eyeChart({ rows, columns: view.columns, grid, rowKind: byPlan ? "plan" : "layer", label: `${metric.label}${where}`,
        say: sayer(readout), width, open: (at) => { if (byPlan) choosePlan.set(at.plan); openHead(at); } });
      stage.replaceChildren(make("div", { class: "scroll" }, chart), legend(metric, marks));
      if (!byPlan) return afterPaint(view, () => smallMultiples(view, metric, multiples, choosePlan, render), () => table(metric));
    }
    return afterPaint(view, () => table(metric));
  };
  const table = (metric) => tableBox.replaceChildren(
    make("h2", {}, `Heads${view.letter ? ` of ${view.letter}` : ""}, worst first`, view.plans.length ? [" ", make("span", { class: "count" }, "under ", bdi(choosePlan.value()))] : ""),
    headTable(view, choosePlan.value(), metric));
  chooseMetric?.on(render);
  choosePlan.on(render);
  const chosen = [chooseMetric?.element, view.plans.length > 1 ? choosePlan.element : null];
  if (metrics.length) {
    box.append(make("h2", {}, "Eye chart", view.letter ? ` of ${view.letter}` : "", " ", make("span", { class: "count" }, `${view.heads.length} heads`)),
      make("div", { class: "controls" }, chosen), readout, stage, multiples);
  }
  return render();
}

/** Heads from which on what stands below the chart waits until the chart is on the screen. */
const HEADS_AT_ONCE = 2500;

/** Does the work at once, or for a large result step by step with the screen drawn in between; returns when it is done. */
function afterPaint(view, ...steps) {
  if (view.heads.length <= HEADS_AT_ONCE) {
    steps.forEach((step) => step());
    return null;
  }
  const turn = () => new Promise((done) => { setTimeout(done, 0); });
  return steps.reduce((before, step) => before.then(turn).then(step), Promise.resolve());
}

/** Rows and cells: a row a layer, or a row a plan where the result is the same in every layer. */
function gridOf(view, byPlan, plan, entry) {
  if (byPlan) {
    const at = new Map(view.heads.map((head) => [head.head, head]));
    return [view.plans.map((label) => ({ label })), view.plans.map((p) => view.columns.map((c) => entry(at.get(c), p)))];
  }
  return [view.layers.map((layer) => ({ label: String(layer) })), view.places.map((row) => row.map((head) => entry(head, plan)))];
}

/** One small chart a plan, as buttons that choose it. */
function smallMultiples(view, metric, box, choosePlan, render) {
  const entry = (head, plan) => (head?.plans.has(plan) ? { cell: metric.of(head, plan) } : null);
  if (view.plans.length < 2 || !metric.planned) {
    box.replaceChildren();
    return;
  }
  const size = Math.max(2, Math.min(9, Math.floor(220 / view.columns.length)));
  box.replaceChildren(...view.plans.map((plan) => {
    const [, grid] = gridOf(view, false, plan, entry);
    const svg = draw("svg", { width: view.columns.length * size, height: view.layers.length * size, "aria-hidden": "true" },
      paintCells(grid, size - (size > 3 ? 1 : 0), size - (size > 3 ? 1 : 0), (c) => c * size, (r) => r * size));
    const sum = view.doc.summary?.plans?.[plan];
    const text = sum ? `${percent(sum.blind_share)} blind, ${sum.heads_touched} of ${view.heads.length} heads` : planWords(grid);
    const button = make("button", { type: "button", class: "multiple", "aria-pressed": plan === choosePlan.value() }, make("b", {}, bdi(plan)), make("small", {}, text), svg);
    button.addEventListener("click", () => {
      choosePlan.set(plan);
      Promise.resolve(render()).then(() => box.querySelector('[aria-pressed="true"]').focus());
    });
    return button;
  }));
}

/** How many heads have a limit under a plan. */
function planWords(grid) {
  const cells = grid.flat().filter(Boolean);
  const count = (state) => cells.filter(({ cell }) => cell.state === state).length;
  return `${count("value") + count("none")} limited, ${count("all")} without a limit, ${count("missing")} not known`;
}

/** Shows the overview or the page of a head, as the address says. */
function router(views, states) {
  const page = document.getElementById("head");
  let last = null;
  return () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const view = views.find((v) => v.byId.has(id));
    if (!view) {
      delete document.body.dataset.view;
      page.hidden = true;
      page.replaceChildren();
      const from = last && document.querySelector(`.cell[data-id="${last}"]`);
      if (last) (from || document.getElementById("charts")).focus();
      last = null;
      return;
    }
    const plan = states.map((state) => state.plan && state.plan()).find(Boolean) || view.plans[0] || null;
    const at = view.heads.findIndex((head) => head.id === id);
    page.replaceChildren(...headPage(views, id, plan, [["Previous:", view.heads[at - 1]], ["Next:", view.heads[at + 1]]], page.parentElement.clientWidth));
    page.hidden = false;
    document.body.dataset.view = "head";
    last = id;
    window.scrollTo(0, 0);
    page.querySelector("h2").focus({ preventScroll: true });
  };
}

async function start() {
  const doc = await readResult();
  document.body.prepend(hatchPattern());
  const charts = document.getElementById("charts");
  const table = document.getElementById("table");
  const width = charts.clientWidth || 900;
  const docs = doc.verb === "report" ? [doc.a, doc.b] : [doc];
  const lettered = docs.map((each, i) => [each, docs.length > 1 ? "AB"[i] : null]);
  const views = lettered.filter(([each]) => isAboutHeads(each)).map(([each, letter]) => Object.assign(readHeads(each), { letter }));
  walkGrids(charts);
  if (doc.verb === "report" && doc.comparable && views.length) {
    const readout = make("p", { class: "readout" }, HINT);
    charts.append(pairCharts(doc, width, readout, openHead));
  }
  const drawn = [];
  const states = views.map((view) => {
    const [state, box, tableBox] = [{}, make("div", {}), make("div", {})];
    charts.append(box);
    table.append(tableBox);
    drawn.push(resultCharts(view, box, tableBox, state, width));
    return state;
  });
  await Promise.all(drawn);
  const show = router(views, states);
  window.addEventListener("hashchange", show);
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.body.dataset.view === "head") location.hash = "charts";
  });
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((entry) => { entry.open = true; }));
  show();
  performance.mark("snellen-ready");
  document.body.dataset.ready = "yes";
}

start().catch((error) => {
  document.getElementById("charts").append(make("p", { class: "notice" }, `The figures could not be drawn: ${visible(error.message)}. The rest of the page is complete.`));
  document.body.dataset.ready = "failed";
});
