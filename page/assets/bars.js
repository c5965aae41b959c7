// Bytes against the bound: one bar per device, and bars for the worst device, for links and for memory.
class DeviceBars {
  // on.hover(device or null), on.pin(device)
  constructor(view, on) {
    this.view = view;
    this.bound = view.plan.bounds.recv_bytes_max;
    // Sums over steps, in the order of the devices.
    this.received = new Float64Array(view.ids.length);
    this.sent = new Float64Array(view.ids.length);
    for (const step of view.steps) {
      if (!step.loads) continue;
      step.loadOf.forEach((load, i) => {
        this.received[i] += step.loads.values[load][2];
        this.sent[i] += step.loads.values[load][3];
      });
    }
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.text = h("p", { class: "reading", "aria-live": "off" });
    this.plot = h("div", { class: "plot" }, this.canvas);
    this.element = h("div", {}, h("p", { class: "key" }, h("span", { class: "in" }, "received"), " above, ", h("span", { class: "out" }, "sent"), " below, device by device; the line is what the worst device must receive whatever the plan"), this.plot, this.text);
    const deviceAt = (event) => {
      const at = this.canvas.getBoundingClientRect();
      const index = Math.floor(((event.clientX - at.left) / at.width) * view.ids.length);
      return index >= 0 && index < view.ids.length ? view.ids[index] : null;
    };
    this.plot.addEventListener("pointermove", (event) => on.hover(deviceAt(event)));
    this.plot.addEventListener("pointerleave", () => on.hover(null));
    this.plot.addEventListener("click", (event) => on.pin(deviceAt(event)));
    this.device = null;
    redrawn(this.plot, () => this.draw());
    this.point(null);
  }

  point(device) {
    this.device = device;
    const i = this.view.indexOf.get(device);
    const most = this.received.reduce((a, b) => Math.max(a, b), 0);
    this.text.textContent = i !== undefined
      ? `Device ${device} receives ${bytesText(this.received[i])} and sends ${bytesText(this.sent[i])} in all steps together.`
      : `The worst device receives ${bytesText(most)}: ${ratioText(most, this.bound)}.`;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth, height = 168, n = this.view.ids.length;
    if (width <= 0 || n === 0) return;
    const up = this.received.reduce((a, b) => Math.max(a, b), this.bound), down = this.sent.reduce((a, b) => Math.max(a, b), 0);
    const scale = (height - 26) / Math.max(1, up + down), zero = 14 + up * scale;
    paint(this.canvas, width, height, (context) => {
      const bar = width / n, gap = bar > 6 ? Math.min(6, bar * 0.2) : 0;
      const selected = this.view.indexOf.get(this.device);
      const draw = (values, colour, direction) => {
        context.fillStyle = colour;
        // Where devices share a pixel, the largest bar is seen.
        for (let i = 0; i < n; ++i) {
          context.globalAlpha = selected === undefined || selected === i ? 1 : 0.4;
          const length = values[i] * scale;
          context.fillRect(i * bar + gap / 2, direction < 0 ? zero - length : zero, Math.max(0.6, bar - gap), length);
        }
        context.globalAlpha = 1;
      };
      draw(this.received, cssColor("--in"), -1);
      draw(this.sent, cssColor("--out"), 1);
      context.fillStyle = cssColor("--ink");
      context.fillRect(0, zero - 0.5, width, 1);
      context.setLineDash([5, 4]);
      context.strokeStyle = cssColor("--ink");
      context.beginPath();
      context.moveTo(0, zero - this.bound * scale);
      context.lineTo(width, zero - this.bound * scale);
      context.stroke();
      context.setLineDash([]);
      context.font = "11px system-ui, sans-serif";
      const label = `bound ${bytesText(this.bound)}`;
      context.textAlign = "right";
      context.strokeStyle = cssColor("--paper");
      context.lineWidth = 4;
      context.strokeText(label, width - 2, zero - this.bound * scale - 5);
      context.fillText(label, width - 2, zero - this.bound * scale - 5);
      if (selected === undefined) return;
      context.fillStyle = cssColor("--ink");
      context.fillRect(selected * bar + bar / 2 - 1, height - 8, 2, 8);
    });
  }
}

// A figure and, if it has a bound, a bar with a mark at the bound.
function meter(label, value, bound, note) {
  const most = Math.max(value, bound || 0, 1);
  return h("div", { class: "meter" },
    h("div", { class: "label" }, h("span", {}, label), h("b", {}, bytesText(value))),
    bound === undefined ? null : h("div", { class: "track" },
      h("div", { class: "fill", style: { width: `${(100 * value) / most}%` } }),
      h("div", { class: "mark", style: { left: `${(100 * bound) / most}%` } })),
    h("div", { class: "note" }, note));
}

function meters(plan) {
  const { totals, bounds } = plan, out = [];
  out.push(meter("Received by the worst device", totals.recv_bytes_max, bounds.recv_bytes_max, ratioText(totals.recv_bytes_max, bounds.recv_bytes_max)));
  out.push(meter("Received by all devices together", totals.recv_bytes_total, bounds.recv_bytes_total, ratioText(totals.recv_bytes_total, bounds.recv_bytes_total)));
  const levels = totals.levels || [], topology = plan.options.topology.levels;
  levels.forEach((level, i) => {
    const name = i === 0 ? `Through the busiest link within domains of ${topology[0].devices}` : `Through the busiest link between domains of ${topology[i - 1].devices}`;
    const bound = bounds.levels && i > 0 && bounds.levels[i];
    // The bound of a level counts what crosses it or a level outside it.
    const carried = levels.slice(i).reduce((sum, outer) => sum + outer.nic_bytes_max, 0);
    const outside = carried !== level.nic_bytes_max ? "with the levels outside it " : "";
    // Plans of earlier versions bound what is received only.
    const least = bound ? bound.nic_bytes_max ?? bound.nic_recv_bytes_max : undefined;
    out.push(meter(name, level.nic_bytes_max, least,
      (bound ? outside + ratioText(carried, least) + "; " : "") + `a device receives ${bytesText(level.recv_bytes_max)} this way`));
  });
  const limit = plan.options.memory_limit_bytes;
  out.push(meter("Memory at once on a device", totals.peak_bytes, limit === null ? undefined : limit,
    `source, target, what lies between and staging${limit === null ? "" : `; the limit is ${bytesText(limit)}`}; the largest layout is ${bytesText(totals.intermediate_bytes_max)}`));
  return out;
}
