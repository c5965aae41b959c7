// What one device holds, sends and receives in every step, as text.

// "24 KiB from 1, 2, 3": devices with the same number of bytes form a group; a few groups, then how many more.
function peersText(peers, word) {
  const byBytes = new Map();
  for (const [device, bytes] of peers) {
    if (!byBytes.has(bytes)) byBytes.set(bytes, []);
    byBytes.get(bytes).push(device);
  }
  const groups = [...byBytes].sort((a, b) => b[0] - a[0]);
  const shown = groups.slice(0, 4).map(([bytes, devices]) => `${bytesText(bytes)} ${word} ${devices.length > 1 ? "each of " : ""}${rangesText(devices, 8)}`);
  const rest = groups.slice(4).reduce((sum, [, devices]) => sum + devices.length, 0);
  return shown.join("; ") + (rest ? `; and ${rest} more` : "");
}

class Details {
  constructor(view, on) {
    this.view = view;
    this.number = h("input", { type: "number", min: "0", step: "1", "aria-label": "Device", placeholder: "–",
      oninput: () => on.pin(this.number.value === "" ? null : Number(this.number.value)) });
    this.coordinates = h("span", { class: "coordinates" });
    this.body = h("div", { class: "story", "aria-live": "polite" });
    this.element = h("section", { class: "details", "aria-label": "One device" },
      h("h3", {}, h("label", {}, "Device ", this.number), " ", this.coordinates), this.body);
    this.shown = undefined;
  }

  show(device, current) {
    if (document.activeElement !== this.number) this.number.value = device === null ? "" : device;
    this.element.dataset.device = device === null ? "" : device;
    if (device === null) {
      this.coordinates.textContent = "";
      this.body.replaceChildren(h("p", { class: "hint" }, "Point at a device or at a block of the tensor, or type its number: what it holds, sends and receives appears here. A click or tap keeps it; Escape lets go."));
      return;
    }
    const { view } = this;
    this.coordinates.textContent = view.source.coordinates(device);
    if (view.source !== view.target && view.source.position(device) < 0) this.coordinates.textContent = view.target.coordinates(device);
    if (view.source.position(device) < 0 && view.target.position(device) < 0) {
      this.body.replaceChildren(h("p", { class: "hint" }, `There is no device ${device} in this plan.`));
      return;
    }
    const rows = [h("div", { class: "holds" }, h("span", {}, "holds "), h("b", {}, view.source.held(device)))];
    view.steps.forEach((step, i) => rows.push(this.stepRow(step, i, device, i === current)));
    if (!view.steps.length) rows.push(h("p", { class: "hint" }, "Nothing has to move: this is what the target asks for."));
    this.body.replaceChildren(...rows);
  }

  stepRow(step, i, device, current) {
    const load = this.view.load(step, device);
    const line = (kind, word, bytes, peers) => {
      const listed = peers && peers.length > 0;
      // Of an AllReduce, the messages are contributions to the whole fragment: who reduces what of it is in the bytes.
      const text = !listed ? "" : step.op === "AllReduce" ? `${word} ${rangesText(peers.map(([peer]) => peer), 8)}` : peersText(peers, word);
      return h("div", { class: `line ${kind}`, "data-bytes": bytes }, h("span", {}, kind === "in" ? "receives " : "sends "),
        h("b", {}, bytes === undefined ? "?" : bytes ? bytesText(bytes) : "nothing"), text && bytes ? h("span", { class: "peers" }, text) : null);
    };
    return h("div", { class: current ? "step current" : "step", "data-step": i },
      h("div", { class: "op" }, `${i + 1}. ${step.op}`, step.axes.length ? h("span", {}, ` over ${step.axes.join(", ")}`) : null),
      load ? line("out", "to", load.sent, this.view.peers(step, device, false)) : h("p", { class: "hint" }, "This page does not list what this device does."),
      load ? line("in", "from", load.received, this.view.peers(step, device, true)) : null,
      load && !step.peers && step.messages ? h("p", { class: "hint" }, `With whom is left out: the step has ${step.messages.toLocaleString("en")} messages.`) : null,
      h("div", { class: "holds" }, h("span", {}, "then holds "), h("b", {}, step.to.held(device)), load ? h("span", {}, ` ${bytesText(load.after)}`) : null));
  }
}
