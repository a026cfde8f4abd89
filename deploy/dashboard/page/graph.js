// The steps of a workflow and which of them wait for which: one column for each step of the longest chain.

const WIDTH = 150, HEIGHT = 26, GAP_X = 46, GAP_Y = 10, MOST = 20;

function made(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.append(text);
  return node;
}

// By step: how many steps the longest chain before it has.
function levels(lanes) {
  const after = new Map(lanes.map((lane) => [lane.task, lane.after]));
  const found = new Map();
  const level = (task) => {
    if (!found.has(task)) {
      const before = (after.get(task) ?? []).filter((other) => after.has(other)).map(level);
      found.set(task, before.length ? 1 + Math.max(...before) : 0);
    }
    return found.get(task);
  };
  lanes.forEach((lane) => level(lane.task));
  return found;
}

const short = (name) => (name.length > MOST ? `${name.slice(0, MOST - 1)}…` : name);

export function graph(lanes, name) {
  if (!lanes.some((lane) => lane.after.length)) return null;
  const level = levels(lanes);
  const rows = [];
  const at = new Map(lanes.map((lane) => {
    const column = level.get(lane.task);
    rows[column] = (rows[column] ?? -1) + 1;
    return [lane.task, { x: column * (WIDTH + GAP_X) + 1, y: rows[column] * (HEIGHT + GAP_Y) + 1 }];
  }));
  const width = rows.length * (WIDTH + GAP_X) - GAP_X + 2;
  const height = (Math.max(...rows) + 1) * (HEIGHT + GAP_Y) - GAP_Y + 2;
  const drawn = made("svg", { class: "graph", role: "img", viewBox: `0 0 ${width} ${height}`, width, height,
    "aria-label": `Steps of ${name}: ${lanes.map((lane) => told(lane)).join("; ")}` });
  for (const lane of lanes) {
    for (const before of lane.after.filter((other) => at.has(other))) {
      const [from, to] = [at.get(before), at.get(lane.task)];
      const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
      drawn.append(made("path", { d: `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}` }));
    }
  }
  for (const lane of lanes) {
    const { x, y } = at.get(lane.task);
    const box = made("g", { class: lane.phase ?? "waits" });
    box.append(made("title", {}, told(lane)), made("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 5 }),
      made("text", { x: x + 8, y: y + 17 }, short(lane.task)));
    drawn.append(box);
  }
  return drawn;
}

const told = (lane) => `${lane.task} (${lane.phase ?? "waits"})${lane.after.length ? ` after ${lane.after.join(", ")}` : ""}`;
