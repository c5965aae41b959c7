// All devices as a grid of cells, coloured by what they hold, and the messages of one step between them.
const MOST_ARCS = 256;  // drawn at once

class DeviceGrid {
  // ids: in ascending order; domains: devices in a domain, or 0; bow: room above and below one row for messages.
  // on.hover(device or null), on.pin(device).
  constructor(ids, layout, domains, on, bow = 64) {
    Object.assign(this, { ids, layout, on, bow });
    this.indexOf = new Map(ids.map((id, i) => [id, i]));
    this.columns = columnsFor(ids.length, layout.mesh.axes.map((axis) => axis[1]));
    // Domains are parts of rows (wide), or rows (high), or not shown.
    this.domain = domains > 0 && ids[0] % domains === 0 ? domains : 0;
    this.wide = this.domain > 0 && this.columns > domains && this.columns % domains === 0;
    this.high = this.domain > 0 && !this.wide && domains % this.columns === 0;
    this.cells = h("canvas", { "aria-hidden": "true" });
    this.over = svg("svg", { class: "over", "aria-hidden": "true" });
    this.element = h("div", { class: "devices", tabindex: "0", role: "group", "aria-roledescription": "grid of devices",
      "aria-label": `${count(ids.length, "device")}; arrow keys choose one` }, this.cells, this.over);
    this.selected = null;
    this.arcs = [];
    this.element.addEventListener("pointermove", (event) => {
      const device = this.deviceAt(event);
      if (device !== this.pointed) on.hover((this.pointed = device));
    });
    this.element.addEventListener("pointerleave", () => on.hover((this.pointed = null)));
    this.element.addEventListener("click", (event) => on.pin(this.deviceAt(event)));
    this.element.addEventListener("keydown", (event) => this.key(event));
    redrawn(this.element, () => this.draw());
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    const at = this.selected === null ? -1 : this.indexOf.get(this.selected);
    let to = at;
    if (event.key in moves) to = at < 0 ? 0 : at + moves[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.ids.length - 1;
    else if (event.key === "Escape") {
      this.on.pin(null);
      return event.preventDefault();
    } else return;
    event.preventDefault();
    if (to >= 0 && to < this.ids.length) this.on.pin(this.ids[to]);
  }

  place(index) {
    const row = Math.floor(index / this.columns), column = index % this.columns;
    const across = this.wide ? Math.floor(column / this.domain) : 0;
    const down = this.high ? Math.floor(index / this.domain) : 0;
    return { x: column * this.size + across * this.space, y: this.top + row * this.size + down * this.space };
  }
  middle(device) {
    const index = this.indexOf.get(device);
    if (index === undefined) return null;
    const { x, y } = this.place(index);
    return { x: x + this.size / 2, y: y + this.size / 2 };
  }

  draw() {
    const room = this.element.clientWidth;
    if (room <= 0) return;
    const n = this.ids.length, rows = Math.ceil(n / this.columns);
    const groups = this.wide ? this.columns / this.domain : 1;
    this.space = this.wide || this.high ? Math.max(4, Math.min(14, room / 80)) : 0;
    this.size = Math.max(2, Math.min(n <= 8 ? 88 : n <= 64 ? 64 : 56, (room - (groups - 1) * this.space) / this.columns));
    this.top = rows === 1 ? this.bow : this.bow * 0.45;
    const end = this.place(n - 1);
    const width = this.columns * this.size + (groups - 1) * this.space;
    const height = end.y + this.size + (rows < 4 ? this.bow * 0.45 : 6);
    this.gap = this.size > 40 ? this.size * 0.26 : this.size > 24 ? 5 : this.size > 8 ? 1.5 : this.size > 4 ? 0.5 : 0;
    this.over.setAttribute("width", width);
    this.over.setAttribute("height", height);
    const dark = isDark();
    paint(this.cells, width, height, (context) => {
      context.font = `${Math.min(15, this.size * 0.33)}px ui-monospace, monospace`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      const ink = cssColor("--ink"), none = cssColor("--line");
      for (let i = 0; i < n; ++i) {
        const { x, y } = this.place(i);
        const position = this.layout.position(this.ids[i]);
        context.fillStyle = position < 0 ? none : toneColour(this.layout.tone(position), dark);
        const g = this.gap, s = this.size;
        if (s > 12) {
          context.beginPath();
          context.roundRect(x + g / 2, y + g / 2, s - g, s - g, Math.min(8, s / 6));
          context.fill();
        } else context.fillRect(x + g / 2, y + g / 2, s - g + (g ? 0 : 0.5), s - g + (g ? 0 : 0.5));
        if (s < 22) continue;
        context.fillStyle = ink;
        context.fillText(String(this.ids[i]), x + s / 2, y + s / 2 + 0.5);
      }
    });
    this.drawOver();
  }

  show(layout) {
    if (layout === this.layout) return;
    this.layout = layout;
    this.draw();
  }

  // arcs: [[from, to, "in" | "out" | "all"]...], the devices that are pointed out, and how far the step is, 0 to 1.
  point(device, arcs, phase) {
    this.selected = device;
    this.arcs = arcs;
    this.phase = phase;
    this.drawOver();
  }
  outline(devices) {
    this.outlined = devices;
    this.drawOver();
  }

  drawOver() {
    if (!this.size) return;
    const parts = [];
    const box = (device, kind) => {
      const index = this.indexOf.get(device);
      if (index === undefined) return;
      const { x, y } = this.place(index);
      const s = Math.max(4, this.size - this.gap);
      parts.push(svg("rect", { class: kind, x: x + this.gap / 2, y: y + this.gap / 2, width: s, height: s, rx: Math.min(8, this.size / 6) }));
    };
    for (const device of this.outlined || []) box(device, "holder");
    const phase = this.phase || 0;
    for (const [from, to, kind] of this.arcs.slice(0, MOST_ARCS)) {
      const a = this.middle(from), b = this.middle(to);
      if (!a || !b) continue;
      const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy);
      // No arc leaves the grid by more than there is room for.
      const bow = Math.min(0.32, 60 / (length + 1) + 0.06, (2 * this.top) / (length + 1));
      const cx = (a.x + b.x) / 2 + dy * bow, cy = (a.y + b.y) / 2 - dx * bow;
      // Neither end is under a number.
      const cut = Math.min(0.3, (this.size * 0.3) / (length + 1));
      const at = (t) => ({ x: (1 - t) ** 2 * a.x + 2 * t * (1 - t) * cx + t * t * b.x, y: (1 - t) ** 2 * a.y + 2 * t * (1 - t) * cy + t * t * b.y });
      const p = at(cut), q = at(1 - cut), before = at(1 - cut - 0.04);
      parts.push(svg("path", { class: `arc ${kind}`, d: `M${p.x},${p.y} Q${cx},${cy} ${q.x},${q.y}` }));
      if (this.size > 14) {
        const angle = (Math.atan2(q.y - before.y, q.x - before.x) * 180) / Math.PI;
        parts.push(svg("path", { class: `tip ${kind}`, d: "M0,0 L-7,-3.5 L-7,3.5 Z", transform: `translate(${q.x},${q.y}) rotate(${angle})` }));
      }
      if (phase > 0 && phase < 1) {
        const dot = at(cut + (1 - 2 * cut) * phase);
        parts.push(svg("circle", { class: `dot ${kind}`, cx: dot.x, cy: dot.y, r: this.size > 14 ? 4 : 2.5 }));
      }
    }
    if (this.selected !== null) box(this.selected, "selected");
    this.over.classList.toggle("many", this.arcs.length > 24);
    this.over.replaceChildren(...parts);
  }

  deviceAt(event) {
    if (!this.size) return null;
    const at = this.cells.getBoundingClientRect();
    const x = event.clientX - at.left, y = event.clientY - at.top - this.top;
    const { wide, high } = this;
    const column = Math.floor((x - (wide ? Math.floor(x / (this.domain * this.size + this.space)) * this.space : 0)) / this.size);
    const rows = high ? this.domain / this.columns : 0;
    const row = Math.floor((y - (high ? Math.floor(y / (rows * this.size + this.space)) * this.space : 0)) / this.size);
    const index = row * this.columns + column;
    if (x < 0 || y < 0 || column < 0 || column >= this.columns || index >= this.ids.length) return null;
    return this.ids[index];
  }
}

// As many columns as the last mesh axes have devices, so that rows mean something, and about as many columns as rows.
function columnsFor(devices, sizes) {
  if (devices <= 16) return Math.min(devices, 8);
  let columns = 1;
  for (let i = sizes.length - 1; i >= 0 && columns * columns < devices; --i) {
    if (columns * sizes[i] > 2 * Math.sqrt(devices) && columns * 4 > Math.sqrt(devices)) break;
    columns *= sizes[i];
  }
  if (columns * columns * 8 < devices || columns > 4 * Math.sqrt(devices)) columns = 2 ** Math.ceil(Math.log2(Math.sqrt(devices)));
  return columns;
}
