// The HTML reports in headless Chromium: no console error, no request, everything by keyboard, accessible, the numbers of the
// JSON document, fast. Screenshots are left in target/browser as artefacts.
//
//   node check.mjs [--shots]     SNELLEN: the binary   CHROMIUM: the browser
//
// Exit 0: every check passed, or SKIPPED with the reason where there is no browser.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { HOSTILE, makePages } from "./pages.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const out = join(root, "target/browser");
const binary = process.env.SNELLEN || join(root, "target/debug/snellen");
const browserPath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
const skip = (why) => {
  console.log(`SKIPPED: HTML reports in a browser (${why})`);
  process.exit(0);
};
if (!browserPath) skip("chromium is not installed; on Debian: apt-get install chromium");
const require = createRequire(import.meta.url);
let chromium;
let axe;
try {
  ({ chromium } = require("playwright-core"));
  axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
} catch {
  skip("run `npm ci` in tests/browser first");
}
assert(existsSync(binary), `${binary} is missing: cargo build first`);

mkdirSync(out, { recursive: true });
const pages = makePages(binary, root, out);
const browser = await chromium.launch({
  executablePath: browserPath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** A page that fails the run on a console error, an exception or any request but the file itself. */
async function open(name, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const troubles = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(message.text()));
  page.on("pageerror", (error) => troubles.push(String(error)));
  const url = pathToFileURL(pages[name].html).href;
  page.on("request", (request) => request.url() !== url && troubles.push(`request for ${request.url()}`));
  await page.goto(url);
  await page.waitForSelector("body[data-ready]");
  assert.equal(await page.getAttribute("body", "data-ready"), "yes", `${name}: the figures were not drawn`);
  return { page, troubles, close: () => context.close() };
}

const results = [];
async function check(title, body) {
  try {
    await body();
    results.push([title, null]);
  } catch (error) {
    results.push([title, error]);
  }
}

/** A page under `check`, which must end without trouble. */
function onPage(title, name, body, options) {
  return check(`${name}: ${title}`, async () => {
    const { page, troubles, close } = await open(name, options);
    try {
      await body(page);
      assert.deepEqual(troubles, [], "console errors, exceptions or requests");
    } finally {
      await close();
    }
  });
}

for (const name of Object.keys(pages)) {
  await onPage("opens without an error or a request, under 2 MB for 2,000 heads", name, async () => {
    if (name !== "large") assert(statSync(pages[name].html).size < 2_000_000, `${statSync(pages[name].html).size} bytes`);
  });
}

for (const name of ["measure", "audit"]) {
  await onPage("the plan is switched, and the chart and the table with it", name, async (page) => {
    const read = () => page.$$eval("#charts .cell", (cells) => cells.map((cell) => cell.getAttribute("aria-label")).join());
    const before = await read();
    await page.selectOption('#charts label:has-text("Plan") select', "llama-cpp-cuda-fa");
    assert.notEqual(await read(), before);
    assert.match(await page.textContent("#table h2"), /llama-cpp-cuda-fa/);
    assert.equal(await page.textContent('.multiple[aria-pressed="true"] b'), "llama-cpp-cuda-fa");
    await page.click('.multiple:has-text("ieee")');
    assert.equal(await read(), before);
    const other = await page.$$eval('#charts label:has-text("Show") option', (options) => options[1].value);
    await page.selectOption('#charts label:has-text("Show") select', other);
    assert.notEqual(await read(), before);
  });
}

for (const name of ["horizon", "measure", "audit", "compare", "together"]) {
  await onPage("a head opens by Enter and by click, and Escape returns to its cell", name, async (page) => {
    const first = page.locator(".cell[tabindex='0']").first();
    await first.focus();
    await page.keyboard.press("ArrowRight");
    const id = await page.evaluate(() => document.activeElement.dataset.id);
    assert.match(id, /H1$/);
    assert.match(await page.textContent(".readout"), /head 1/);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#head h2");
    assert.match(await page.textContent("#head h2"), /head 1/i);
    assert((await page.$$("#head figure svg")).length >= 1, "no figure");
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "H2");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#head", { state: "hidden" });
    assert.equal(await page.evaluate(() => document.activeElement.dataset.id), id);
    await page.keyboard.press("End");
    assert.notEqual(await page.evaluate(() => document.activeElement.dataset.id), id);
    await page.locator(".cell").first().click();
    await page.waitForSelector("#head h2");
  });
}

await onPage("the cells are walked through, and Enter opens the failures of one", "probe", async (page) => {
  const grid = page.locator(".wide svg[role=grid]");
  assert.equal(await grid.locator(".cell").count(), 25);
  await grid.locator(".cell[tabindex='0']").focus();
  await page.keyboard.press("End");
  const label = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  assert.match(label, /^length 1200, depth 0%: \d of 4 found, 95 % interval/);
  assert.equal(await page.textContent(".readout"), label);
  await page.keyboard.press("ArrowDown");
  const id = await page.evaluate(() => document.activeElement.dataset.id);
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY");
  assert(await page.locator(`#${id}[open]`).isVisible());
  const opened = await page.textContent(`#${id}`);
  assert.match(opened, /missed/);
  assert.match(opened, /answer as it came/);
  assert(await page.getByText("trained at 512").first().isVisible());
});

await check("probe: every cell of the map holds the counts of the document", async () => {
  const { page, close } = await open("probe");
  const labels = await page.$$eval(".wide .cell", (cells) => cells.map((cell) => cell.getAttribute("aria-label")));
  const { document } = pages.probe;
  const expected = [...document.cells].sort((a, b) => a.depth - b.depth || a.length - b.length)
    .map((cell) => `length ${cell.length}, depth ${100 * cell.depth}%: ${cell.hits} of ${cell.samples} found`);
  assert.deepEqual(labels.map((label) => label.split(", 95 %")[0]), expected);
  await close();
});

for (const name of ["probe", "eval", "task", "train", "study", "compare-probe"]) {
  await onPage("nothing is wider than a narrow screen", name, async (page) => {
    assert((await page.evaluate(() => document.documentElement.scrollWidth)) <= 400);
    assert(await page.locator(".narrow svg").first().isVisible());
    assert(!(await page.locator(".wide svg").first().isVisible()));
  }, { viewport: { width: 400, height: 800 } });
}

await onPage("is complete without its script", "train", async (page) => {
  assert.equal(await page.locator(".wide svg").count(), 5);
  assert.match(await page.textContent("#charts"), /Recall by distance/);
});

await onPage("forests show every variant with its number, and what is compared", "study", async (page) => {
  const figure = page.locator("figure").first().locator(".wide svg");
  const { document: study } = pages.study;
  const recall = study.tables.find((table) => table.name === "recall");
  const texts = await figure.locator("text").allTextContents();
  for (const variant of new Set(recall.rows.map((row) => row.variant))) assert(texts.includes(variant), variant);
  const values = await figure.locator("text.value").count();
  assert.equal(values, recall.rows.length);
  assert.match(await page.locator("figcaption").first().textContent(), new RegExp(`dashed line is the mean of ${study.baseline}`));
});

await onPage("answers stay text, and a cell that was not run is seen", "probe-hostile", async (page) => {
  const state = await page.evaluate(() => ({ broken: window.broken, images: document.images.length, scripts: document.scripts.length, text: document.body.textContent }));
  assert.deepEqual([state.broken, state.images, state.scripts], [undefined, 0, 3]);
  assert(!/[\u202a-\u202e\u0007]/.test(state.text));
  assert.equal(await page.locator(".wide .cell").count(), 24);
  assert.equal(await page.locator(".wide .absent").count(), 1);
});

for (const name of ["measure", "horizon", "compare", "probe", "train"]) {
  await onPage("Tab reaches everything that can be pressed", name, async (page) => {
    const reachable = "a[href], button, select, summary, .cell[tabindex='0'], [role=region][tabindex='0']";
    const wanted = await page.$$eval(reachable, (elements) => elements.filter((e) => e.checkVisibility()).length);
    await page.evaluate(() => { window.seen = new Set(); document.body.focus(); });
    for (let i = 0; i < wanted + 5; i += 1) {
      await page.keyboard.press("Tab");
      await page.evaluate((query) => document.activeElement.matches(query) && window.seen.add(document.activeElement), reachable);
    }
    assert.equal(await page.evaluate(() => window.seen.size), wanted);
  });
}

for (const name of ["horizon", "measure", "audit", "inspect", "compare", "together", "gaps", "probe", "eval", "task", "train", "study", "compare-probe"]) {
  for (const colorScheme of ["light", "dark"]) {
    await onPage(`no accessibility violation, ${colorScheme}`, name, async (page) => {
      const look = async (where) => {
        const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
        const lines = violations.map((v) => `${where}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 2).map((n) => n.html.slice(0, 160)).join(" | ")}`);
        assert.deepEqual(lines, []);
      };
      await page.evaluate(axe);
      await look("overview");
      const cell = page.locator(".cell").first();
      await page.evaluate(() => document.querySelectorAll("details").forEach((entry) => { entry.open = true; }));
      await look("everything open");
      if (await cell.count() && !["probe", "compare-probe"].includes(name)) {
        await cell.click();
        await page.waitForSelector("#head h2");
        await look("head");
      }
    }, { colorScheme });
  }
}

await onPage("names stay text", "hostile", async (page) => {
  const state = () => page.evaluate(() => ({ broken: window.broken, images: document.images.length, scripts: document.scripts.length, text: document.body.innerText, title: document.title }));
  let found = await state();
  assert.deepEqual([found.broken, found.images, found.scripts], [undefined, 0, 3]);
  assert(!/[\u202a-\u202e\u0007]/.test(found.text + found.title), "a control character is shown as it is");
  assert(found.text.includes("<img src=x onerror="), "the name is shown");
  await page.locator(".cell").first().click();
  await page.waitForSelector("#head h2");
  found = await state();
  assert.deepEqual([found.broken, found.images], [undefined, 0]);
  assert(!/[\u202a-\u202e\u0007]/.test(found.text));
  const raw = readFileSync(pages.hostile.html, "utf8");
  assert(!raw.includes(HOSTILE) && !/<script>window/.test(raw));
});

await onPage("what is missing is seen to be missing", "gaps", async (page) => {
  const labels = await page.$$eval("#charts .cell", (cells) => cells.map((cell) => cell.getAttribute("aria-label")));
  assert.equal(labels.length, 15, "a head that was filtered away has no cell");
  assert.equal(labels.filter((label) => label.includes("not measured")).length, 5);
  assert((await page.$$eval("#table .missing", (cells) => cells.length)) > 0);
});

await check("every table cell holds the number of the document", async () => {
  for (const name of ["horizon", "measure", "audit"]) {
    const { page, close } = await open(name);
    const doc = pages[name].document;
    const more = page.locator("#table button.plain");
    if (await more.count()) await more.click();
    const rows = await page.$$eval("#table tbody tr", (trs) => trs.map((tr) => ({
      head: Number(tr.querySelector("th").textContent), layer: tr.firstChild.tagName === "TD" ? Number(tr.firstChild.textContent) : null,
      cells: [...tr.querySelectorAll("td[data-field]")].map((td) => [td.dataset.field, td.dataset.value]),
    })));
    assert.equal(rows.length, doc.heads.length);
    for (const row of rows) {
      const head = doc.heads.find((h) => h.head === row.head && (row.layer === null || h.layer === row.layer));
      const fields = { ...head, ...(head.plans?.[doc.plan] || {}) };
      for (const [field, value] of row.cells) assert.deepEqual(JSON.parse(value ?? "null"), fields[field] ?? null, `${name} ${field}`);
    }
    await close();
  }
});

// Milliseconds that this browser takes on this machine for work of the kind that a large page makes: reading numbers, making and laying
// out elements. Best of three.
const browserWork = async () => {
  const page = await browser.newPage();
  const best = await page.evaluate(() => {
    const text = JSON.stringify(Array.from({ length: 100000 }, (_, i) => ({ head: i, slope: i / 7, name: `head ${i}`, plans: [i / 3, i / 11] })));
    const once = () => {
      const started = performance.now();
      const rows = JSON.parse(text);
      const svg = document.body.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
      for (let i = 0; i < 10000; i += 1) {
        const cell = svg.appendChild(document.createElementNS(svg.namespaceURI, "rect"));
        for (const [name, value] of [["x", rows[i].slope], ["y", i % 100], ["width", 2], ["height", 2]]) cell.setAttribute(name, value);
        cell.setAttribute("aria-label", rows[i].name);
      }
      svg.getBoundingClientRect();
      svg.remove();
      return performance.now() - started;
    };
    return Math.min(once(), once(), once());
  });
  await page.close();
  return best;
};

await check("large: 70 layers of 112 heads are drawn in under a second and stay responsive", async () => {
  const work = await browserWork();
  const times = [];
  for (let i = 0; i < 3; i += 1) {
    const { page, close } = await open("large");
    const ready = await page.evaluate(() => performance.getEntriesByName("snellen-ready")[0].startTime);
    assert.equal(await page.$$eval("#charts .cell", (cells) => cells.length), 70 * 112);
    const started = Date.now();
    await page.selectOption('#charts label:has-text("Plan") select', "ftz");
    times.push([ready, Date.now() - started]);
    await close();
  }
  console.log(`large page: ready after ${times.map(([a]) => Math.round(a)).join(", ")} ms; plan switched in ${times.map(([, b]) => b).join(", ")} ms`);
  // the best of three: the machine may be busy with something else
  // The goal is a second. A busy machine takes longer: the run fails at one and a half, and says how far from the goal it was. Where the
  // browser itself is slow, at eight times what it takes for its part (4.1 to 5.3 times were measured on a slow machine).
  const limit = Number(process.env.SNELLEN_PAGE_MS ?? Math.max(1500, Math.round(8 * work)));
  console.log(`large page: the browser takes ${Math.round(work)} ms for work of the kind, limit ${limit} ms`);
  const best = [Math.min(...times.map(([a]) => a)), Math.min(...times.map(([, b]) => b))];
  if (Math.max(...best) >= 1000) console.log(`large page: ABOVE the goal of 1000 ms: ${best.map(Math.round).join(", ")} ms`);
  assert(Math.max(...best) < limit, `${best.map(Math.round).join(", ")} ms; limit ${limit}`);
});

if (process.argv.includes("--shots") || process.env.CI) {
  const shot = async (name, file, options, act) => {
    const { page, close } = await open(name, options);
    if (act) await act(page);
    await page.screenshot({ path: join(out, `${file}.png`), fullPage: true });
    await close();
  };
  const openHead = async (page) => {
    await page.locator(".cell").nth(2).click();
    await page.waitForSelector("#head h2");
  };
  for (const name of Object.keys(pages)) await shot(name, `${name}-light`, {});
  for (const name of ["measure", "horizon", "probe", "eval", "task", "train", "study", "compare-probe"]) {
    await shot(name, `${name}-dark`, { colorScheme: "dark" });
    await shot(name, `${name}-narrow`, { viewport: { width: 400, height: 800 } });
    await shot(name, `${name}-print`, {}, (page) => page.emulateMedia({ media: "print" }));
  }
  for (const name of ["measure", "audit", "horizon", "together"]) await shot(name, `${name}-head`, {}, openHead);
  await shot("measure", "measure-head-dark", { colorScheme: "dark" }, openHead);
  await shot("measure", "measure-head-narrow", { viewport: { width: 400, height: 800 } }, openHead);
}

await browser.close();
for (const [title, error] of results) console.log(error ? `FAILED ${title}\n    ${String(error.message).split("\n").join("\n    ")}` : `ok     ${title}`);
const failed = results.filter(([, error]) => error).length;
console.log(`${results.length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
