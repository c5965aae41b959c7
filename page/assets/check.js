// What `reshard check` found: for every plan its verdict, findings and derived figures.
function checkPage(data) {
  const { report } = data;
  const table = (heads, rows) => h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
  const range = (figure) => (typeof figure === "object" && figure !== null ? [figure.low, figure.high] : [figure, figure]);
  const bytes = (figure) => {
    const [low, high] = range(figure);
    return low === high ? bytesText(low) : `${bytesText(low)} to ${bytesText(high)}`;
  };
  const wrong = report.plans.filter((plan) => !plan.agrees).length;
  return h("div", { class: "plan" },
    h("header", { class: "facts-of-plan" }, h("dl", {},
      h("div", {}, h("dt", {}, "Plans"), h("dd", {}, report.plans.length.toLocaleString("en"))),
      h("div", {}, h("dt", {}, "Verdict"), h("dd", { class: wrong ? "bad" : "good" }, wrong ? `${wrong.toLocaleString("en")} wrong` : "all agree"), h("dd", { class: "note" }, "held against the layouts alone, without the planner")))),
    report.plans.slice(0, 500).map((plan, i) => h("section", { class: plan.agrees ? "verdict" : "verdict wrong" },
      h("h3", {}, plan.name || (report.plans.length > 1 ? `Plan ${i}` : "Plan"), h("span", { class: plan.agrees ? "badge good" : "badge bad" }, plan.error ? "cannot be checked" : plan.agrees ? "agrees" : count(plan.findings.length, "finding"))),
      plan.error ? h("p", {}, plan.error.message) : null,
      plan.findings && plan.findings.length ? table(["Where", "The plan says", "It is", "Why"], plan.findings.slice(0, 200).map((finding) => [h("code", {}, finding.where), finding.said || "", finding.is || "", finding.why || ""])) : null,
      plan.derived ? [
        table(["Step", "From", "To", "Received by a device", "Sent by a device"], plan.derived.steps.map((step) => [step.op, h("code", {}, step.from), h("code", {}, step.to), bytesText(step.recv_bytes_max), bytes(step.send_bytes_max)])),
        meter("Received by the worst device", plan.derived.totals.recv_bytes_max, plan.derived.bounds.recv_bytes_max, ratioText(plan.derived.totals.recv_bytes_max, plan.derived.bounds.recv_bytes_max))] : null,
      plan.unjudged && plan.unjudged.length ? h("details", {}, h("summary", {}, `${count(plan.unjudged.length, "figure")} left unchecked`), table(["Where", "Why"], plan.unjudged.slice(0, 200).map((item) => [h("code", {}, item.where), item.why]))) : null)),
    report.plans.length > 500 ? h("p", { class: "hint" }, "The first 500 plans are shown.") : null);
}
