// A plan: facts, timeline, layouts side by side, devices, bytes, and the plans that lost.
function planView(view, parts = {}) {
  const { plan } = view;
  let pinned = null, hovered = null;
  const device = () => (hovered !== null ? hovered : pinned);
  const on = {
    hover: (id) => {
      hovered = id;
      refresh();
    },
    pin: (id) => {
      pinned = id !== null && id === pinned && hovered === id ? null : id;
      refresh();
    },
    cell: (layout, row, col) => {
      const holders = layout.holders(row, col);
      if (holders.length === 0) return;
      hovered = holders[0];
      outlined = holders.slice(0, 512);
      refresh();
    },
    leave: () => {
      hovered = null;
      outlined = [];
      refresh();
    },
    change: () => refresh(),
  };
  let outlined = [];

  const timeline = new Timeline(view, on);
  const stages = view.steps.length > 1;
  const source = new TensorPanel(view.source, "Source", on);
  const between = stages ? new TensorPanel(view.source, "Now", on) : null;
  const target = new TensorPanel(view.target, "Target", on);
  const domains = plan.options.topology.levels.length > 1 ? plan.options.topology.levels[0].devices : 0;
  const grid = view.ids.length ? new DeviceGrid(view.ids, view.source, domains, on) : null;
  const details = new Details(view, on);
  const bars = view.ids.length ? new DeviceBars(view, on) : null;

  const arcsOf = (step, id) => {
    if (!step || !step.peers) return [];
    if (id !== null) {
      const lines = (receives) => (view.peers(step, id, receives) || []).map(([peer]) => (receives ? [peer, id, "in"] : [id, peer, "out"]));
      return [...lines(true), ...lines(false)];
    }
    if (step.messages > 64) return [];
    return view.ids.flatMap((receiver) => (view.peers(step, receiver, true) || []).map(([sender]) => [sender, receiver, "all"]));
  };
  // The boxes that arrive at a device in a step, in the drawn dimensions.
  const boxesOf = (step, id) => {
    if (!step || !step.boxes || id === null) return [];
    const { draw } = step.to;
    const span = (box, which) => (which === undefined ? [0, 1] : [box[3 + 2 * which], box[3 + 2 * which] + box[4 + 2 * which]]);
    return step.boxes.filter((box) => box[1] === id && box[2] === 1).map((box) => [
      ...span(box, draw.length === 2 ? draw[0] : undefined), ...span(box, draw.length ? draw[draw.length - 1] : undefined)]);
  };

  const refresh = () => {
    const id = device(), step = view.steps[timeline.current], now = view.layoutAfter(timeline.done);
    const n = view.steps.length, last = timeline.current === n - 1;
    source.point(id);
    target.point(id, last ? boxesOf(step, id) : []);
    if (between) {
      between.show(now, timeline.done === 0 ? "Now: the source" : timeline.done === n ? "Now: the target" : `Now: after step ${timeline.done}`);
      between.point(id);
    }
    if (grid) {
      grid.show(now);
      grid.outlined = hovered !== null ? outlined : [];
      grid.point(id, arcsOf(step, id), timeline.phase);
    }
    details.show(id, timeline.current);
    if (bars) bars.point(id);
  };

  const listed = view.ids.length < plan.world ? view.ids.length : 0;
  const element = h("div", { class: "plan" },
    facts(view),
    view.steps.length ? timeline.element : null,
    h("div", { class: between ? "panels three" : "panels" }, source.element, between ? between.element : null, target.element),
    h("div", { class: "who" },
      h("section", { class: "grid-of-devices", "aria-label": "Devices" },
        h("h3", {}, "Devices"),
        h("p", { class: "key" }, "Devices of one colour hold the same part of the tensor. ", grid && (grid.wide || grid.high) ? `Gaps separate domains of ${domains}. ` : "",
          h("span", { class: "in" }, "receives"), " ", h("span", { class: "out" }, "sends")),
        grid ? grid.element : h("p", { class: "hint" }, `${plan.world.toLocaleString("en")} devices are too many to list here.`),
        grid && listed ? h("p", { class: "hint" }, `The first ${listed.toLocaleString("en")} of ${plan.world.toLocaleString("en")} devices are listed one by one; figures are those of all.`) : null),
      details.element),
    h("div", { class: "bytes" },
      bars && view.steps.length ? h("section", { "aria-label": "Bytes per device" }, h("h3", {}, "Bytes per device"), bars.element) : null,
      h("section", { "aria-label": "Bytes against bounds" }, h("h3", {}, "Against the bounds"), meters(plan))),
    parts.alternatives || null,
    h("details", { class: "explained" }, h("summary", {}, "The whole story as text"), h("pre", { tabindex: "0" }, view.explained)));
  timeline.set(0);
  return element;
}

function facts(view) {
  const { plan } = view;
  const { totals, bounds } = plan;
  const best = plan.certificate.kind;
  const fact = (name, value, note) => h("div", {}, h("dt", {}, name), h("dd", {}, value), note ? h("dd", { class: "note" }, note) : null);
  return h("header", { class: "facts-of-plan" },
    h("p", { class: "tensor-line" }, h("code", {}, `${plan.dtype}[${plan.shape.join(", ")}]`), ` on ${count(plan.world, "device")} (${plan.options.topology.name})`),
    h("dl", {},
      fact("Estimated time", timeText(totals.time_ns), plan.options.objective === "time" ? "what the plan minimizes" : `the plan minimizes ${plan.options.objective}`),
      fact("Worst device receives", bytesText(totals.recv_bytes_max), ratioText(totals.recv_bytes_max, bounds.recv_bytes_max)),
      fact("All devices receive", bytesText(totals.recv_bytes_total), ratioText(totals.recv_bytes_total, bounds.recv_bytes_total)),
      view.lost ? fact("Verdict", "lost", view.lost) : fact("Proof", { lower_bound: "at the lower bound", exhaustive: "best of its kind", best_found: "best found" }[best], plan.certificate.detail)));
}

// The chosen plan and those that lost; a plan that lost can be opened in place of the chosen one if the page has its
// steps.
function planPage(data) {
  const layouts = data.layouts.map((layout) => new Layout(layout));
  const views = data.plans.map((plan) => new PlanData(plan, layouts));
  const chosen = views[0].plan;
  const place = h("div", {});
  const banner = h("p", { class: "banner", role: "status" });
  const rows = [{ ops: chosen.steps.map((step) => step.op), ...chosen.totals, why: "chosen", opens: 0 },
    ...chosen.alternatives.map((other, i) => ({ ...other, why: other.rejected_because, opens: data.opens[i] }))];
  const slowest = Math.max(1, ...rows.map((row) => row.time_ns)), most = Math.max(1, ...rows.map((row) => row.recv_bytes_max));
  const inCell = (text, value, max) => h("td", {}, h("div", { class: "cellbar" }, h("i", { style: { width: `${(100 * value) / max}%` } }), h("span", {}, text)));
  const table = () => h("section", { class: "alternatives", "aria-label": "Plans that were compared" }, h("h3", {}, "Plans that were compared"),
    h("p", { class: "hint" }, rows.length > 1 ? data.opens.includes(null) ? "Choose one to see its steps in place of the plan. Of those without a button this page has only the figures." : "Choose one to see its steps in place of the plan." : "There was no other."),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "Steps", "Time", "Worst device receives", "Largest layout", "Why it lost"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: row.opens === shown ? "shown" : null },
        h("td", {}, row.opens === null ? null : h("input", { type: "radio", name: "plan", checked: row.opens === shown, "aria-label": `Show ${row.ops.join(", ")}`, onchange: () => open(row.opens) })),
        h("td", {}, row.ops.join(", ") || "nothing"), inCell(timeText(row.time_ns), row.time_ns, slowest),
        inCell(bytesText(row.recv_bytes_max), row.recv_bytes_max, most), h("td", {}, bytesText(row.intermediate_bytes_max)), h("td", { class: "why" }, row.why)))))));
  let shown = 0;
  const open = (which) => {
    const focus = document.activeElement && document.activeElement.name === "plan", top = window.scrollY;
    shown = which;
    const row = rows.find((each) => each.opens === which);
    banner.textContent = which === 0 ? "" : `This plan lost: ${row.why}. It takes ${timeText(row.time_ns)} where the chosen one takes ${timeText(chosen.totals.time_ns)}, and its worst device receives ${bytesText(row.recv_bytes_max)} where that of the chosen one receives ${bytesText(chosen.totals.recv_bytes_max)}.`;
    banner.hidden = which === 0;
    place.replaceChildren(planView(views[which], { alternatives: table() }));
    window.scrollTo(0, top);
    if (focus) place.querySelector("input[type=radio]:checked").focus();
  };
  open(0);
  return h("div", {}, banner, place);
}
