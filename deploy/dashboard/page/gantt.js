// Jobs over time: a row for each job, a lane for each task, a bar for the instances of each attempt.

import { badge, bar, el } from "/dashboard/dom.js";
import { clock, duration, market, percent, plural, usd } from "/dashboard/format.js";
import { graph } from "/dashboard/graph.js";
import { range, ticks } from "/dashboard/timeline.js";

export const GROUPS = { running: ["running"], waiting: ["pending"], ended: ["succeeded", "failed", "cancelled"] };
const OPEN_UP_TO = 4; // lanes that are shown without being asked for
const choices = new Map(); // what people opened and closed, by job

export function gantt(facts, chosen, onJob, redraw) {
  const states = chosen.groups.flatMap((group) => GROUPS[group]);
  const jobs = facts.jobs.filter((job) => states.includes(job.state));
  if (!facts.jobs.length) return nothing();
  if (!jobs.length) return el("p", { class: "empty" }, "No job is in the chosen groups.");
  const scale = range(jobs, facts.time_s, chosen.window);
  scale.now = facts.time_s;
  const marks = ticks(scale);
  const rows = jobs.map((job) => row(job, scale, onJob, redraw));
  const total = Object.values(facts.counts).reduce((sum, count) => sum + count, 0);
  const more = total - facts.jobs.length;
  return el("div", { class: "gantt" }, axis(scale, marks), grid(scale, marks), el("ul", { class: "jobs" }, rows),
    more > 0 && el("p", { class: "quiet" }, `${plural(more, "more job")} not shown here: spotweave jobs lists all.`));
}

function nothing() {
  return el("div", { class: "empty" },
    el("p", {}, el("strong", {}, "No job yet.")),
    el("p", {}, "Submit the first one from the folder of the project:"),
    el("pre", {}, "spotweave submit examples/wordcount.yaml"),
    el("p", {}, "It appears here at once, with every place it was put, and why."));
}

function axis(scale, marks) {
  const made = marks.map(({ at, text, kind }) => el("span", { class: `tick ${kind}`, at: { left: scale.x(at) } }, text));
  return el("div", { class: "lane axis", "aria-hidden": "true" }, el("div", { class: "label" }), el("div", { class: "track" }, made));
}

function grid(scale, marks) {
  return el("div", { class: "grid", "aria-hidden": "true" }, marks.map(({ at }) => el("span", { at: { left: scale.x(at) } })));
}

function row(job, scale, onJob, redraw) {
  const many = job.lanes.length > 1;
  const open = many && (choices.get(job.job_id) ?? job.lanes.length <= OPEN_UP_TO);
  const toggle = many && el("button", {
    type: "button", class: "toggle", "aria-expanded": String(open), "data-key": `toggle ${job.job_id}`,
    "aria-label": `${open ? "Hide" : "Show"} the ${job.tasks} tasks of ${job.name}`,
    onclick: () => { choices.set(job.job_id, !open); redraw(); },
  }, open ? "▾" : "▸");
  const label = el("div", { class: "label" },
    el("div", { class: "first" }, toggle,
      el("button", { type: "button", class: "name", title: job.job_id, "data-key": `job ${job.job_id}`, onclick: () => onJob(job.job_id) }, job.name),
      badge(job.state, job.state === "pending" ? "waiting" : job.state)),
    el("div", { class: "second" }, bar(job.progress, `${percent(job.progress)} done`), el("span", {}, percent(job.progress)),
      (job.kind === "bag" || job.kind === "workflow") && el("span", {}, `${job.tasks_done} of ${plural(job.tasks, "task")} done`),
      job.state === "pending" && el("span", {}, doing(job.lanes[0], scale.now)),
      due(job, scale.now), el("span", { title: `on demand ${usd(job.cost.on_demand_usd)}` }, usd(job.cost.usd)),
      job.interruptions > 0 && el("span", { class: "hit" }, plural(job.interruptions, "interruption")),
      job.misses > 0 && el("span", { class: "late" }, `${plural(job.misses, "batch", "batches")} late`),
      (job.state === "failed" || job.state === "cancelled") && el("span", { class: "why", title: job.reason }, job.reason)));
  const left = job.tasks - job.lanes.length;
  return el("li", { class: "job", "data-job": job.job_id },
    el("div", { class: "lane" }, label, track(job, job.lanes, scale)),
    open && graph(job.lanes, job.name),
    open && job.lanes.map((lane) => el("div", { class: "lane task" }, laneLabel(lane, scale.now), track(job, [lane], scale, true))),
    open && left > 0 && el("p", { class: "quiet indent" }, `${plural(left, "more task")} not shown: the job's explanation has all.`));
}

function due(job, now) {
  if (job.deadline_s === null) return null;
  const left = job.deadline_s - (job.ended_s ?? now);
  const live = job.ended_s === null;
  const text = live ? (left >= 0 ? `due in ${duration(left)}` : `late by ${duration(-left)}`)
    : job.state !== "succeeded" ? null
      : left >= 0 ? `${duration(left)} before its deadline` : `missed its deadline by ${duration(-left)}`;
  return text && el("span", { class: left < 0 ? "late" : "", title: `deadline ${clock(job.deadline_s, now)}` }, text);
}

export function doing(lane, now) {
  if (lane.phase !== null) return lane.phase === "waiting" ? "waits for others" : lane.phase;
  if (lane.attempt === 0 && lane.message) return lane.message;
  if (lane.not_before_s !== null) return `tried again in ${duration(lane.not_before_s - now)}`;
  return lane.waiting_since_s === null ? "has no place" : `waits for a place, ${duration(now - lane.waiting_since_s)}`;
}

function laneLabel(lane, now) {
  return el("div", { class: "label" },
    el("div", { class: "first" }, el("span", { class: "task-name" }, lane.task), el("span", { class: "quiet" }, doing(lane, now))),
    el("div", { class: "second" }, bar(lane.progress, `${percent(lane.progress)} done`), el("span", {}, percent(lane.progress)),
      lane.attempt > 1 && el("span", {}, `attempt ${lane.attempt}`)));
}

function track(job, lanes, scale, detail = false) {
  const thin = lanes.length > 1;
  const made = [life(job, scale)];
  lanes.forEach((lane, k) => {
    const place = thin ? { top: (100 * k) / lanes.length, height: 100 / lanes.length } : {};
    for (const span of lane.spans) made.push(...bars(span, scale, place, thin));
  });
  for (const lane of lanes) for (const span of lane.spans) made.push(...signs(span, scale));
  made.push(el("span", { class: "now", at: { left: scale.x(scale.now) } }));
  if (job.deadline_s !== null) made.push(deadline(job, scale));
  const spoken = `${detail ? lanes[0].task : job.name}: ${lanes.flatMap((lane) => lane.spans).map((span) => told(span, scale.now)).join("; ") || "no instances yet"}`;
  return el("div", { class: "track", role: "img", "aria-label": spoken }, made);
}

function life(job, scale) {
  const [from, to] = [scale.x(job.submitted_s), scale.x(job.ended_s ?? scale.now)];
  return el("span", { class: `life ${to <= 0 ? "gone" : ""}`, at: { left: from, width: to - from } },
    to <= 0 && el("span", { class: "before" }, `◂ ended ${duration(scale.now - job.ended_s)} ago`));
}

function told(span, now) {
  const until = span.ended_s === null ? "until now" : `to ${clock(span.ended_s, now)}`;
  const many = span.instances > 1 ? `${span.instances} × ` : "";
  const taken = span.interruptions.length ? `, interrupted at ${span.interruptions.map((at) => clock(at, now)).join(" and ")}` : "";
  const never = span.ended_s !== null && span.launched_s === null ? ", never launched" : "";
  return `${many}${span.offer_id} (${market(span.market)}, ${usd(span.usd_hour)}/h) from ${clock(span.requested_s, now)} ${until}${taken}${never}`;
}

function bars(span, scale, place, thin) {
  const end = span.ended_s ?? scale.now;
  const ready = Math.min(span.ready_s ?? end, end);
  const [a, b, c] = [scale.x(span.requested_s), scale.x(ready), scale.x(end)];
  const title = told(span, scale.now);
  if (c <= 0) return [];
  const made = [];
  if (b > a) made.push(el("span", { class: `span boot ${span.market}`, title, at: { left: a, width: b - a, ...place } }));
  if (c > b) {
    const kind = `span ${span.market} ${span.ended_s === null ? "open" : ""} ${thin ? "thin" : ""}`;
    const text = `${span.instances > 1 ? `${span.instances} × ` : ""}${span.offer_id}`;
    made.push(el("span", { class: kind, title, at: { left: b, width: c - b, ...place } }, thin ? null : el("span", { class: "text" }, text)));
  }
  return made;
}

function signs(span, scale) {
  const warned = span.notice_s !== null;
  const made = span.interruptions.filter((at) => scale.has(at)).map((at) => el("span", {
    class: "sign interrupted", at: { left: scale.x(at) },
    title: `interrupted by the provider at ${clock(at, scale.now)}${warned ? ", with notice" : ", without notice"}`,
  }, "✕"));
  if (warned && !span.interruptions.length && scale.has(span.notice_s)) {
    made.push(el("span", { class: "sign notice", at: { left: scale.x(span.notice_s) }, title: `its provider ends it at ${clock(span.notice_s, scale.now)}` }, "!"));
  }
  return made;
}

function deadline(job, scale) {
  const missed = job.deadline_s < (job.ended_s ?? scale.now);
  const title = `deadline ${clock(job.deadline_s, scale.now)}${missed ? ", missed" : ""}`;
  if (job.deadline_s > scale.end && job.ended_s !== null) return null;
  if (job.deadline_s > scale.end) return el("span", { class: "beyond", title }, el("span", { class: "when" }, `deadline ${clock(job.deadline_s, scale.now, false)} `), "▸");
  return el("span", { class: `deadline ${missed ? "missed" : ""}`, title, at: { left: scale.x(job.deadline_s) } });
}
