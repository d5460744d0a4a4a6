// The README's picture: the top of a real report. node picture.mjs writes docs/images/report.png.

import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { snellen } from "./pages.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const binary = process.env.SNELLEN || join(root, "target/debug/snellen");
const { chromium } = createRequire(import.meta.url)("playwright-core");
const html = join(root, "target/browser/picture.html");
mkdirSync(dirname(html), { recursive: true });
mkdirSync(join(root, "docs/images"), { recursive: true });
writeFileSync(html, snellen(binary, ["horizon", "--like", "bloom-560m", "--plan", "ieee,ftz,hf-eager:f16,llama-cpp-cuda-fa", "--format", "html"]));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1160, height: 900 } });
await page.goto(pathToFileURL(html).href);
await page.waitForSelector("body[data-ready]");
await page.locator('.cell[data-row="0"][data-column="3"]').focus();
const bottom = await page.locator("#charts .legend").evaluate((legend) => legend.getBoundingClientRect().bottom + window.scrollY);
await page.screenshot({ path: join(root, "docs/images/report.png"), clip: { x: 0, y: 0, width: 1160, height: Math.ceil(bottom) + 16 }, fullPage: true });
await browser.close();
