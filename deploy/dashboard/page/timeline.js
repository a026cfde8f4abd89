// Which stretch of time is shown, and where its ticks are.

import { clock } from "/dashboard/format.js";

const STEPS = [5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const LEAST_S = 120;

// window: seconds before now; 0: from the first submission of what is shown; -1: of what still lives.
export function range(jobs, now, window) {
  const live = jobs.filter((job) => job.ended_s === null);
  const shown = window === -1 && live.length ? live : jobs;
  const first = Math.min(...shown.map((job) => job.submitted_s));
  const asked = window > 0 ? window : Math.max(LEAST_S, (now - first) * (window === -1 && live.length < jobs.length ? 1.25 : 1.02));
  const begin = now - asked;
  // What is to come is shown as far ahead as most of what is behind.
  const notices = live.flatMap((job) => job.lanes).flatMap((lane) => lane.spans).filter((span) => span.ended_s === null).map((span) => span.notice_s);
  const ahead = [...live.map((job) => job.deadline_s), ...notices].filter((at) => at !== null && at > now && at < now + asked * 0.8);
  const end = Math.max(now, ...ahead) + asked * 0.04;
  return {
    begin, end, now,
    x: (at) => Math.max(-1, Math.min(101, (100 * (at - begin)) / (end - begin))),
    has: (at) => at >= begin && at <= end,
  };
}

// On round local times, at most about eight; every other one is left out on narrow screens.
export function ticks(scale) {
  const span = scale.end - scale.begin;
  const step = STEPS.find((one) => span / one <= 8) ?? STEPS.at(-1);
  const offset = new Date(scale.now * 1000).getTimezoneOffset() * 60;
  const made = [];
  const first = Math.ceil((scale.begin - offset) / step) * step + offset;
  for (let at = first, k = 0; at < scale.end; at += step, k += 1) {
    const text = step >= 86400 ? clock(at).slice(0, 10) : clock(at, at, step < 60);
    if (scale.x(at) < 96) made.push({ at, text, kind: k % 2 ? "odd" : "even" });
  }
  return made;
}
