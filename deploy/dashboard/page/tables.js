// Decisions, offers, instances and events.

import { get } from "/dashboard/api.js";
import { badge, bar, el, fill, table } from "/dashboard/dom.js";
import { clock, duration, market, percent, usd, value, words } from "/dashboard/format.js";

const empty = (text) => el("p", { class: "empty" }, text);
const jobLink = (id, task, onJob, key) => el("span", {},
  el("button", { type: "button", class: "name", "data-key": `${key} ${id}`, onclick: () => onJob(id) }, id),
  task && task !== "main" ? ` ${task}` : null);

export const values = (given) => {
  const found = Object.entries(given);
  return found.length ? found.map(([name, number]) => `${words(name)} ${value(number)}`).join(" · ") : "–";
};

const opened = new Map(); // decision id → element with its candidates

export function decisions(facts, onJob) {
  if (!facts.decisions.length) return empty("No decision yet: the first one comes with the first job.");
  const columns = [
    ["Time", (one) => clock(one.time_s, facts.time_s)],
    ["Job", (one) => jobLink(one.job_id, one.task, onJob, `decided ${one.decision_id}`)],
    ["Goes to", (one) => [el("strong", {}, one.chosen ?? "none for now"), one.mode === "act" ? null : [" ", badge("warn", one.mode)]]],
    ["Its values", (one) => [el("span", {}, values(one.values)),
      one.next_best && el("small", { class: "quiet wide" }, `next best ${one.next_best}: ${values(one.next_values)}`)]],
    ["Policy", (one) => [one.policy, one.shadow_policy && el("small", { class: "quiet" }, `${one.shadow_policy} would: ${one.shadow_choice ?? "none"}`)], "wide short"],
    ["Why", (one) => (one.reason ? el("span", { class: "late" }, one.reason) : el("span", { class: "quiet" }, "the best shown"))],
    ["Candidates", (one) => candidatesButton(one)],
  ];
  return table("Latest decisions", columns, facts.decisions, (one) => ({ "data-decision": one.decision_id }));
}

function candidatesButton(one) {
  const place = opened.get(one.decision_id) ?? el("div", { class: "candidates", hidden: true });
  const open = !place.hidden;
  const button = el("button", { type: "button", "aria-expanded": String(open), "data-key": `candidates ${one.decision_id}` }, open ? "Hide" : "Show");
  button.addEventListener("click", async () => {
    place.hidden = !place.hidden;
    button.textContent = place.hidden ? "Show" : "Hide";
    button.setAttribute("aria-expanded", String(!place.hidden));
    if (place.hidden) {
      opened.delete(one.decision_id);
      return;
    }
    opened.set(one.decision_id, place);
    try {
      fill(place, candidates(await get(`/v1/decisions/${one.decision_id}`)));
    } catch (error) {
      fill(place, el("p", { class: "error" }, error.message));
    }
  });
  return [button, place];
}

export function candidates(decision) {
  const names = [...new Set(decision.candidates.flatMap((one) => Object.keys(one.values)))];
  const columns = [
    ["Candidate", (one) => [one.offer_id ?? "none for now", one.offer_id === decision.chosen ? [" ", badge("succeeded", "chosen")] : null]],
    ...names.map((name) => [words(name), (one) => (name in one.values ? value(one.values[name]) : "–"), "number"]),
    ["Price/h", (one) => usd(one.price_usd_hour), "number"],
    ["Hours", (one) => (one.finish_s === null ? "–" : (one.finish_s / 3600).toFixed(2)), "number"],
    ["Risk", (one) => (one.risk === null ? "–" : percent(one.risk)), "number"],
    ["Expected", (one) => usd(one.expected_usd), "number"],
    ["Total", (one) => (one.total === null ? "–" : value(one.total)), "number"],
    ["Why not, or why", (one) => one.reason || (one.available ? "" : "not available")],
  ];
  return table(`Candidates of decision ${decision.decision_id}`, columns, decision.candidates,
    (one) => ({ class: one.available ? "" : "out" }));
}

export function offers(facts) {
  if (!facts.scheduler) return empty("No scheduler runs in this process: what can be rented is not known here.");
  if (!facts.offers.length) return empty("No provider has answered yet.");
  const columns = [
    ["Offer", (one) => [el("strong", {}, one.offer_id), el("small", { class: "quiet" }, [one.provider, one.region, one.zone].filter(Boolean).join(" / "))]],
    ["Market", (one) => badge(one.market, market(one.market))],
    ["Type", (one) => [one.instance_type, el("small", { class: "quiet" }, `${one.vcpus} vCPU, ${one.memory_gib} GiB${one.gpu ? `, ${one.gpus} ${one.gpu}` : ""}`)], "wide"],
    ["Price/h", (one) => usd(one.price_usd_hour), "number"],
    ["Against on demand", (one) => against(one), "number"],
    ["Available", (one) => (one.available ? badge("succeeded", "yes") : [badge("failed", "no"), el("small", { class: "quiet" }, one.reason)])],
    ["Used", (one) => [bar(one.quota ? one.used / one.quota : 0, `${one.used} of ${one.quota} used`), el("span", { class: "of" }, `${one.used} of ${one.quota}`)]],
    ["Up, latest day", (one) => percent(one.up_ratio), "number wide"],
  ];
  const more = facts.offers_known - facts.offers.length;
  return [table("Clusters and offers", columns, facts.offers, (one) => ({ "data-offer": one.offer_id })), more > 0 && empty(`${more} more offers are not shown.`)];
}

function against(one) {
  if (!one.on_demand_usd_hour) return "–";
  const share = one.price_usd_hour / one.on_demand_usd_hour - 1;
  return Math.abs(share) < 0.005 ? "same" : `${share < 0 ? "−" : "+"}${Math.round(Math.abs(share) * 100)} %`;
}

export function instances(facts, onJob) {
  if (!facts.instances.length) return empty("No instance runs: nothing costs money now.");
  const prices = new Map(facts.offers.map((one) => [one.offer_id, one.price_usd_hour]));
  const columns = [
    ["Instance", (one) => [el("code", {}, one.instance_id), one.provider_id && el("small", { class: "quiet wide" }, one.provider_id)]],
    ["State", (one) => [badge(one.state, one.state), one.rebalance && el("small", { class: "late" }, "leave: risk is high"),
      one.notice_s !== null && el("small", { class: "late" }, `ends ${one.notice_s >= facts.time_s ? `in ${duration(one.notice_s - facts.time_s)}` : `since ${clock(one.notice_s, facts.time_s)}`}`)]],
    ["Offer", (one) => one.offer_id],
    ["Market", (one) => badge(one.market, market(one.market))],
    ["Job", (one) => jobLink(one.job_id, one.task, onJob, `instance ${one.instance_id}`)],
    ["Price/h", (one) => usd(prices.get(one.offer_id) ?? one.price_usd_hour), "number"],
    ["For", (one) => duration(facts.time_s - (one.launched_s ?? one.requested_s)), "number"],
    ["Address", (one) => one.address || "–", "wide"],
  ];
  const more = facts.instances_live - facts.instances.length;
  return [table("Instances", columns, facts.instances, (one) => ({ "data-instance": one.instance_id })), more > 0 && empty(`${more} more instances run: spotweave instances lists all.`)];
}

const plain = (name, given) => {
  if (given === null || given === "" || given === false) return null;
  if (typeof given === "number" && name.endsWith("_s") && given > 1e8) return `${words(name.slice(0, -2))} ${clock(given)}`;
  if (Array.isArray(given)) return given.length ? `${words(name)} ${given.length > 3 ? given.length : given.join(", ")}` : null;
  return `${words(name)} ${typeof given === "object" ? JSON.stringify(given) : given === true ? "yes" : given}`;
};

export const particulars = (data) => Object.entries(data).map(([name, given]) => plain(name, given)).filter(Boolean).join(" · ");

const tone = (kind) => (/noticed|interrupt|lost|failed|refused|vanished|caught|orphan|stopped/.test(kind) ? "late" : "");

export function events(list, now, label, onJob) {
  if (!list.length) return empty("Nothing has happened yet.");
  const columns = [
    ["Time", (one) => clock(one.time_s, now)],
    ["What", (one) => el("span", { class: tone(one.kind) }, one.kind)],
    ...(onJob ? [["Job", (one) => (one.job_id ? jobLink(one.job_id, one.task, onJob, `event ${one.sequence}`) : "–")]] : []),
    ["Particulars", (one) => particulars(one.data) || one.instance_id || ""],
  ];
  return table(label, columns, list, (one) => ({ "data-event": one.sequence }));
}
