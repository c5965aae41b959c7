// The steps in a row, and a slider below them: 0 is the source, 1 is after the first step.
class Timeline {
  constructor(view, on) {
    this.view = view;
    this.on = on;
    const n = view.steps.length;
    this.nodes = [];
    this.boxes = view.steps.map((step, i) => h("button", { type: "button", class: "box", onclick: () => this.run(i, i + 1) },
      h("b", {}, step.op),
      h("span", {}, step.axes.length ? `over ${step.axes.join(", ")}` : step.from_mesh ? "across meshes" : "in place"),
      h("span", { class: "figures" }, step.recv_bytes_max ? `${bytesText(step.recv_bytes_max)} received, ${timeText(step.time_ns)}` : "nothing travels")));
    const track = h("div", { class: "track-steps", style: { "--steps": n } }, this.boxes);
    this.slider = h("input", { type: "range", min: "0", max: String(n), step: "0.05", value: "0", "aria-label": "Where the plan is", oninput: () => this.set(Number(this.slider.value)) });
    this.play = h("button", { type: "button", class: "play", onclick: () => (this.timer ? this.stop() : this.run(this.t >= n ? 0 : this.t, n)) }, "Play");
    this.where = h("output", { class: "where" });
    this.element = h("section", { class: "timeline", "aria-label": "Steps" }, track, h("div", { class: "drive" }, this.play, this.slider), this.where);
    this.t = 0;
  }

  get current() {
    return Math.min(Math.floor(this.t), this.view.steps.length - 1);
  }
  get phase() {
    return this.t - this.current;
  }
  // The number of steps that are done.
  get done() {
    return this.phase >= 1 ? this.current + 1 : Math.max(0, this.current);
  }

  set(t) {
    this.t = t;
    this.slider.value = String(t);
    const n = this.view.steps.length, { done, phase, current } = this;
    this.boxes.forEach((box, i) => box.classList.toggle("current", i === current && (phase < 1 || n === i + 1)));
    this.boxes.forEach((box, i) => box.classList.toggle("past", i < done));
    const inside = phase > 0 && phase < 1;
    this.where.textContent = inside ? `Step ${current + 1} of ${n} is running: ${this.view.steps[current].op}` : done === 0 ? "Before the first step" : done === n ? "After the last step" : `After step ${done} of ${n}`;
    this.slider.setAttribute("aria-valuetext", this.where.textContent);
    this.on.change();
  }

  run(from, to) {
    this.stop();
    const start = performance.now(), each = 1600;
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still) return this.set(to);
    this.play.textContent = "Stop";
    const tick = () => {
      const t = Math.min(to, from + (performance.now() - start) / each);
      this.set(t);
      if (t >= to) return this.stop();
      this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
  }
  stop() {
    if (this.timer) cancelAnimationFrame(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }
}
