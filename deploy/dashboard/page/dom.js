// Elements. Text from users only ever becomes text: nothing here parses HTML.

// el("td", { class: "x", onclick: f }, "text", child): attributes that are null or false are left out.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, given] of Object.entries(attributes)) {
    if (given === null || given === undefined || given === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), given);
    else if (key === "at") for (const [side, share] of Object.entries(given)) made.style[side] = `${share}%`;
    else made.setAttribute(key, given === true ? "" : given);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// New content for a container. What had the keyboard's focus keeps it, and what people opened or scrolled stays
// so (elements are known by data-key).
export function fill(container, ...children) {
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...container.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  const opened = new Map([...container.querySelectorAll("details")].map((one) => [one.dataset.key, one.open]));
  container.replaceChildren(...children.flat(2).filter(Boolean));
  for (const one of container.querySelectorAll("details")) one.open = opened.get(one.dataset.key) ?? one.open;
  [...container.querySelectorAll(".scroll")].forEach((one, k) => {
    if (scrolled[k]) [one.scrollLeft, one.scrollTop] = scrolled[k];
  });
  if (focused !== undefined) {
    container.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}

// Fills a container only when the facts behind it have changed.
const shown = new Map();
export function fillIfNew(container, facts, make) {
  const text = JSON.stringify(facts);
  if (shown.get(container) === text) return;
  shown.set(container, text);
  fill(container, make());
}

// columns: [title, cell(row), class]; rows that are long scroll inside their own region.
export function table(label, columns, rows, rowOptions = () => ({})) {
  const head = el("tr", {}, columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title)));
  const body = rows.map((row) => el("tr", rowOptions(row),
    columns.map(([title, cell, kind]) => el("td", { class: kind, "data-title": title }, cell(row)))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": `table ${label}` },
    el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

export const badge = (kind, text) => el("span", { class: `badge ${kind}` }, text);

export function bar(share, label) {
  return el("span", { class: "bar", role: "img", "aria-label": label, title: label },
    el("span", { class: "filled", at: { width: Math.max(0, Math.min(100, share * 100)) } }));
}
