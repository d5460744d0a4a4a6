// Formats with a published schema, against it: SARIF against the official schema (the npm package @microsoft/jest-sarif carries
// it), JSON documents against docs/schema. No browser is needed.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { makePages, snellen } from "./pages.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const out = join(root, "target/browser");
const binary = process.env.SNELLEN || join(root, "target/debug/snellen");
const require = createRequire(import.meta.url);
const json = (path) => JSON.parse(readFileSync(path, "utf8"));
if (!existsSync(join(root, "tests/browser/node_modules"))) {
  console.log("SKIPPED: formats against published schemas (run `npm ci` in tests/browser first)");
  process.exit(0);
}

mkdirSync(out, { recursive: true });
const pages = makePages(binary, root, out);
const Ajv = require("ajv");
const Ajv2020 = require("ajv/dist/2020");
const options = { strict: false, allErrors: true, validateFormats: false, unicodeRegExp: false };
// the official schema is of draft 4; what it uses of it means the same in the later drafts, but for the names of these two keys
const { id: _id, $schema: _draft, ...official } = json(require.resolve("@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json"));
const sarif = new Ajv(options).compile(official);
const ajv = new Ajv2020(options);
const schemas = Object.fromEntries(["horizon", "inspect", "audit", "measure", "eval", "probe", "train", "study", "report", "explain"]
  .map((verb) => [verb, ajv.compile(json(join(root, `docs/schema/${verb}.schema.json`)))]));

let passed = 0;
function valid(validate, document, what) {
  assert(validate(document), `${what}: ${JSON.stringify(validate.errors?.slice(0, 3), null, 1)}`);
  passed += 1;
}

for (const [name, { document }] of Object.entries(pages)) {
  valid(schemas[document.verb], document, `${name} as JSON`);
  // verbs that run no checks have no findings, and no SARIF
  const checked = (doc) => !["eval", "probe", "train", "study"].includes(doc.verb);
  if (name === "large" || !checked(document.a ?? document)) continue;
  const log = snellen(binary, ["report", "-", "--format", "sarif"], { input: JSON.stringify(document) });
  valid(sarif, JSON.parse(log), `${name} as SARIF`);
}
valid(schemas.explain, JSON.parse(snellen(binary, ["explain", "--format", "json"])), "explain as JSON");
const log = JSON.parse(snellen(binary, ["measure", "--format", "sarif", "--quiet"]));
log.runs[0].results[0].level = "grave";
assert(!sarif(log), "a wrong level is noticed");
console.log(`${passed} passed, 0 failed`);
