// The tensor as a rectangle whose blocks are coloured by who holds them. Colours and outlines are canvases; labels and
// ticks are text.
const LABELLED_CELLS = 256;

function toneColour(tone, dark) {
  return `oklch(${dark ? 0.55 : 0.8} ${dark ? 0.11 : 0.1} ${(20 + tone * 320).toFixed(1)})`;
}

class TensorPanel {
  // on.cell(layout, row, col) when a cell is pointed at, on.leave() when no cell is.
  constructor(layout, title, on) {
    this.layout = layout;
    this.colours = h("canvas", { "aria-hidden": "true" });
    this.outline = h("canvas", { class: "over", "aria-hidden": "true" });
    this.labels = h("div", { class: "labels" });
    this.tensor = h("div", { class: "tensor" }, this.colours, this.outline, this.labels);
    this.rowTicks = h("div", { class: "ticks rows" });
    this.colTicks = h("div", { class: "ticks cols" });
    this.title = h("h3", {}, title);
    this.text = h("code", {}, layout.text);
    this.facts = h("p", { class: "facts" });
    this.frame = h("div", { class: "frame" }, this.colTicks, this.rowTicks, this.tensor);
    this.element = h("section", { class: "panel" }, this.title, this.text, this.frame, this.facts);
    this.tensor.addEventListener("pointermove", (event) => {
      const cell = this.cellAt(event);
      if (cell) on.cell(this.layout, ...cell);
    });
    this.tensor.addEventListener("pointerleave", () => on.leave());
    this.device = null;
    redrawn(this.frame, () => this.drawAll());
  }

  show(layout, title) {
    if (title !== undefined) this.title.textContent = title;
    if (this.layout === layout) return;
    this.layout = layout;
    this.text.textContent = layout.text;
    this.drawAll();
  }

  // Lengths on the page: blocks in proportion, elided ones narrow.
  edgesOf(dim, length) {
    const n = dim.edges.length - 1;
    if (n === 0 || dim.size === 0) return [0, length];
    const weights = [];
    for (let i = 0; i < n; ++i) weights.push(i === dim.elided ? dim.size / n : dim.edges[i + 1] - dim.edges[i]);
    const total = weights.reduce((a, b) => a + b, 0);
    let at = 0;
    return [0, ...weights.map((weight) => (at += (weight / total) * length))];
  }

  drawAll() {
    const { layout } = this;
    this.facts.textContent = [layout.mesh.text + ": " + layout.facts[0], ...layout.facts.slice(1)].join("; ") + ".";
    const room = this.frame.clientWidth - 44;
    if (room <= 0) return;
    const width = Math.min(room, 460);
    const shape = layout.rowDim.size / Math.max(1, layout.colDim.size);
    this.width = width;
    this.height = layout.draw.length < 2 ? 72 : Math.round(width * Math.min(0.85, Math.max(0.34, shape)));
    this.rows = this.edgesOf(layout.rowDim, this.height);
    this.cols = this.edgesOf(layout.colDim, this.width);
    const dark = isDark(), gap = cssColor("--paper");
    const nrows = layout.rowDim.offsets.length, ncols = layout.colDim.offsets.length;
    const fine = Math.min(width / ncols, this.height / nrows) < 5;
    paint(this.colours, this.width, this.height, (context) => {
      context.fillStyle = cssColor("--line");
      context.fillRect(0, 0, this.width, this.height);
      for (let r = 0; r < nrows; ++r) {
        for (let c = 0; c < ncols; ++c) {
          if (r === layout.rowDim.elided || c === layout.colDim.elided) continue;
          context.fillStyle = toneColour(layout.cellTone(r, c), dark);
          context.fillRect(this.cols[c], this.rows[r], this.cols[c + 1] - this.cols[c] + 0.5, this.rows[r + 1] - this.rows[r] + 0.5);
        }
      }
      if (fine) return;
      context.fillStyle = gap;
      for (const x of this.cols.slice(1, -1)) context.fillRect(x - 0.75, 0, 1.5, this.height);
      for (const y of this.rows.slice(1, -1)) context.fillRect(0, y - 0.75, this.width, 1.5);
    });
    this.drawLabels(nrows, ncols);
    this.drawTicks();
    this.drawOutline();
  }

  drawLabels(nrows, ncols) {
    this.labels.replaceChildren();
    if (nrows * ncols > LABELLED_CELLS) return;
    for (let r = 0; r < nrows; ++r) {
      for (let c = 0; c < ncols; ++c) {
        const width = this.cols[c + 1] - this.cols[c], height = this.rows[r + 1] - this.rows[r];
        const elided = r === this.layout.rowDim.elided || c === this.layout.colDim.elided;
        const text = elided ? "…" : rangesText(this.layout.holders(r, c), Math.max(1, Math.floor(width / 26)));
        if (height < 12 || width < 11) continue;
        const short = text.length * 6.6 > width - 4 ? text.split(",")[0].split(" ")[0] + "…" : text;
        if (short.length * 6.6 > width + 2) continue;
        this.labels.append(h("span", { style: { left: `${this.cols[c]}px`, top: `${this.rows[r]}px`, width: `${width}px`, height: `${height}px` } }, short));
      }
    }
  }

  drawTicks() {
    const place = (ticks, dim, edges, along) => {
      ticks.replaceChildren();
      let last = -100;
      edges.forEach((at, i) => {
        const end = i === edges.length - 1;
        const near = along === "left" ? 34 : 15;
        if (at - last < near || (!end && edges[edges.length - 1] - at < near)) return;
        last = at;
        ticks.append(h("span", { style: { [along]: `${at}px` } }, String(dim.edges[i])));
      });
    };
    if (this.layout.draw.length) place(this.colTicks, this.layout.colDim, this.cols, "left");
    else this.colTicks.replaceChildren();
    if (this.layout.draw.length === 2) place(this.rowTicks, this.layout.rowDim, this.rows, "top");
    else this.rowTicks.replaceChildren();
  }

  // Outlines what a device holds, and fills what arrives: boxes are [[offset, size]...] of the drawn dimensions.
  point(device, boxes = []) {
    this.device = device;
    this.boxes = boxes;
    this.drawOutline();
  }

  drawOutline() {
    if (!this.rows) return;
    const { layout } = this;
    paint(this.outline, this.width, this.height, (context) => {
      if (this.device === null) return;
      const position = layout.position(this.device);
      const rows = this.merged(layout.rowDim, this.rows, layout.blocks(layout.rowDim, position));
      const cols = this.merged(layout.colDim, this.cols, layout.blocks(layout.colDim, position));
      const each = (visit) => rows.forEach(([y, to]) => cols.forEach(([x, end]) => visit(x, y, end - x, to - y)));
      context.fillStyle = cssColor("--veil");
      context.fillRect(0, 0, this.width, this.height);
      each((x, y, w, hh) => context.clearRect(x, y, w, hh));
      for (const [r0, r1, c0, c1] of this.boxes || []) {
        const x = this.scale(layout.colDim, this.cols, c0), y = this.scale(layout.rowDim, this.rows, r0);
        const w = this.scale(layout.colDim, this.cols, c1) - x, hh = this.scale(layout.rowDim, this.rows, r1) - y;
        context.fillStyle = cssColor("--in-soft");
        context.fillRect(x, y, w, hh);
        context.strokeStyle = cssColor("--in");
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, Math.max(0.5, w - 1), Math.max(0.5, hh - 1));
      }
      context.strokeStyle = cssColor("--ink");
      context.lineWidth = 2;
      each((x, y, w, hh) => context.strokeRect(x + 1, y + 1, Math.max(1, w - 2), Math.max(1, hh - 2)));
    });
  }

  // Neighboring blocks as one stretch of the page.
  merged(dim, edges, blocks) {
    const out = [];
    for (const i of blocks) {
      const last = out[out.length - 1];
      if (last && last[2] === i) [last[1], last[2]] = [edges[i + 1], i + 1];
      else out.push([edges[i], edges[i + 1], i + 1]);
    }
    return out;
  }
  // Where an index of the tensor is on the page.
  scale(dim, edges, index) {
    let i = 0;
    while (i + 2 < dim.edges.length && dim.edges[i + 1] <= index) ++i;
    const length = dim.edges[i + 1] - dim.edges[i];
    return edges[i] + (length ? (index - dim.edges[i]) / length : 0) * (edges[i + 1] - edges[i]);
  }

  cellAt(event) {
    if (!this.rows || this.layout.shape.includes(0)) return null;
    const at = this.tensor.getBoundingClientRect();
    const find = (edges, value) => Math.max(0, Math.min(edges.length - 2, edges.findIndex((edge) => edge > value) - 1));
    const row = find(this.rows, event.clientY - at.top), col = find(this.cols, event.clientX - at.left);
    if (row === this.layout.rowDim.elided || col === this.layout.colDim.elided) return null;
    return [row, col];
  }
}
