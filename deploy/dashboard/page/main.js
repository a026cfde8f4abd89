// Asks for the overview every two seconds and shows it; says so when it cannot.

import { Refused, dropToken, get, hasToken, keepToken } from "/dashboard/api.js";
import { el, fill, fillIfNew } from "/dashboard/dom.js";
import { explain, explainNamed, hide, refresh } from "/dashboard/explain.js";
import { duration, usd } from "/dashboard/format.js";
import { GROUPS, gantt } from "/dashboard/gantt.js";
import { decisions, events, instances, offers } from "/dashboard/tables.js";

const PERIOD_MS = 2000;
const LOST_AFTER_MS = 5000;
const byId = (id) => document.getElementById(id);

let facts = null; // the latest overview
let heardMs = null; // when it came, by performance.now()
let failure = ""; // why the latest request failed
let paused = false;
let timer = null;
let asking = 0; // of several requests that overlap only the latest counts
const chosen = { groups: Object.keys(GROUPS), window: -1 };

async function poll() {
  clearTimeout(timer);
  asking += 1;
  const mine = asking;
  try {
    const asked = await get("/v1/overview");
    if (mine !== asking) return;
    [facts, heardMs, failure] = [asked, performance.now(), ""];
    byId("token-form").hidden = true;
    byId("content").hidden = false;
    draw();
    explainNamed(facts.time_s);
    await refresh(facts.time_s);
  } catch (error) {
    if (mine !== asking) return;
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
      askForToken(error.message);
      return;
    }
    failure = error instanceof Refused ? error.message : "the service does not answer";
  }
  status();
  if (mine === asking && !paused && !document.hidden) timer = setTimeout(poll, PERIOD_MS);
}

function askForToken(line) {
  facts = null;
  heardMs = null;
  failure = "";
  hide();
  byId("content").hidden = true;
  byId("token-form").hidden = false;
  // Without a token the service's line is for programs; the form says the same for people.
  byId("token-error").textContent = hasToken() ? line : "";
  dropToken();
  byId("token").focus();
  status();
}

function draw() {
  const onJob = (id) => explain(id, facts.time_s);
  byId("deployment").textContent = `${facts.deployment} · policy ${facts.policy}${facts.federated_policy ? `, federated ${facts.federated_policy}` : ""}`;
  const mode = byId("mode");
  mode.hidden = facts.mode === null;
  mode.textContent = `mode: ${facts.mode}`;
  mode.className = `badge ${facts.mode === "act" ? "succeeded" : "warn"}`;
  fillIfNew(byId("summary"), [facts.cost, facts.counts, facts.instances_live], () => summary());
  drawGroups();
  fill(byId("gantt"), gantt(facts, chosen, onJob, draw));
  fillIfNew(byId("decisions"), facts.decisions, () => decisions(facts, onJob));
  fillIfNew(byId("offers"), facts.offers, () => offers(facts));
  fill(byId("instances"), instances(facts, onJob));
  fillIfNew(byId("events"), facts.events, () => events(facts.events, facts.time_s, "Events", onJob));
}

function summary() {
  const { cost, counts } = facts;
  const saved = cost.on_demand_usd - cost.usd;
  const share = cost.on_demand_usd > 0 ? `${Math.round((100 * saved) / cost.on_demand_usd)} % less` : null;
  const card = (name, text, quiet, id) => el("div", { class: "card" }, el("div", { class: "quiet" }, name), el("div", { class: "figure", id }, text), quiet && el("div", { class: "quiet" }, quiet));
  const ended = counts.succeeded + counts.failed + counts.cancelled;
  return [
    card("Money so far", usd(cost.usd), `${duration(cost.instance_seconds)} of instances`, "money"),
    card("The same on demand", usd(cost.on_demand_usd), null, "on-demand"),
    card("Saved", usd(saved), share, "saved"),
    card("Jobs running", counts.running, `${counts.pending} waiting`, "running"),
    card("Jobs ended", ended, `${counts.succeeded} succeeded, ${counts.failed} failed, ${counts.cancelled} cancelled`, "ended"),
    card("Instances", facts.instances_live, null, "live"),
  ];
}

function drawGroups() {
  const { counts } = facts;
  fillIfNew(byId("groups"), [counts, chosen.groups], () => Object.entries(GROUPS).map(([group, states]) => {
    const pressed = chosen.groups.includes(group);
    const count = states.reduce((sum, state) => sum + counts[state], 0);
    return el("button", {
      type: "button", "aria-pressed": String(pressed), "data-key": `group ${group}`,
      onclick: () => {
        chosen.groups = pressed ? chosen.groups.filter((one) => one !== group) : [...chosen.groups, group];
        draw();
      },
    }, `${group} ${count}`);
  }));
}

// What is wrong now, and how old what is shown is.
function status() {
  const ageMs = heardMs === null ? null : performance.now() - heardMs;
  const wrong = [];
  if (failure && (ageMs === null || ageMs > LOST_AFTER_MS)) {
    wrong.push(`Connection lost: ${failure}. ${ageMs === null ? "Nothing was heard yet" : "What is shown is no longer true"}; trying again every ${PERIOD_MS / 1000} s.`);
  }
  if (facts !== null && facts.scheduler) {
    const passed = facts.last_pass_s === null ? null : facts.time_s - facts.last_pass_s;
    if (passed === null) wrong.push("The scheduler's first pass has not ended yet.");
    else if (passed > facts.pass_within_s) {
      wrong.push(`The scheduler's last pass ended ${duration(passed)} ago, expected within ${duration(facts.pass_within_s)}: nothing is decided; see its log.`);
    }
  }
  fillIfNew(byId("alerts"), wrong, () => wrong.map((line) => el("p", { class: "alert bad" }, line)));
  document.body.classList.toggle("stale", Boolean(failure) && ageMs !== null && ageMs > LOST_AFTER_MS);
  byId("pulse").textContent = pulse(ageMs);
}

function pulse(ageMs) {
  if (facts === null) return byId("token-form").hidden ? "Connecting…" : "Waiting for a token";
  const heard = ageMs < 1500 ? "now" : `${duration(ageMs / 1000)} ago`;
  const pass = !facts.scheduler ? "no scheduler in this process"
    : facts.last_pass_s === null ? "no pass yet" : `last pass ${duration(facts.time_s - facts.last_pass_s + ageMs / 1000)} ago`;
  return `${paused ? "Paused" : failure ? "Not connected" : "Live"}, heard ${heard} · ${pass}`;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  byId("token").value = "";
  poll();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause updates";
  if (paused) clearTimeout(timer);
  else poll();
  status();
});
byId("window").addEventListener("change", (event) => {
  chosen.window = Number(event.target.value);
  if (facts !== null) draw();
});
document.addEventListener("visibilitychange", () => !document.hidden && !paused && byId("token-form").hidden && poll());
window.addEventListener("hashchange", () => facts !== null && explainNamed(facts.time_s));
setInterval(status, 1000);
poll();
