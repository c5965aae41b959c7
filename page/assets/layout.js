// One layout: the tensor, the devices, and what one of them holds.
function layoutPage(data) {
  const layout = new Layout(data.layouts[0]);
  const ids = [];
  for (let p = 0; p < data.listed; ++p) ids.push(layout.device(p));
  ids.sort((a, b) => a - b);
  let pinned = data.device, hovered = null, outlined = [];
  const on = {
    hover: (id) => ((hovered = id), (outlined = []), refresh()),
    pin: (id) => ((pinned = id), refresh()),
    cell: (_, row, col) => {
      const holders = layout.holders(row, col);
      hovered = holders.length ? holders[0] : null;
      outlined = holders.slice(0, 512);
      refresh();
    },
    leave: () => ((hovered = null), (outlined = []), refresh()),
  };
  const panel = new TensorPanel(layout, "Who holds what", on);
  const grid = ids.length ? new DeviceGrid(ids, layout, 0, on, 0) : null;
  const number = h("input", { type: "number", min: "0", step: "1", "aria-label": "Device", placeholder: "–", oninput: () => on.pin(number.value === "" ? null : Number(number.value)) });
  const coordinates = h("span", { class: "coordinates" });
  const story = h("div", { class: "story" });
  const details = h("section", { class: "details", "aria-label": "One device" }, h("h3", {}, h("label", {}, "Device ", number), " ", coordinates), story);
  const refresh = () => {
    const id = hovered !== null ? hovered : pinned;
    panel.point(id);
    if (grid) {
      grid.outlined = outlined;
      grid.point(id, [], 0);
    }
    if (document.activeElement !== number) number.value = id === null ? "" : id;
    details.dataset.device = id === null ? "" : id;
    coordinates.textContent = id === null ? "" : layout.coordinates(id);
    story.replaceChildren(id === null
      ? h("p", { class: "hint" }, "Point at a device or at a block of the tensor, or type its number. A click or tap keeps it; Escape lets go.")
      : h("div", { class: "holds" }, h("span", {}, "holds "), h("b", {}, layout.held(id)),
          outlined.length > 1 ? h("p", { class: "peers" }, `The block that is pointed at is on ${count(outlined.length, "device")}: ${rangesText(outlined, 12)}.`) : null));
  };
  const element = h("div", { class: "plan" },
    h("header", { class: "facts-of-plan" }, h("p", { class: "tensor-line" }, h("code", {}, `[${layout.shape.join(", ")}]`), ` on ${count(layout.mesh.size, "device")}`)),
    h("div", { class: "panels" }, panel.element,
      h("section", { class: "grid-of-devices", "aria-label": "Devices" }, details, h("h3", {}, "Devices"),
        h("p", { class: "key" }, "Devices of one colour hold the same part of what is drawn."),
        grid ? grid.element : h("p", { class: "hint" }, "There are too many devices to list here."),
        data.listed < layout.mesh.size ? h("p", { class: "hint" }, `The first ${data.listed.toLocaleString("en")} of ${layout.mesh.size.toLocaleString("en")} devices are listed.`) : null)));
  refresh();
  return element;
}
