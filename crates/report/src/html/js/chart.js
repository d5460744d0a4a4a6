// The eye chart: rows of cells that the keyboard walks through. Colour, height of the bar and, where there is room, the number
// say the same thing; what is missing is hatched.

const STEPS = 7;

/** Colour step of a cell: 7 is kept for heads without a limit, so that "nearly" is never shown as "all". */
function stepOf(cell) {
  return cell.state === "all" ? STEPS : Math.min(STEPS - 1, Math.floor(cell.good * STEPS));
}

/**
 * Paints the cells of `grid` at size `w` x `h` with their corners at `x(column)`, `y(row)`: two paths a colour step, whatever the
 * number of cells. Returns a group.
 */
function paintCells(grid, w, h, x, y, top = 0) {
  const tint = Array(STEPS + 1).fill("");
  const bars = Array(STEPS + 1).fill("");
  let hatched = "";
  grid.forEach((row, r) => row.forEach((entry, c) => {
    if (!entry) return;
    const { cell } = entry;
    const box = `M${x(c)} ${y(r)}h${w}v${h}h${-w}z`;
    if (cell.state === "missing") {
      hatched += box;
      return;
    }
    const step = stepOf(cell);
    tint[step] += box;
    const room = h - top;
    const bar = cell.state === "none" ? 0 : Math.max(cell.level > 0 ? 1 : 0, cell.level * room);
    if (bar > 0) bars[step] += `M${x(c)} ${(y(r) + h - bar).toFixed(1)}h${w}v${bar.toFixed(1)}h${-w}z`;
  }));
  const group = draw("g", { class: "paint", "aria-hidden": "true" });
  tint.forEach((path, step) => path && group.append(draw("path", { d: path, class: `c${step} tint` })));
  bars.forEach((path, step) => path && group.append(draw("path", { d: path, class: `c${step}` })));
  if (hatched) group.append(draw("path", { d: hatched, fill: "url(#hatch)" }));
  return group;
}

/** The pattern of what was not measured; one a page. */
function hatchPattern() {
  return draw("svg", { width: 0, height: 0, "aria-hidden": "true" }, draw("defs", {},
    draw("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      draw("rect", { width: 5, height: 5, class: "hatch-ground" }),
      draw("line", { x1: 0, y1: 0, x2: 0, y2: 5, class: "hatch-line" }))));
}

/**
 * The whole chart. `rows` are `{ label, name }`, `columns` head numbers, `grid[r][c]` is `{ cell, mark, id, name }` or null;
 * `say(entry)` shows the numbers of a cell and `open(entry)` its page.
 */
function eyeChart({ rows, columns, grid, rowKind, label, say, open, width }) {
  const labelWidth = Math.min(170, 14 + 7 * Math.max(rowKind.length, ...rows.map((row) => row.label.length)));
  const room = Math.max(160, width - labelWidth - 6);
  const gap = columns.length > 60 ? 1 : 2;
  const pitch = Math.max(10, Math.min(76, Math.floor(room / columns.length)));
  const big = pitch >= 44;
  const pitchY = big ? 36 : Math.max(10, Math.min(26, pitch));
  const [w, h, top] = [pitch - gap, pitchY - gap, big ? 15 : 0];
  const [headerHeight, x0] = [20, labelWidth];
  const x = (c) => x0 + c * pitch;
  const y = (r) => headerHeight + r * pitchY;
  const size = { width: x0 + columns.length * pitch + 4, height: headerHeight + rows.length * pitchY + 4 };
  const svg = draw("svg", {
    ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "grid", "aria-label": label,
    "aria-rowcount": rows.length, "aria-colcount": columns.length,
  });
  const ruler = draw("g", { "aria-hidden": "true" }, draw("text", { class: "axis", x: x0 - 8, y: 13, "text-anchor": "end" }, rowKind));
  const every = Math.max(1, Math.ceil(24 / pitch));
  columns.forEach((head, c) => {
    if (c % every === 0) ruler.append(draw("text", { class: "axis", x: x(c) + w / 2, y: 13, "text-anchor": "middle" }, head));
  });
  svg.append(ruler);
  const cells = [];
  // copied, with what is its own set on each: there may be thousands
  const blank = draw("rect", { class: "cell", role: "gridcell", tabindex: -1, width: w, height: h });
  const everyRow = Math.max(1, Math.ceil(13 / pitchY));
  rows.forEach((row, r) => {
    const group = draw("g", { role: "row" });
    if (r % everyRow === 0) {
      group.append(draw("text", { role: "rowheader", class: "axis", x: x0 - 8, y: y(r) + h / 2 + 4, "text-anchor": "end" }, visible(row.label)));
    }
    cells.push(columns.map((head, c) => {
      const entry = grid[r][c];
      if (!entry) {
        group.append(draw("circle", { cx: x(c) + w / 2, cy: y(r) + h / 2, r: 1.2, class: "axis", "aria-hidden": "true" }));
        return null;
      }
      const element = fill(blank.cloneNode(), {
        x: x(c), y: y(r), "aria-label": `${entry.name}: ${entry.cell.text}${entry.mark ? `; ${entry.mark.meaning}` : ""}`,
        "data-row": r, "data-column": c, "data-id": entry.id,
      }, []);
      group.append(element);
      return element;
    }));
    svg.append(group);
  });
  // painted below the cells, which take the pointer
  svg.insertBefore(paintCells(grid, w, h, x, y, top), ruler);
  svg.append(letters(grid, { w, h, x, y, big, pitch }));
  walk(svg, cells, (r, c) => say(grid[r][c]), (r, c) => open(grid[r][c]));
  return svg;
}

/** Numbers where there is room, and the letters of other failures (a corner where there is no room for a letter). */
function letters(grid, { w, h, x, y, big, pitch }) {
  const group = draw("g", { class: "paint", "aria-hidden": "true" });
  let corners = "";
  grid.forEach((row, r) => row.forEach((entry, c) => {
    if (!entry) return;
    if (big) group.append(draw("text", { class: "cellnumber", x: x(c) + w / 2 - (entry.mark && pitch < 60 ? 6 : 0), y: y(r) + 11.5 }, entry.cell.cell));
    if (!entry.mark) return;
    if (big) group.append(draw("text", { class: "mark", "font-size": 12, x: x(c) + w - 6, y: y(r) + 11.5 }, entry.mark.letter));
    else if (pitch >= 15) group.append(draw("text", { class: "mark", "font-size": Math.min(13, pitch - 4), x: x(c) + w / 2, y: y(r) + h / 2 + 4 }, entry.mark.letter));
    else corners += `M${x(c) + w} ${y(r)}v${h / 2}l${-h / 2} ${-h / 2}z`;
  }));
  if (corners) group.append(draw("path", { d: corners, class: "lanefill" }));
  return group;
}

/** One tab stop; arrows, Home, End, Page Up and Page Down move; Enter and Space open. */
function walk(svg, cells, say, open) {
  const place = (element) => [Number(element.dataset.row), Number(element.dataset.column)];
  const at = (r, c) => (cells[r] ? cells[r][c] : undefined);
  let current = cells.flat().find(Boolean);
  if (!current) return;
  current.setAttribute("tabindex", 0);
  const step = (r, c, dr, dc) => {
    for (let [nr, nc] = [r + dr, c + dc]; cells[nr] && nc >= 0 && nc < cells[nr].length; nr += dr, nc += dc) {
      if (at(nr, nc)) return at(nr, nc);
    }
    return null;
  };
  const target = (event, r, c) => {
    switch (event.key) {
      case "ArrowLeft": return step(r, c, 0, -1);
      case "ArrowRight": return step(r, c, 0, 1);
      case "ArrowUp": return step(r, c, -1, 0);
      case "ArrowDown": return step(r, c, 1, 0);
      case "PageUp": return at(0, c);
      case "PageDown": return at(cells.length - 1, c);
      case "Home": return step(event.ctrlKey ? 0 : r, -1, 0, 1);
      case "End": return step(event.ctrlKey ? cells.length - 1 : r, cells[r].length, 0, -1);
      default: return null;
    }
  };
  svg.addEventListener("keydown", (event) => {
    if (!event.target.classList.contains("cell")) return;
    const [r, c] = place(event.target);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(r, c);
      return;
    }
    const next = target(event, r, c);
    if (next) {
      event.preventDefault();
      next.focus();
    }
  });
  svg.addEventListener("focusin", (event) => {
    if (!event.target.classList.contains("cell")) return;
    current.setAttribute("tabindex", -1);
    current = event.target;
    current.setAttribute("tabindex", 0);
  });
  for (const kind of ["focusin", "pointerover"]) {
    svg.addEventListener(kind, (event) => event.target.classList.contains("cell") && say(...place(event.target)));
  }
  svg.addEventListener("click", (event) => {
    if (!event.target.classList.contains("cell")) return;
    const [r, c] = place(event.target);
    open(r, c);
  });
}

/** What bar, colour, hatching and letters mean. */
function legend(metric, marks, changes) {
  const list = make("div", { class: "legend" });
  if (changes) {
    list.append(make("span", {}, "▲ B sees more"), make("span", {}, "▼ B sees less"), make("span", {}, "● the same"), make("span", {}, "? one of the two is missing"));
    return list;
  }
  const sample = { cell: null, mark: null };
  const grid = [metric.ticks.map((_, i) => {
    const level = i / (metric.ticks.length - 1);
    const good = metric.id === "sink" || metric.id === "bound" ? 1 - level : level;
    return { ...sample, cell: { state: "value", level, good: Math.min(good, 0.999999) } };
  })];
  const [w, pitch] = [26, 56];
  const svg = draw("svg", { width: pitch * metric.ticks.length, height: 34, role: "img", "aria-label": `From ${metric.ticks[0]} to ${metric.ticks.at(-1)}` },
    paintCells(grid, w, 18, (c) => c * pitch + (pitch - w) / 2, () => 0),
    metric.ticks.map((tick, i) => draw("text", { class: "axis", x: (i + 0.5) * pitch, y: 31, "text-anchor": "middle" }, tick)));
  const swatch = (cell) => draw("svg", { width: 22, height: 16, "aria-hidden": "true" }, paintCells([[{ cell }]], 22, 16, () => 0, () => 0));
  list.append(make("span", {}, `Height and colour: ${metric.bar}`), make("span", {}, svg),
    make("span", {}, swatch(all("")), "no limit"), make("span", {}, swatch(missing("")), "not measured or not provable"));
  for (const [letter, meaning] of marks) list.append(make("span", {}, make("strong", {}, letter), meaning));
  return list;
}
