// Results that are not about heads: their figures are in the page already; the cells of a heat map get the keyboard.

/** Whether a document is about heads, which the script draws. */
function isAboutHeads(doc) {
  return ["horizon", "inspect", "audit", "measure"].includes(doc.verb);
}

/** Lets the arrow keys walk through every grid of the page; Enter opens what is said about a cell further down. */
function walkGrids(charts) {
  for (const svg of charts.querySelectorAll('svg[role="grid"]')) {
    const readout = svg.closest("figure").previousElementSibling;
    const cells = [];
    for (const cell of svg.querySelectorAll(".cell")) {
      const [r, c] = [Number(cell.dataset.row), Number(cell.dataset.column)];
      while (cells.length <= r) cells.push([]);
      cells[r][c] = cell;
    }
    const widest = Math.max(0, ...cells.map((row) => row.length));
    for (const row of cells) for (let c = 0; c < widest; c += 1) row[c] ??= null;
    const say = (r, c) => { readout.textContent = cells[r][c].getAttribute("aria-label"); };
    const open = (r, c) => {
      const entry = document.getElementById(cells[r][c].dataset.id);
      if (!entry) {
        readout.textContent = `${cells[r][c].getAttribute("aria-label")}. Nothing was missed here.`;
        return;
      }
      entry.open = true;
      entry.querySelector("summary").focus();
    };
    walk(svg, cells, say, open);
  }
}
