// The log of a job: the last lines of what one of its tasks has printed, asked for again while it is looked at.

import { text } from "/dashboard/api.js";
import { el, fillIfNew } from "/dashboard/dom.js";

const LINES = 500;
const byId = (id) => document.getElementById(id);
const [task, attempt, note, lines] = ["log-task", "log-attempt", "log-note", "log-text"].map(byId);
let latest = null; // the job as it was when it was last asked about
let shown = ""; // which log the lines are of

task.addEventListener("change", () => log(latest));
attempt.addEventListener("change", () => log(latest));

const chosen = () => `${latest.job_id} ${task.value} ${attempt.value}`;

function offer(select, options) {
  const before = select.value;
  fillIfNew(select, options, () => options.map(([value, name]) => el("option", { value }, name)));
  select.value = options.some(([value]) => value === before) ? before : options[0][0];
}

export async function log(job) {
  latest = job;
  const names = [...(job.kind === "flower" ? ["server"] : []), ...job.tasks.map((one) => one.task)];
  offer(task, names.map((name) => [name, name]));
  const attempts = job.tasks.find((one) => one.task === task.value)?.attempt ?? 0;
  const numbers = Array.from({ length: attempts }, (_, k) => String(attempts - k));
  offer(attempt, [["", "latest"], ...numbers.map((number) => [number, number])]);
  const asked = chosen();
  if (shown !== asked) lines.textContent = "";
  const query = new URLSearchParams({ task: task.value, tail: LINES, ...(attempt.value && { attempt: attempt.value }) });
  let [body, told] = ["", ""];
  try {
    const answer = await text(`/v1/jobs/${encodeURIComponent(job.job_id)}/logs?${query}`);
    const number = answer.headers.get("X-Log-Attempt");
    body = answer.body;
    told = number === "0" ? "It has not been started yet." : `attempt ${number}, at most ${LINES} lines${answer.headers.get("X-Log-Ended") === "no" ? "" : ", ended"}`;
  } catch (error) {
    told = error.message;
  }
  if (asked !== chosen()) return;
  // Who reads the end goes on reading the end.
  const atEnd = shown !== asked || lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
  if (lines.textContent !== body) lines.textContent = body;
  if (atEnd) lines.scrollTop = lines.scrollHeight;
  note.textContent = told;
  shown = asked;
}
