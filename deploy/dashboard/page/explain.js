// One job: where it is and why. The address of the page names it, so that it can be passed on.

import { get } from "/dashboard/api.js";
import { badge, el, fillIfNew } from "/dashboard/dom.js";
import { clock, duration, percent, usd } from "/dashboard/format.js";
import { log } from "/dashboard/log.js";
import { candidates, events, particulars, values } from "/dashboard/tables.js";

const dialog = document.getElementById("explain");
const title = document.getElementById("explain-title");
const body = document.getElementById("explain-body");
const sides = { why: body, log: document.getElementById("explain-log") };
let shown = null;
let job = null; // that is shown, once it is known
let side = "why";

for (const name of Object.keys(sides)) document.getElementById(`show-${name}`).addEventListener("click", () => turn(name));

function turn(to) {
  side = to;
  for (const [name, part] of Object.entries(sides)) {
    part.hidden = name !== to;
    document.getElementById(`show-${name}`).setAttribute("aria-pressed", String(name === to));
  }
  if (to === "log" && job !== null) log(job);
}

document.getElementById("explain-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  shown = null;
  history.replaceState(null, "", location.pathname);
});

// now: the service's clock.
export function explain(jobId, now) {
  shown = jobId;
  job = null;
  turn("why");
  history.replaceState(null, "", `#job=${encodeURIComponent(jobId)}`);
  title.textContent = jobId;
  fillIfNew(body, null, () => el("p", { class: "quiet" }, "Asking…"));
  if (!dialog.open) dialog.showModal();
  refresh(now);
}

export function explainNamed(now) {
  const [, name] = /^#job=(.+)$/.exec(location.hash) ?? [];
  if (name && shown === null) explain(decodeURIComponent(name), now);
}

export const hide = () => dialog.open && dialog.close();

// Asks again while the dialog is open.
export async function refresh(now) {
  if (shown === null) return;
  const asked = shown;
  try {
    const facts = await get(`/v1/jobs/${encodeURIComponent(asked)}/explain`);
    if (asked !== shown) return;
    job = facts.job;
    fillIfNew(body, facts, () => content(facts, now));
    if (side === "log") await log(job);
  } catch (error) {
    if (asked === shown) fillIfNew(body, error.message, () => el("p", { class: "error" }, error.message));
  }
}

function content({ job, decisions, events: happened }, now) {
  const work = job.spec.work;
  const within = work.deadline_s ?? null;
  const lines = [
    ["State", [badge(job.state, job.state), job.reason ? ` ${job.reason}` : null]],
    ["What", `${job.name}, ${job.kind}, submitted by ${job.submitter} at ${clock(job.submitted_s, now)}`],
    within !== null && ["Deadline", `${clock(job.submitted_s + within, now)} (${duration(within)} after its submission)`],
    work.batch_deadline_s && ["Batches", `every ${duration(work.period_s)}, each within ${duration(work.batch_deadline_s)}`],
    job.ended_s !== null && ["Ended", `${clock(job.ended_s, now)}, after ${duration(job.ended_s - job.submitted_s)}`],
    ["Money", `${usd(job.cost.usd)}; on demand ${usd(job.cost.on_demand_usd)}`],
    job.user_failures > 0 && ["Own failures", `${job.user_failures} of at most ${job.spec.max_user_failures}`],
    ["Tasks", el("ul", { class: "plain" }, job.tasks.map((task) => el("li", {},
      `${task.task}: ${task.phase ?? "waits for a place"}, ${percent(task.progress)} done (${percent(task.saved)} saved), attempt ${task.attempt}`,
      task.message ? ` – ${task.message}` : null,
      Object.keys(task.details).length ? el("small", { class: "quiet" }, particulars(task.details)) : null)))],
  ].filter(Boolean);
  return [
    el("dl", {}, lines.flatMap(([name, told]) => [el("dt", {}, name), el("dd", {}, told)])),
    el("h3", {}, "Why it is where it is"),
    decisions.length
      ? decisions.map((one, k) => decision(one, now, k === 0))
      : el("p", { class: "empty" }, "No decision about it is kept."),
    el("h3", {}, "What happened, the latest first"),
    events([...happened].reverse(), now, "Events of the job"),
  ];
}

function decision(one, now, open) {
  const chosen = one.candidates.find((item) => item.offer_id === one.chosen);
  return el("details", { open, "data-key": `decision ${one.decision_id}` },
    el("summary", {}, `${clock(one.time_s, now)} ${one.task === "main" ? "" : `${one.task} `}→ `, el("strong", {}, one.chosen ?? "none for now"),
      ` by ${one.policy}${one.mode === "act" ? "" : ` (${one.mode})`}`,
      chosen?.reason ? el("span", { class: "late" }, ` – ${chosen.reason}`) : null,
      el("small", { class: "quiet" }, chosen ? values(chosen.values) : "")),
    candidates(one));
}
