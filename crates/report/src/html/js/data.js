// The JSON document of the page, and one shape for the heads of every verb.

/** The document, unpacked where it was compressed. */
async function readResult() {
  const element = document.getElementById("result");
  if (element.dataset.encoding !== "gzip") return JSON.parse(element.textContent);
  const stream = new Blob([bytesOf(element.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Base64 unpacked, by the browser itself where it can. */
function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/**
 * The heads of a document: `{ verb, length, causal, plans, planInfo, heads, layers, columns, findings, doc }`, where a head is
 * `{ id, layer, head, slope, effective, own, plans }` with `own` the fields that no plan changes and `plans` those of each plan.
 */
function readHeads(doc) {
  const length = doc.length || doc.model?.trained_length || 2048;
  const infos = doc.plans || [];
  const view = {
    doc, length, verb: doc.verb, plans: infos.map((info) => info.plan),
    planInfo: new Map(infos.map((info) => [info.plan, info])), findings: doc.findings || [], heads: [],
  };
  if (doc.verb === "horizon") {
    for (const first of doc.heads) {
      const plans = new Map();
      for (const plan of doc.plans) {
        const own = plan.heads.find((head) => head.head === first.head);
        if (own) plans.set(plan.plan, own);
      }
      view.heads.push(oneHead(null, first, plans));
    }
    view.heads.sort((a, b) => a.head - b.head);
  } else if (doc.verb === "inspect") {
    doc.alibi.slopes.forEach((slope, head) => {
      const own = { head, slope, effective_slope: doc.alibi.effective_slopes[head] };
      view.heads.push(oneHead(null, own, new Map()));
    });
  } else {
    for (const head of doc.heads) {
      view.heads.push(oneHead(head.layer, head, new Map(Object.entries(head.plans))));
    }
  }
  const distinct = (values) => [...new Set(values)].sort((a, b) => a - b);
  view.layers = view.heads.some((h) => h.layer === null) ? [] : distinct(view.heads.map((h) => h.layer));
  view.columns = distinct(view.heads.map((h) => h.head));
  view.byId = new Map(view.heads.map((head) => [head.id, head]));
  // by row and column: looked up once for every cell of every chart
  view.places = view.layers.map((layer) => view.columns.map((column) => view.byId.get(`L${layer}H${column}`)));
  view.marks = collectMarks(view.findings);
  return view;
}

function oneHead(layer, own, plans) {
  const id = layer === null ? `H${own.head}` : `L${layer}H${own.head}`;
  return { id, layer, head: own.head, slope: own.slope, effective: own.effective_slope, own, plans };
}

/** `layer 3, head 5`. */
function headName(head) {
  return head.layer === null ? `head ${head.head}` : `layer ${head.layer}, head ${head.head}`;
}

/** Findings by head: those of one layer and those of every layer, without blindness, which the cell itself shows. */
function collectMarks(findings) {
  const marks = new Map();
  for (const finding of findings) {
    if (finding.head === null || finding.name === "blind-head") continue;
    const key = `${finding.layer === null ? "*" : finding.layer}/${finding.head}`;
    if (!marks.has(key)) marks.set(key, []);
    marks.get(key).push(finding);
  }
  return marks;
}

/** Findings that concern this head under this plan, or under any plan where none is named. */
function findingsOf(view, head, plan) {
  const here = (finding) => finding.head === head.head
    && (finding.layer === null || head.layer === null || finding.layer === head.layer)
    && (!plan || finding.plan === null || finding.plan === plan);
  return view.findings.filter(here);
}

const SEVERITY = { note: 0, warning: 1, error: 2 };

/** Letter and meaning of the worst failure that is not blindness; `null` where there is none. */
function markOf(view, head, plan) {
  if (!view.marks.size) return null;
  let worst = null;
  for (const key of [`${head.layer}/${head.head}`, `*/${head.head}`]) {
    for (const finding of view.marks.get(key) || []) {
      if (finding.plan !== null && finding.plan !== plan) continue;
      if (!worst || SEVERITY[finding.severity] > SEVERITY[worst.severity]) worst = finding;
    }
  }
  if (!worst) return null;
  const [letter, meaning] = WORDS.marks[worst.name] || ["*", "another finding"];
  return { letter, meaning, name: worst.name };
}
