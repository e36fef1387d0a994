// What operators look at first. An open row has its actions, and the commands for what is left.
import { Actions, mayAdminister } from "./actions.js";
import { get, patch, post } from "./api.js";
import { Board } from "./board.js";
import { Charts, readRates } from "./charts.js";
import { JobRuns, jobActions } from "./jobs.js";
import * as network from "./network.js";
import { Command, Failure } from "./parts.js";
import * as people from "./people.js";
import { go, link } from "./router.js";
import { Blocked } from "./start.js";
import { bytes, duration, mark, number, since, Table, usePolled } from "./table.js";
import { showTime, word } from "./text.js";
import { html, useState } from "./view.js";

const GROUPS = ["Health", "Work", "Links", "Safety", "Settings"];
const SECONDS = 10;
const SENDS_MAX = 200;
const path = (text) => encodeURIComponent(text);
const commands = (...texts) => html`${texts.filter(Boolean).map((text) => html`<${Command} key=${text} label="On the machine of the appliance" text=${text} />`)}`;
const statusLevel = { pending: "good", inflight: "good", done: "good", dead: "bad", aborted: "warn" };

// A view reads its data, and has columns of its rows, facts of the whole, and a detail of a row.
const VIEWS = {
  findings: {
    title: "Findings", group: "Health", seconds: 60, read: () => get("/api/v1/doctor"), what: "doctor",
    facts: (data) => [["Verdict", mark(data.verdict, data.errors ? "bad" : data.warnings ? "warn" : "good")], ["Errors", data.errors],
      ["Warnings", data.warnings], ["Checks", data.checks.length], ["Version", data.version]],
    body: Findings,
  },
  rates: { title: "Rates", group: "Health", what: "rates", read: readRates, body: Charts },
  forecast: {
    title: "Forecast", group: "Health", what: "forecast", seconds: 60, read: () => get("/api/v1/forecast"),
    facts: (data) => [["Observed", duration(data.observed_days * 86_400)]],
    rows: (data) => [...data.disks.map((row) => ({ kind: "disk", name: row.of.join(", "), ...row, bytes: row.size_bytes - row.free_bytes })),
      ...data.stores.map((row) => ({ kind: "store", name: row.store, ...row })), ...data.reducible.map((row) => ({ kind: "can be reduced", name: row.what, ...row }))],
    key: (row) => `${row.kind} ${row.name}`, empty: "No disks.",
    columns: [["Name", (row) => row.name], ["Kind", (row) => row.kind], ["Size", (row) => row.bytes, bytes],
      ["Growth per day", (row) => row.growth_bytes_per_day, (value) => (value > 0 ? bytes(value) : "–")],
      ["Full in", (row) => row.days_to_full, (value) => (typeof value === "number" ? mark(duration(value * 86_400), value < 7 ? "bad" : value < 30 ? "warn" : "good") : "–")],
      ["What helps", (row) => row.command]],
    detail: { show: () => commands("agentlip forecast") },
  },
  workers: {
    title: "Workers", group: "Work", what: "bus", body: Board,
    read: async () => ({ ...(await get("/bus/v1/workers")), ...(await get("/bus/v1/claims")) }),
  },
  backups: {
    title: "Backups", group: "Safety", actions: () => [{ title: "Back up now", scope: "backup:create", says: "A backup of all stores is made now, and verified afterwards. Writes pause for some milliseconds.",
      command: "agentlip backup create", work: () => post("/api/v1/backups"), done: () => "A backup is being made." }], read: () => get("/api/v1/backups"), what: "backup role",
    rows: (data) => data.backups, key: (row) => row.name, empty: "No backups yet.",
    columns: [["Name", (row) => row.name], ["State of", (row) => row.cut_at, since],
      ["Verified", (row) => (row.problem ? "unreadable" : row.verification?.result || "not yet"), (value, row) => html`${mark(value, { good: "good", "not yet": "warn", inconclusive: "warn" }[value] || "bad")} ${row.verification && since(row.verification.checked_at)}`],
      ["Size", (row) => row.stored_bytes, bytes], ["Events", (row) => row.last_event_id], ["Made in", (row) => row.seconds, duration],
      ["Writes paused", (row) => row.pause_ms / 1000, duration], ["Reason", (row) => row.reason]],
    detail: { show: (row) => commands(`agentlip backup verify ${word(row.name)}`) },
  },
  queues: {
    title: "Queues", group: "Work", read: () => get("/v1/stats"), what: "courier",
    rows: (data) => data.streams.map(({ id, stats }) => ({ id, ...stats })), key: (row) => row.id, empty: "No streams yet. A stream begins with its first envelope.",
    columns: [["Stream", (row) => row.id], ["Depth", (row) => row.depth], ["Leased", (row) => row.inflight], ["Delayed", (row) => row.delayed],
      ["Dead", (row) => row.dead, (value) => (value ? mark(number(value), "bad") : 0)], ["Oldest", (row) => row.oldestReadyMs / 1000, duration],
      ["In/s", (row) => row.rateIn], ["Out/s", (row) => row.rateOut], ["Failed", (row) => row.nacked], ["Consumers", (row) => row.subscribers],
      ["State", (row) => (row.paused ? "paused" : "running"), (value) => mark(value, value === "paused" ? "warn" : "good")]],
    detail: {
      actions: queueActions,
      read: (row) => get("/v1/peek", { stream: row.id, state: row.dead ? "dead" : "ready", limit: 20 }),
      show: (row) => commands(row.dead ? `agentlip courier dlq list ${word(row.id)}` : `agentlip courier peek ${word(row.id)}`, row.paused && `agentlip courier resume ${word(row.id)}`),
    },
  },
  sends: {
    title: "Sends", group: "Links", what: "outbox",
    read: async ({ status }) => ({ ...(await get("/v1/outbox/sends", { status, limit: SENDS_MAX })), state: await get("/v1/outbox") }),
    choices: ["status", "pending", "inflight", "done", "dead", "aborted"],
    facts: ({ state }) => [...Object.entries(state.depth).map(([status, count]) => [status, count, { status }]), ["Oldest pending", duration(state.oldest_pending_seconds)],
      ["Level", mark(state.level, state.level === "normal" ? "good" : "bad")], ["Held routes", state.open_routes.join(", ") || "–"], ["Lost by a broker", state.lost]],
    rows: (data) => data.sends, key: (row) => row.id, empty: "No sends.",
    columns: [["To", (row) => row.to], ["Status", (row) => row.status, (value) => mark(value, statusLevel[value])], ["Enqueued", (row) => row.enqueued_at, since],
      ["Attempts", (row) => row.attempts], ["Next attempt", (row) => row.next_attempt_at, since], ["Last error", (row) => row.last_error], ["Target", (row) => row.target], ["Mesh", (row) => row.mesh]],
    detail: {
      read: (row) => get("/v1/outbox/inspect", { id: row.id }), show: (row) => commands(`agentlip outbox inspect ${word(row.id)}`),
      actions: (row) => [["dead", "aborted"].includes(row.status) && { title: "Redrive", scope: "outbox:admin", says: "The send is retired, and a new one with the same content is tried at once. If the first one did arrive, the recipient gets it twice.",
        command: `agentlip outbox redrive ${word(row.id)} --auto`, work: () => post("/v1/outbox/redrive", { id: row.id, auto: true }), done: () => "The send is tried again." }],
    },
  },
  meshes: {
    title: "Meshes", group: "Links", what: "broker", read: async () => ({ ...(await get("/broker/v1/meshes")), status: await get("/broker/v1/status") }),
    facts: ({ status }) => [["Members", status.members], ["Connected", status.links], ["Messages", status.messages], ["Waiting", status.waiting], ["Leased", status.leased],
      ["Orphans", status.orphans ? mark(number(status.orphans), "bad") : number(status.orphans)], ["Checked", since(status.pruned_at)]],
    rows: (data) => data.meshes, key: (row) => row.slug, empty: "No meshes here. A mesh connects appliances.",
    columns: [["Mesh", (row) => row.slug], ["Created", (row) => row.created_at, since], ["Keeps messages (days)", (row) => row.message_retention_days],
      ["Keeps ids (days)", (row) => row.dedupe_retention_days], ["Deduplication", (row) => row.dedupe_mode]],
    detail: { read: async (row) => ({ ...(await get(`/broker/v1/meshes/${path(row.slug)}/members`, { limit: 100 })), ...(await get(`/broker/v1/meshes/${path(row.slug)}/topics`, { limit: 100 })) }),
      show: (row) => commands(`agentlip mesh members ${word(row.slug)}`) },
  },
  links: {
    title: "Links", group: "Links", what: "inbox", read: () => get("/v1/health"),
    facts: (data) => [["Waiting to send", data.queue_depth], ["In flight", data.inflight], ["Lag", data.lag_ms === null ? "–" : duration(data.lag_ms / 1000)], ["Key", html`<code>${data.member_pubkey.slice(0, 16)}…</code>`]],
    rows: (data) => data.links, key: (row) => row.mesh, empty: "This appliance is a member of no mesh.",
    columns: [["Mesh", (row) => row.mesh], ["State", (row) => row.state, (value) => mark(value, ["connected", "local"].includes(value) ? "good" : value === "stopped" ? "bad" : "warn")],
      ["Since", (row) => row.since, since], ["Reason", (row) => row.reason]],
  },
  webhooks: {
    title: "Webhooks", group: "Links", what: "webhooks role",
    read: async () => {
      const [{ webhooks }, { events }] = await Promise.all([get("/api/v1/webhooks", { limit: 1000 }), get("/api/v1/events", { tail: 1 })]);
      return { webhooks, head: events.at(-1)?.event_id || 0 };
    },
    rows: ({ webhooks, head }) => webhooks.map((row) => ({ ...row, behind: Math.max(0, head - row.cursor) })), key: (row) => row.id, empty: "No webhooks.",
    columns: [["Address", (row) => row.url], ["State", webhookState, (value) => mark(value, { enabled: "good", failing: "bad" }[value] || "warn")],
      ["Failing since", (row) => row.failing_since, since], ["Events behind", (row) => row.behind], ["Description", (row) => row.description], ["Format", (row) => row.format]],
    detail: {
      show: (row) => commands(`agentlip webhook deliveries ${word(row.id)}`),
      actions: (row) => [{ title: row.enabled ? "Disable" : "Enable", scope: "hub:admin", says: row.enabled ? "Nothing is sent there until somebody enables the webhook. Events wait." : "Sending goes on with the oldest event that was not delivered.",
        command: `agentlip webhook update ${word(row.id)} ${row.enabled ? "--disable" : "--enable"}`, work: () => patch(`/api/v1/webhooks/${path(row.id)}`, { enabled: !row.enabled }), done: () => "The webhook is changed." }],
    },
  },
  plugins: {
    title: "Plugins", group: "Work", what: "plugins role", read: () => get("/api/v1/plugins"), rows: (data) => data.plugins, key: (row) => row.name, empty: "No plugins.",
    columns: [["Plugin", (row) => row.name], ["State", (row) => row.state, (value) => mark(value, { broken: "bad", paused: "warn", off: "warn" }[value] || "good")], ["Reason", (row) => row.reason],
      ["Events behind", (row) => row.lag], ["Waiting", (row) => row.pending], ["Done", (row) => row.done], ["Failed", (row) => row.failed], ["Type", (row) => row.type], ["Version", (row) => row.version]],
  },
  jobs: {
    title: "Jobs", group: "Work", what: "jobs role", read: () => get("/api/v1/jobs"), rows: (data) => data.jobs, key: (row) => row.name, empty: "No jobs.",
    facts: ({ paused }) => (paused ? [["All jobs are paused", html`${mark("paused", "warn")} ${since(paused)}`]] : []),
    columns: [["Job", (row) => row.name], ["Source", (row) => row.source], ["Schedule", (row) => row.schedule], ["Next", (row) => row.next_at, since],
      ["Last", (row) => row.last_state, (value) => value && mark(value, { failed: "bad", lost: "bad", cancelled: "warn" }[value] || "good")], ["At", (row) => row.last_at, since],
      ["Failures", (row) => row.failures], ["Paused", (row) => row.paused_at, since], ["Problem", (row) => row.problem || row.last?.error], ["Description", (row) => row.description]],
    detail: {
      hidden: ["last"], actions: (row) => (["api", "file"].includes(row.source) ? jobActions(row) : []),
      show: (row) => (row.last?.id ? html`<${JobRuns} key=${row.name} job=${row.name} />` : null),
    },
  },
  network: network.contacts,
  groups: network.groups,
  broadcasts: network.broadcasts,
  deliveries: network.deliveries,
  people: {
    title: "People", group: "Safety", what: "tokens", read: people.readPeople, rows: (data) => data.tokens, key: (row) => row.id, empty: "No tokens.",
    columns: people.columns, tools: people.Invite, detail: { show: people.show, hidden: ["sessions"] },
  },
  audit: {
    title: "Audit", group: "Safety", what: "audit log", read: () => get("/api/v1/audit", { limit: 100 }),
    rows: (data) => data.acts, key: (row) => String(row.number), empty: "No administrative acts yet.",
    columns: [["Number", (row) => row.number], ["At", (row) => row.at, since], ["Actor", (row) => row.actor], ["Act", (row) => row.act],
      ["Outcome", (row) => row.outcome, (value) => mark(value, { done: "good", refused: "warn" }[value] || "bad")], ["Via", (row) => row.via],
      ["About", (row) => Object.values(row.began.path || row.began.request || {}).filter((value) => ["string", "number"].includes(typeof value)).join(" ")]],
    detail: { read: async (row) => ({ began: row.began, ended: row.ended }), show: () => commands("agentlip audit verify") },
  },
  settings: {
    title: "Settings", group: "Settings", what: "settings", seconds: 0, read: () => get("/api/v1/settings"),
    rows: (data) => Object.entries(data.settings).map(([name, row]) => ({ name, ...row })), key: (row) => row.name, empty: "No settings.",
    columns: [["Setting", (row) => row.name], ["Value", (row) => (row.kind ? `(${row.kind})` : JSON.stringify(row.value)), (value) => html`<code>${value}</code>`],
      ["From", (row) => row.origin, (value) => (value === "default" ? html`<span class="soft">${value}</span>` : html`<strong>${value}</strong>`)]],
  },
};

const FOR = [["until somebody resumes it", ""], ["for 15 minutes", "900"], ["for an hour", "3600"], ["for a day", "86400"]];

function queueActions({ id, dead, depth, paused }) {
  const allowed = mayAdminister(id);
  const stream = word(id);
  return [
    dead > 0 && { title: "Redrive", allowed, says: `${number(dead)} dead letters of ${id} become ready, and are delivered again.`, command: `agentlip courier dlq redrive ${stream}`,
      work: () => post("/v1/streams/redrive", { stream: id, state: "dead" }), done: ({ count }) => `${number(count)} envelopes are ready again.` },
    paused ? { title: "Resume", allowed, says: "Envelopes are delivered again.", command: `agentlip courier resume ${stream}`, work: () => post("/v1/streams/resume", { stream: id }), done: () => `${id} is resumed.` }
      : { title: "Pause", allowed, says: "Nothing is delivered meanwhile; new envelopes are stored.", choices: ["How long", FOR], command: `agentlip courier pause ${stream}`,
        work: (seconds) => post("/v1/streams/pause", { stream: id, ...(seconds && { seconds: Number(seconds) }) }), done: () => `${id} is paused.` },
    { title: "Purge", danger: true, allowed, typed: id, says: `All ${number(depth)} envelopes of ${id} are removed, dead letters too. This can't be undone.`, command: `agentlip courier purge ${stream}`,
      work: () => post("/v1/streams/purge", { stream: id }), done: ({ count }) => `${number(count)} envelopes are removed.` },
  ];
}

function webhookState({ enabled, disabled_because: why, failing_since: failing }) {
  if (!enabled) return why ? `disabled: ${why}` : "disabled";
  return failing ? "failing" : "enabled";
}

export function OperateScreen({ place }) {
  const name = Object.hasOwn(VIEWS, place.query.view) ? place.query.view : "findings";
  const view = VIEWS[name];
  const [paused, setPaused] = useState(false);
  const { status = "" } = place.query;
  const { data, error, at, again } = usePolled(() => view.read({ status }), `${name} ${status}`, view.seconds ?? SECONDS, paused);
  const to = (query) => link({ screen: "operate", query: { view: name, ...query } });
  const shown = { ...place, query: { ...place.query, view: name } };
  return html`<section class="page wide operate" aria-label=${view.title}>
    <nav class="tabs" aria-label="Views">${GROUPS.map((group) => html`<div key=${group} role="group" aria-label=${group}><span class="soft">${group}</span>
      ${Object.entries(VIEWS).filter(([, each]) => each.group === group).map(([each, { title }]) => html`<a key=${each} href=${link({ screen: "operate", query: { view: each } })}
      aria-current=${each === name ? "page" : undefined}>${title}</a>`)}</div>`)}</nav>
    <div class="view">
    <header class="bar"><h1>${view.title}</h1>
      ${view.choices && html`<label>Status<select value=${status} onChange=${(event) => go(to({ status: event.target.value }))}>
        <option value="">all</option>${view.choices.slice(1).map((each) => html`<option key=${each}>${each}</option>`)}</select></label>`}
      ${at > 0 && html`<span class="soft">As of ${showTime(at)}</span>`}
      ${data && view.actions && html`<${Actions} actions=${view.actions(data)} again=${again} />`}
      ${data && view.tools && html`<${view.tools} again=${again} />`}
      <button class="plain" onClick=${again}>Read again</button>
      ${view.seconds !== 0 && html`<button aria-pressed=${paused ? "true" : "false"} onClick=${() => setPaused(!paused)}>${paused ? "Continue" : "Pause"}</button>`}</header>
    ${error && (data ? html`<${Failure} error=${error} />` : html`<${Blocked} error=${error} what=${view.what} />`)}
    ${!data && !error && html`<p class="soft" role="status">Reading…</p>`}
    ${data && view.facts && html`<dl class="facts">${view.facts(data).map(([label, value, query]) => html`<div key=${label}><dt>${label}</dt>
      <dd>${query ? html`<a href=${to(query)}>${number(value)}</a>` : number(value)}</dd></div>`)}</dl>`}
    ${data && view.body && html`<${view.body} data=${data} place=${shown} />`}
    ${data && view.rows && html`<${Table} label=${view.title} place=${shown} columns=${view.columns} rows=${view.rows(data)} keyOf=${view.key} detail=${view.detail} empty=${view.empty} again=${again} />`}
    </div></section>`;
}

const LEVELS = { info: "good", warning: "warn", error: "bad", critical: "bad" };

// Each cause with the findings that it explains, which need no command of their own.
function Findings({ data }) {
  const all = data.checks.flatMap((check) => check.findings);
  const causes = all.filter((each) => !each.explained_by);
  const worst = (finding) => ["critical", "error", "warning", "info"].indexOf(finding.severity);
  if (!all.length) return html`<p>No check found a problem.</p>`;
  return html`<ol class="findings">${[...causes].sort((one, other) => worst(one) - worst(other)).map((cause) => {
    const explained = all.filter((each) => each.explained_by === `${cause.check}:${cause.problem}`);
    return html`<li key=${`${cause.check} ${cause.problem} ${cause.subject}`}>
      <h2>${mark(cause.severity, LEVELS[cause.severity])} ${cause.subject}: ${cause.sentence}</h2>
      <p class="soft">Check <code>${cause.check}</code>, problem <code>${cause.problem}</code></p>
      ${cause.hint && html`<${Command} label="What helps" text=${cause.hint} />`}
      ${explained.length > 0 && html`<p>It also causes:</p><ul>${explained.map((each) => html`<li>${each.subject}: ${each.sentence} <code class="soft">${each.check}</code></li>`)}</ul>`}
    </li>`;
  })}</ol>`;
}
