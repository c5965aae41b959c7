// Figures as the command prints them.
function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let value = bytes, unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : Number(value.toPrecision(value >= 1000 ? 4 : 3))} ${units[unit]}`;
}

function timeText(nanoseconds) {
  const units = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
  const [unit, scale] = units.filter(([, at]) => nanoseconds >= at).pop() || units[0];
  return `${Number((nanoseconds / scale).toPrecision(3))} ${unit}`;
}

const count = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many || one + "s"}`;

// "0-3, 8, 10": at most `limit` ranges, then how many devices more.
function rangesText(ids, limit = 12) {
  const ranges = [];
  for (const id of [...ids].sort((a, b) => a - b)) {
    const last = ranges[ranges.length - 1];
    if (last && last[1] + 1 === id) last[1] = id;
    else ranges.push([id, id]);
  }
  const shown = ranges.slice(0, limit).map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`));
  const rest = ranges.slice(limit).reduce((sum, [a, b]) => sum + b - a + 1, 0);
  return shown.join(", ") + (rest > 0 ? ` and ${rest.toLocaleString("en")} more` : "");
}

function ratioText(value, bound) {
  if (bound === 0) return value === 0 ? "nothing has to move" : "nothing would have to move";
  if (value === bound) return "exactly the lower bound";
  return `${(value / bound).toFixed(3)}× the lower bound of ${bytesText(bound)}`;
}
const intervalText = ([begin, end]) => `[${begin}, ${end})`;
