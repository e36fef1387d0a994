// The workers of the bus: a column for each state, and why a worker does not go on.
import { Command } from "./parts.js";
import { now } from "./store.js";
import { duration, mark, number, Table } from "./table.js";
import { word } from "./text.js";
import { html } from "./view.js";

const STATES = { ASSIGNED: "Assigned", WORKING: "Working", CONFLICTED: "Conflicted", IN_REVIEW: "In review", APPROVED: "Approved", COMPLETED: "Completed", FAILED: "Failed" };
const CARDS_MAX = 50;
const SLOW_MS = 600_000; // a step that others have to do is late after this
const LEVEL = { ok: "good", WARN: "warn", blocked: "warn" };

// One sentence about what keeps it, and the command that helps; null: nothing does.
export function obstacle({ task, state, status, activity, age_ms: age, heartbeat_age_ms: beat, review }) {
  const show = `agentlip worker show ${word(task)}`;
  if (state === "FAILED") return ["It failed. Spawn it again, or see its messages.", `agentlip worker logs ${word(task)}`];
  if (["STALE", "DEAD"].includes(status)) return [beat === null ? "It never sent a heartbeat." : `Its last heartbeat is ${duration(beat / 1000)} old: its process ended or hangs.`, show];
  if (state === "CONFLICTED") return ["Its branch conflicts with the integration branch.", show];
  if (activity === "blocked" && status === "blocked") return ["It reported that it is blocked.", show];
  if (status === "WARN") return ["Its heartbeat is late.", show];
  if (state === "WORKING" && review === "rejected") return ["Its review asked for changes.", show];
  if (age < SLOW_MS) return null;
  if (state === "ASSIGNED") return ["No agent has started it.", show];
  if (state === "IN_REVIEW") return ["It waits for a review.", `agentlip worker approve ${word(task)}`];
  return state === "APPROVED" ? ["It waits to be merged.", `agentlip worker merge ${word(task)}`] : null;
}

export function Board({ data: { workers, claims }, place }) {
  const tasks = new Set(workers.map((each) => each.task));
  const others = claims.filter((each) => !tasks.has(each.claimed_by) && !tasks.has(each.task_id));
  if (!workers.length && !claims.length) return html`<p class="soft">No workers and no claims. <code>agentlip worker spawn TASK</code> makes a worker.</p>`;
  return html`<div class="board" role="group" aria-label="Workers by state">${Object.entries(STATES).map(([state, title]) => {
    const here = workers.filter((each) => each.state === state).reverse();
    return html`<section key=${state} aria-label=${`${title}: ${here.length}`}><h2>${title} <span class="soft">${number(here.length)}</span></h2>
      <ul>${here.slice(0, CARDS_MAX).map((each) => html`<${Worker} key=${each.task} worker=${each} claims=${claims.filter((claim) => [claim.claimed_by, claim.task_id].includes(each.task))} />`)}</ul>
      ${here.length > CARDS_MAX && html`<p class="soft">and ${number(here.length - CARDS_MAX)} older ones</p>`}</section>`;
  })}</div>
  ${others.length > 0 && html`<h2>Other claims</h2><${Table} label="Other claims" place=${place} rows=${others} keyOf=${(row) => row.task_id} empty=""
    columns=${[["Claim", (row) => row.task_id], ["By", (row) => row.claimed_by], ["Ends in", (row) => (row.lease_until_ms - now()) / 1000, duration], ["Fence", (row) => row.fence]]} />`}`;
}

function Worker({ worker, claims }) {
  const { task, state, status, description, heartbeat_age_ms: beat, activity, progress, branch, age_ms: age } = worker;
  const kept = obstacle(worker);
  return html`<li class=${kept ? "stuck" : ""}><strong>${task}</strong>
    ${description && html`<p class="soft">${description.slice(0, 200)}</p>`}
    <p>${mark(status === "ok" ? `${duration(age / 1000)} in this state` : status, LEVEL[status] || "bad")}</p>
    ${kept && html`<p class="bad">${kept[0]}</p><${Command} label="What helps" text=${kept[1]} />`}
    <dl>${beat !== null && state !== "COMPLETED" && html`<dt>Heartbeat</dt><dd>${duration(beat / 1000)} ago${activity ? `, ${activity}` : ""}</dd>`}
      ${progress !== null && html`<dt>Progress</dt><dd>${Math.round(progress * 100)} %</dd>`}
      ${branch && html`<dt>Branch</dt><dd>${branch}</dd>`}
      ${claims.length > 0 && html`<dt>Claims</dt><dd>${claims.map((each) => each.task_id).join(", ")}</dd>`}</dl></li>`;
}
