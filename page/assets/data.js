// The data of the page, and what follows from it without arithmetic on bytes: who holds which block.
const DATA = JSON.parse(document.getElementById("data").textContent);

class Layout {
  constructor(data) {
    Object.assign(this, data);
    this.positions = this.mesh.ids && new Map(this.mesh.ids.map((id, position) => [id, position]));
    for (const dim of this.dims) {
      dim.edges = dim.edges || [0, dim.size];
      dim.offsets = dim.offsets || [];
      dim.blocksAt = new Map();
      dim.offsets.forEach((offset, i) => {
        if (i === dim.elided) return;
        if (!dim.blocksAt.has(offset)) dim.blocksAt.set(offset, []);
        dim.blocksAt.get(offset).push(i);
      });
    }
    // Without a dimension to draw, one block stands for the tensor.
    const whole = { edges: [0, 1], offsets: [0], digits: [], blocksAt: new Map([[0, [0]]]), size: 1 };
    this.colDim = this.draw.length ? this.dims[this.draw[this.draw.length - 1]] : whole;
    this.rowDim = this.draw.length === 2 ? this.dims[this.draw[0]] : whole;
  }

  // The position of a device id in the mesh, or -1.
  position(device) {
    if (this.positions) return this.positions.has(device) ? this.positions.get(device) : -1;
    const position = device - this.mesh.first;
    return position >= 0 && position < this.mesh.size ? position : -1;
  }
  device(position) {
    return this.mesh.ids ? this.mesh.ids[position] : this.mesh.first + position;
  }
  coordinates(device) {
    const position = this.position(device);
    if (position < 0) return "not in this mesh";
    return this.mesh.axes.map(([name, size, stride]) => `${name}=${Math.floor(position / stride) % size}`).join(" ");
  }
  offset(dim, position) {
    let offset = 0;
    for (const [size, stride] of dim.digits) offset += (Math.floor(position / stride) % size) * stride;
    return offset;
  }
  blocks(dim, position) {
    return position < 0 ? [] : dim.blocksAt.get(this.offset(dim, position)) || [];
  }
  // Which part of the tensor a device holds, as one number between 0 and 1, equal for devices that hold the same part.
  tone(position) {
    return (this.offset(this.rowDim, position) + this.offset(this.colDim, position)) / this.mesh.size;
  }
  cellTone(row, col) {
    return (this.rowDim.offsets[row] + this.colDim.offsets[col]) / this.mesh.size;
  }
  // "rows [0, 4), [8, 12) × cols [0, 16)" with at most a few intervals per dimension; null if the page does not know.
  held(device) {
    const position = this.position(device);
    if (position < 0) return "nothing: not in this mesh";
    if (this.shape.includes(0)) return "nothing";
    const parts = [];
    for (const dim of this.dims) {
      const blocks = this.blocks(dim, position);
      if (dim.slots) {
        parts.push(blocks.map((i) => `slots {${dim.slots[i]}}`).join(" ") || "no slots");
        continue;
      }
      const intervals = [];
      for (const i of blocks) {
        const last = intervals[intervals.length - 1];
        if (last && last[1] === dim.edges[i]) last[1] = dim.edges[i + 1];
        else intervals.push([dim.edges[i], dim.edges[i + 1]]);
      }
      if (dim.elided === undefined && intervals.length === 0) return "nothing";
      const shown = intervals.slice(0, 4).map(intervalText).join(" ");
      const more = intervals.length - 4;
      parts.push((shown || "part of " + dim.size) + (dim.elided !== undefined ? " …" : more > 0 ? ` … ${more} more` : ""));
    }
    return parts.length ? parts.join(" × ") : "the scalar";
  }
  // The ids of the devices that hold a cell; in a very large mesh, only those among the first devices.
  holders(row, col) {
    if (!this.holdersAt) {
      this.holdersAt = new Map();
      const listed = Math.min(this.mesh.size, this.mesh.ids ? this.mesh.ids.length : 8192);
      for (let p = 0; p < listed; ++p) {
        const own = this.offset(this.rowDim, p) + this.offset(this.colDim, p);
        if (!this.holdersAt.has(own)) this.holdersAt.set(own, []);
        this.holdersAt.get(own).push(this.device(p));
      }
    }
    return this.holdersAt.get(this.rowDim.offsets[row] + this.colDim.offsets[col]) || [];
  }
}

// [value, times, value, times...] as one value per device.
function expand(runs) {
  const out = [];
  for (let i = 0; i < runs.length; i += 2) for (let k = 0; k < runs[i + 1]; ++k) out.push(runs[i]);
  return out;
}

class PlanData {
  constructor(data, layouts) {
    Object.assign(this, data);
    this.source = layouts[data.source];
    this.target = layouts[data.target];
    this.ids = [];
    for (let i = 0; i < data.devices.length; i += 2) for (let k = 0; k < data.devices[i + 1]; ++k) this.ids.push(data.devices[i] + k);
    this.indexOf = new Map(this.ids.map((id, i) => [id, i]));
    this.steps = data.steps.map((step, i) => ({
      ...step,
      ...data.plan.steps[i],
      from: layouts[step.from],
      to: layouts[step.to],
      loadOf: step.loads && expand(step.loads.of),
      receivesOf: step.peers && expand(step.peers.receives),
      sendsOf: step.peers && expand(step.peers.sends),
    }));
  }
  // Where the plan is after `steps` steps.
  layoutAfter(steps) {
    if (steps <= 0 || !this.steps.length) return this.source;
    return this.steps[steps - 1].to;
  }
  load(step, device) {
    const i = this.indexOf.get(device);
    if (i === undefined || !step.loads) return null;
    const [before, after, received, sent] = step.loads.values[step.loadOf[i]];
    return { before, after, received, sent };
  }
  // [[device, bytes]...], or null where the page does not list them.
  peers(step, device, receives) {
    const i = this.indexOf.get(device);
    if (i === undefined || !step.peers) return null;
    const out = [];
    for (const [first, stride, times, bytes] of step.peers.values[(receives ? step.receivesOf : step.sendsOf)[i]]) {
      for (let k = 0; k < times; ++k) out.push([device + first + stride * k, bytes]);
    }
    return out;
  }
}
