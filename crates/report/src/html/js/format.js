// Numbers, names and elements. Text reaches the page through textContent alone.

const SVG = "http://www.w3.org/2000/svg";

/** The number with so many digits after the point, an exact tie rounded to even as Rust does (`toFixed` rounds it up). */
function fixed(value, digits) {
  const rounded = value.toFixed(digits);
  // a tie is an odd number of halves; the product is exact wherever there is one
  if (!Number.isInteger(value * 10 ** digits * 2)) return rounded;
  return ties(rounded, value.toFixed(Math.min(100, digits + 60)), digits);
}

/** The same in scientific notation, `4.37e53`. */
function scientific(value, digits) {
  const [rounded, exponent] = value.toExponential(digits).split("e");
  const [exact, same] = value.toExponential(Math.min(100, digits + 60)).split("e");
  return `${exponent === same ? ties(rounded, exact, digits) : rounded}e${exponent.replace("+", "")}`;
}

function ties(rounded, exact, digits) {
  const cut = exact.length - (exact.split(".")[1]?.length ?? 0) + digits;
  const [kept, rest] = [exact.slice(0, cut).replace(/\.$/, ""), exact.slice(cut)];
  return /^50*$/.test(rest) && Number(kept.at(-1)) % 2 === 0 ? kept : rounded;
}

/** A number with about four significant digits: the same rule as the text renderer's `short`. */
function short(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return String(value);
  if (size < 1e-4 || size >= 1e7) return scientific(value, 2);
  if (size >= 1000) return fixed(value, 0);
  if (size >= 100) return fixed(value, 1);
  if (size >= 1) return fixed(value, 2);
  return fixed(value, 4 + Math.max(0, Math.floor(-Math.log10(size))));
}

/** A share as a percentage with one decimal, never rounded to a false 0 % or 100 %. */
function percent(share) {
  const hundred = 100 * share;
  if (share > 0 && hundred < 0.05) return "<0.1%";
  if (share < 1 && hundred >= 99.95) return ">99.9%";
  return `${fixed(hundred, 1)}%`;
}

/** A distance: whole up to 2^53, with an exponent beyond. */
function distance(tokens) {
  if (Number.isInteger(tokens) && tokens <= Number.MAX_SAFE_INTEGER) return String(tokens);
  return scientific(tokens, 3);
}

/** The name with control, bidirectional and zero-width characters made visible. */
function visible(name) {
  return String(name).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** An element with attributes and children; strings become text. */
function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const name in attributes) {
    const given = attributes[name];
    if (given !== null && given !== undefined) element.setAttribute(name, given);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    element.append(typeof child === "object" ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** A name from a file, visible and isolated from the direction of the text around it. */
function bdi(name) {
  return make("bdi", {}, visible(name));
}

/** A value, or a visible word where there is none. */
function or(value, text, missing = "none") {
  return value === null || value === undefined ? make("span", { class: "missing" }, missing) : text(value);
}

/** Position on the logarithmic axis of distances, 0 at distance 0 and 1 at `length`. */
function logShare(tokens, length) {
  return Math.min(1, Math.log2(1 + tokens) / Math.log2(1 + Math.max(1, length)));
}
