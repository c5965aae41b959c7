// Many tensors: a sortable table, in which each tensor opens its plan.
function batchPage(data) {
  const layouts = data.layouts.map((layout) => new Layout(layout));
  const rows = data.rows.map(([name, plan, error], index) => ({ index, name, plan, error, ...(plan === null ? {} : data.briefs[plan]) }));
  const ratio = (row) => (row.bound ? row.recv_bytes_max / row.bound : 1);
  const size = (row) => row.shape.reduce((a, b) => a * b, 1);
  const columns = [
    { name: "Tensor", key: (row) => row.name, text: (row) => row.name },
    { name: "Shape", key: size, text: (row) => `${row.dtype}[${row.shape.join(", ")}]` },
    { name: "Steps", key: (row) => row.ops.join(), text: (row) => row.ops.join(", ") || "nothing" },
    { name: "Worst device receives", key: (row) => row.recv_bytes_max, text: (row) => bytesText(row.recv_bytes_max), bar: true },
    { name: "Against the bound", key: ratio, text: (row) => (row.bound === 0 && row.recv_bytes_max === 0 ? "–" : `${ratio(row).toFixed(3)}×`) },
    { name: "Memory", key: (row) => row.peak_bytes, text: (row) => bytesText(row.peak_bytes), bar: true },
    { name: "Time", key: (row) => row.time_ns, text: (row) => timeText(row.time_ns), bar: true },
  ];
  const most = columns.map((column) => (column.bar ? rows.reduce((max, row) => (row.plan === null ? max : Math.max(max, column.key(row))), 1) : 0));
  let sorted = { column: null, down: false };
  const body = h("tbody", {});
  const heads = columns.map((column) => {
    const th = h("th", { scope: "col" }, h("button", { type: "button", onclick: () => sort(column) }, column.name));
    return th;
  });
  const rowOf = (row) => row.plan === null
    ? h("tr", { class: "failed" }, h("td", {}, row.name), h("td", { colspan: columns.length - 1 }, h("code", {}, row.error)))
    : h("tr", {}, columns.map((column, i) => h("td", {},
        i === 0 ? h("a", { href: `#${row.index}` }, row.name) : !column.bar ? column.text(row)
          : h("div", { class: "cellbar" }, h("i", { style: { width: `${(100 * column.key(row)) / most[i]}%` } }), h("span", {}, column.text(row))))));
  const fill = () => body.replaceChildren(...rows.map(rowOf));
  const sort = (column) => {
    sorted = { column, down: sorted.column === column ? !sorted.down : column.bar === true };
    const sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => {
      if ((a.plan === null) !== (b.plan === null)) return a.plan === null ? 1 : -1;  // without a plan: last
      if (a.plan === null) return a.index - b.index;
      const x = column.key(a), y = column.key(b);
      return sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) || a.index - b.index;
    });
    heads.forEach((th, i) => th.setAttribute("aria-sort", columns[i] !== column ? "none" : sorted.down ? "descending" : "ascending"));
    fill();
  };
  fill();
  const planned = rows.filter((row) => row.plan !== null);
  const sum = (key) => planned.reduce((total, row) => total + row[key], 0);
  const failed = data.rows.length - planned.length;
  const { schedule } = data;
  const fact = (name, value, note) => h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note));
  const bound = schedule ? schedule.bound : sum("bound"), received = schedule ? schedule.recv_bytes_max : sum("recv_bytes_max");
  const table = h("div", {},
    h("header", { class: "facts-of-plan" }, h("dl", {},
      fact("Tensors", data.total.toLocaleString("en"), `${count(data.briefs.length, "different plan")}${failed ? `, ${count(failed, "tensor")} without one` : ""}`),
      fact("Worst device receives", bytesText(received), `${schedule ? "" : "at most, of all tensors together; "}${ratioText(received, bound)}`),
      fact("Estimated time", timeText(schedule ? schedule.time_ns : sum("time_ns")), schedule ? `as one schedule of ${count(schedule.buckets, "bucket")}` : "one tensor after the other; --coalesce plans them as one schedule"))),
    schedule ? h("pre", { tabindex: "0" }, schedule.text) : null,
    data.rows.length < data.total ? h("p", { class: "hint" }, `The first ${data.rows.length.toLocaleString("en")} are listed.`) : null,
    h("div", { class: "scroll" }, h("table", { class: "tensors" }, h("thead", {}, h("tr", {}, heads)), body)));
  const place = h("div", {});
  const route = () => {
    const index = window.location.hash === "" ? -1 : Number(window.location.hash.slice(1));
    const row = rows.find((each) => each.index === index && each.plan !== null);
    if (!row) return place.replaceChildren(table);
    const full = data.plans[row.plan];
    place.replaceChildren(h("p", { class: "back" }, h("a", { href: "#" }, "All tensors")), h("h2", {}, row.name),
      full ? planView(new PlanData(full, layouts)) : h("p", { class: "hint" }, "This page has no room for the steps of this tensor: reshard plan --html writes a page of its own for it."));
    window.scrollTo(0, 0);
  };
  window.addEventListener("hashchange", route);
  route();
  return place;
}
