// The page of one head: where its attention lies, where it goes blind, and what moves that distance.

let FIGURE_WIDTH = 900;
const [LEFT, RIGHT] = [64, 24];

/** Distances worth a mark, from every view that has the head: `{ name, at, shape, kind }`. */
function distanceMarks(views, head, plan) {
  const marks = [];
  const add = (name, at, shape) => at !== null && at !== undefined && marks.push({ name, at, shape });
  for (const view of views) {
    const own = view.byId.get(head.id);
    if (!own) continue;
    const under = own.plans.get(plan) || {};
    const who = views.length > 1 && view.letter ? `${view.letter}: ` : "";
    if (view.verb === "audit") {
      add(`${who}guaranteed visible up to`, under.guaranteed_visible, "square");
      add(`${who}expected blind past`, under.expected_horizon, "diamond");
      add(`${who}certified blind past`, under.certified_horizon, "triangle");
    } else if (view.verb === "measure") {
      add(`${who}half of the attention within`, own.own.reach_50, "circle");
      add(`${who}nine tenths within`, own.own.reach_90, "circle");
      add(`${who}first blind pair observed`, under.first_blind_distance, "triangle");
      add(`${who}last pair seen`, under.last_visible_distance, "square");
      add(`${who}effective horizon, content`, own.own.effective_horizon, "diamond");
    } else if (view.verb === "horizon") {
      add(`${who}first blind, by the bias`, under.first_blind_distance, "triangle");
      add(`${who}last visible within the length`, under.last_visible_distance, "square");
      add(`${who}stored bias overflows from`, under.overflow_distance, "diamond");
    }
  }
  return marks;
}

/** A shape centred on (x, y): marks differ by shape, not colour. */
function shapeAt(shape, x, y) {
  const paths = {
    square: `M${x - 4} ${y - 4}h8v8h-8z`, diamond: `M${x} ${y - 5}l5 5l-5 5l-5 -5z`,
    triangle: `M${x - 5} ${y - 4}h10l-5 9z`, circle: `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z`,
  };
  return draw("path", { d: paths[shape], class: "lanefill" });
}

/** Powers of two or four as ticks of the axis. */
function axisTicks(length) {
  const every = Math.log2(length) * 45 > FIGURE_WIDTH - LEFT - RIGHT ? 4 : 2;
  const ticks = [0];
  for (let tick = 1; tick < length; tick *= every) ticks.push(tick);
  return ticks;
}

/** Attention mass and blind share by distance with the marks; any part that has no data is left out, with a word. */
function distanceFigure(views, head, plan) {
  const measured = views.find((view) => view.verb === "measure" && view.byId.has(head.id));
  const bins = measured ? measured.byId.get(head.id).own.mass_by_distance : [];
  const own = measured?.byId.get(head.id).plans.get(plan)?.mass_by_distance || [];
  const underPlan = bins.length > 0 && own.length === bins.length;
  const masses = bins.map((bin, i) => (underPlan ? own[i] : bin.mass));
  const marks = distanceMarks(views, head, plan);
  const furthest = Math.max(...views.map((view) => view.length), ...marks.map((m) => Math.min(m.at, 2 ** 40) + 1));
  const x = (d) => LEFT + logShare(Math.min(d, furthest - 1), furthest - 1) * (FIGURE_WIDTH - LEFT - RIGHT);
  const parts = [];
  let y = 8;
  if (bins.length) {
    const top = Math.max(...masses, 1e-9);
    y = panel(parts, y, 120, "attention", percent(Math.min(1, top)), bins.map((bin, i) => ({ from: bin.from, to: bin.to, share: masses[i] / top })), x, "bar");
    const blind = bins.map((bin) => ({ from: bin.from, to: bin.to, share: bin.pairs > 0 ? bin.blind_pairs / bin.pairs : 0 }));
    y = panel(parts, y, 70, "blind", "100%", blind, x, "bar blind");
  }
  const laneTop = y + 4;
  marks.sort((a, b) => a.at - b.at);
  marks.forEach((mark, i) => {
    const at = x(mark.at);
    const lane = laneTop + 10 + i * 22;
    const text = `${mark.name} ${distance(mark.at)}`;
    // on the right where it fits, else on the left
    const right = at + 10 + 6.8 * text.length > FIGURE_WIDTH;
    parts.push(draw("line", { x1: at, x2: at, y1: 8, y2: lane, class: "lane", "stroke-dasharray": "3 3", "stroke-opacity": 0.55 }), shapeAt(mark.shape, at, lane),
      draw("text", { x: right ? at - 10 : at + 10, y: lane + 4, "font-size": 12.5, "text-anchor": right ? "end" : "start" }, text));
  });
  y = laneTop + Math.max(1, marks.length) * 22 + 4;
  y = zones(parts, y, views, head, plan, x, furthest);
  parts.push(draw("line", { x1: LEFT, x2: FIGURE_WIDTH - RIGHT, y1: y, y2: y, class: "grid" }));
  for (const tick of axisTicks(furthest)) parts.push(draw("text", { class: "axis", x: x(tick), y: y + 15, "text-anchor": "middle" }, distance(tick)));
  parts.push(draw("text", { class: "axis", x: FIGURE_WIDTH - RIGHT, y: y + 31, "text-anchor": "end" }, "distance in tokens, logarithmic"));
  const label = `Distances of ${headName(head)}: ${marks.map((m) => `${m.name} ${distance(m.at)}`).join("; ") || "no distance is known"}`;
  const caption = bins.length
    ? `Top: share of the attention in each bin of distances${underPlan ? ` under ${visible(plan)}` : ", before any plan's roundings"}, against the fullest bin. Below: share of the bin's pairs that are blind`
      + ` under ${visible(measured.plans[0])}, the plan that is counted by distance. Then the marks, and what is seen.`
    : ["The marks of this result, and what is seen. Where the attention lies is shown by ", make("code", {}, "snellen measure"), "."];
  return figure(y + 38, label, parts, caption);
}

function panel(parts, y, height, name, top, bins, x, kind) {
  parts.push(draw("text", { class: "axis", x: LEFT - 8, y: y + 10, "text-anchor": "end" }, top),
    draw("text", { class: "axis", x: LEFT - 8, y: y + height / 2 + 4, "text-anchor": "end" }, name),
    draw("line", { x1: LEFT, x2: FIGURE_WIDTH - RIGHT, y1: y + height, y2: y + height, class: "grid" }));
  for (const bin of bins) {
    const h = bin.share * height;
    if (h <= 0) continue;
    const [from, to] = [x(bin.from), x(bin.to + 1)];
    parts.push(draw("rect", { class: kind, x: from + 0.5, y: y + height - h, width: Math.max(1, to - from - 1), height: h }));
  }
  return y + height + 14;
}

/** The strip that says, under the axis, what is seen, open and blind. */
function zones(parts, y, views, head, plan, x, furthest) {
  const audit = views.find((view) => view.verb === "audit" && view.byId.has(head.id));
  const strip = (from, to, kind, text) => {
    const [a, b] = [x(from), x(to)];
    if (b - a < 1) return;
    parts.push(draw("rect", { x: a, y, width: b - a, height: 12, class: kind }));
    if (b - a > text.length * 6.4) parts.push(draw("text", { class: "axis", x: (a + b) / 2, y: y + 24, "text-anchor": "middle" }, text));
  };
  if (audit) {
    const under = audit.byId.get(head.id).plans.get(plan) || {};
    const seen = under.always_visible ? furthest : under.guaranteed_visible ?? 0;
    const blind = under.certified_horizon ?? furthest;
    strip(0, seen, "zone-seen", "seen, for any text");
    strip(seen, blind, "zone-open", "depends on the text");
    strip(blind, furthest, "zone-blind", "blind, for any text");
    return y + 32;
  }
  const view = views.find((v) => v.byId.has(head.id));
  const under = view.byId.get(head.id).plans.get(plan) || {};
  if (view.verb === "horizon" && under.pairs !== undefined) {
    const first = under.first_blind_distance ?? furthest;
    strip(0, first, "zone-seen", "seen");
    strip(first, furthest, "zone-blind", "blind by the bias alone");
    return y + 32;
  }
  if (view.verb === "measure" && under.blind_share !== undefined && under.blind_share !== null) {
    const first = under.first_blind_distance ?? furthest;
    const last = under.last_visible_distance ?? 0;
    strip(0, first, "zone-seen", "every pair seen");
    strip(first, Math.max(first, last + 1), "zone-open", "some pairs seen");
    strip(Math.max(first, last + 1), furthest, "zone-blind", "none seen");
    return y + 32;
  }
  return y + 4;
}

function figure(height, label, parts, caption) {
  const svg = draw("svg", { viewBox: `0 0 ${FIGURE_WIDTH} ${height}`, width: FIGURE_WIDTH, height, role: "img", "aria-label": label }, parts);
  return make("figure", {}, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Figure: ${label.split(":")[0]}` }, svg), make("figcaption", {}, caption));
}

/** Bias against threshold: where the two lines cross the head goes blind, and what moves the crossing. */
function causeFigure(views, head, plan) {
  const info = views.map((view) => view.planInfo.get(plan)).find(Boolean);
  // The nearer threshold decides; a plan that casts normalised weights has a second one.
  const thresholds = [info?.numerator_zero_nats, info?.weight_zero_nats].filter((nats) => nats !== null && nats !== undefined);
  const tau = thresholds.length ? Math.min(...thresholds) : null;
  const ofWeights = tau !== null && tau !== info.numerator_zero_nats;
  const slope = head.effective;
  const remedy = views.find((view) => view.doc.remedy)?.doc.remedy;
  if (remedy) return make("p", { class: "hint" }, `The bias is not linear here (remedy ${visible(remedy)}): its distances are those of the table.`);
  if (tau === null) return make("p", { class: "hint" }, "No weight of this plan is ever zero, so no slope brings the head to a threshold.");
  if (!(slope > 0)) return make("p", { class: "hint" }, "The slope is zero: the bias moves nothing.");
  const audit = views.find((view) => view.verb === "audit" && view.byId.has(head.id));
  const gap = audit ? audit.byId.get(head.id).own.gap_bound : null;
  const crossing = tau / slope;
  const furthest = Math.max(...views.map((view) => view.length), Math.min(2 ** 40, 1.5 * (crossing + (gap || 0) / slope)));
  const highest = 1.6 * tau + (gap ? Math.min(gap, tau) : 0);
  const height = 210;
  const x = (d) => LEFT + logShare(d, furthest) * (FIGURE_WIDTH - LEFT - RIGHT);
  const y = (nats) => 12 + height * (1 - Math.max(0, Math.min(1, nats / highest)));
  const points = [];
  for (let i = 0; i <= 240; i += 1) {
    const d = (2 ** ((i / 240) * Math.log2(1 + furthest))) - 1;
    if (slope * d > highest) {
      points.push([x(highest / slope), y(highest)]);
      break;
    }
    points.push([x(d), y(slope * d)]);
  }
  const parts = [];
  if (gap) parts.push(draw("rect", { class: "band", x: LEFT, width: FIGURE_WIDTH - LEFT - RIGHT, y: y(tau + gap), height: y(tau - gap) - y(tau + gap) }));
  parts.push(
    draw("path", { class: "curve", d: points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("") }),
    draw("line", { class: "tau", x1: LEFT, x2: FIGURE_WIDTH - RIGHT, y1: y(tau), y2: y(tau) }),
    draw("text", { class: "axis", x: LEFT - 8, y: y(tau) + 4, "text-anchor": "end" }, `${short(tau)}`),
    draw("text", { class: "axis", x: LEFT - 8, y: y(0) + 4, "text-anchor": "end" }, "0 nats"),
    draw("text", { x: LEFT + 6, y: y(tau) - (FIGURE_WIDTH < 600 ? 26 : 6), "font-size": 12.5 }, "tau: below this the weight is not zero"),
    draw("line", { x1: LEFT, x2: FIGURE_WIDTH - RIGHT, y1: y(0), y2: y(0), class: "grid" }));
  if (crossing <= furthest) {
    // above the line left of the crossing, below it right of it: the curve is in neither place
    const right = x(crossing) > FIGURE_WIDTH * 0.6;
    parts.push(shapeAt("diamond", x(crossing), y(tau)), draw("text", {
      x: x(crossing) + (right ? -12 : 12), y: y(tau) + (right ? -8 : 18), "font-size": 12.5, "text-anchor": right ? "end" : "start",
    }, `slope × distance reaches tau at ${distance(Math.round(crossing))}`));
  }
  for (const tick of axisTicks(furthest)) parts.push(draw("text", { class: "axis", x: x(tick), y: y(0) + 16, "text-anchor": "middle" }, distance(tick)));
  const text = `tau / slope = ${short(tau)} / ${short(slope)} = ${distance(Math.round(crossing))} tokens for a linear bias and equal content${ofWeights ? ", and nearer by the logarithm of the row's sum over the slope, since this plan rounds normalised weights" : ""}. `
    + "Half the slope doubles it; a format with a larger tau moves it in proportion; every nat by which a score stands above or below the row's largest moves it by "
    + `1 / slope = ${short(1 / slope)} tokens`
    + (gap ? `; the weights bound that difference to ${short(gap)} nats (shaded), so no text moves it by more than ${distance(Math.round(gap / slope))} tokens.` : ".");
  return figure(y(0) + 26, `Bias of slope ${short(slope)} against tau of ${short(tau)} nats: they cross at distance ${distance(Math.round(crossing))}`, parts, text);
}

/** The whole page of a head. */
function headPage(views, id, plan, neighbours, width) {
  FIGURE_WIDTH = Math.max(340, Math.min(1000, width));
  const view = views.find((v) => v.byId.has(id));
  const head = view.byId.get(id);
  const title = headName(head);
  const nav = make("nav", { class: "headnav", "aria-label": "Heads" }, make("a", { href: "#charts" }, "← All heads"));
  for (const [word, other] of neighbours) if (other) nav.append(make("a", { href: `#${other.id}` }, `${word} ${headName(other)}`));
  const parts = [nav, make("h2", { tabindex: -1 }, title.charAt(0).toUpperCase() + title.slice(1)),
    make("p", { class: "facts" }, `slope ${short(head.slope)}`, head.effective !== head.slope ? ` · effective slope ${short(head.effective)}` : "", plan ? [" · figures under ", bdi(plan)] : "")];
  if (plan) parts.push(make("h3", {}, "Attention and blindness by distance"), distanceFigure(views, head, plan), make("h3", {}, "What moves the horizon"), causeFigure(views, head, plan));
  for (const each of views) {
    const own = each.byId.get(id);
    if (!own) continue;
    parts.push(make("h3", {}, "Under every plan", views.length > 1 ? ` (${each.letter ? `${each.letter}, ` : ""}${each.verb})` : ""));
    const columns = headColumns(each).filter((column) => column.field !== "effective_slope");
    parts.push(simpleTable(`Under every plan, ${each.letter ?? ""} ${each.verb}`, [{ name: "plan" }, ...columns.map((c) => ({ name: c.name, number: true }))],
      each.plans.map((key) => [bdi(key), ...columns.map((c) => or(c.value(own, key), c.text, c.absent(own, key)))])));
  }
  parts.push(make("h3", {}, "Findings"));
  const findings = views.flatMap((each) => (each.byId.has(id) ? findingsOf(each, head, null) : []));
  if (!findings.length) parts.push(make("p", {}, "None concerns this head."));
  for (const finding of findings) {
    parts.push(make("div", { class: `finding ${finding.severity}` },
      make("p", {}, make("span", { class: "badge" }, finding.severity), " ", make("span", { class: "code" }, visible(finding.code)), ` ${visible(finding.name)}`, finding.plan ? [" · ", bdi(finding.plan)] : ""),
      make("p", {}, visible(finding.message)),
      finding.next_command ? make("p", {}, make("code", {}, visible(finding.next_command))) : null));
  }
  return parts;
}
