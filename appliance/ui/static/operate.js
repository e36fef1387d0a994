// What operators look at first. An open row has its actions, and the commands for what is left.
import { Actions, pauseAction } from "./actions.js";
import { get, patch, post } from "./api.js";
import { Board, obstacle } from "./board.js";
import { Backup, backupActions, backUp } from "./backups.js";
import { Charts, readRates, Usage } from "./charts.js";
import { JobRuns, jobActions } from "./jobs.js";
import * as network from "./network.js";
import { Command, Failure, useCurrentInView } from "./parts.js";
import * as people from "./people.js";
import { Envelopes, queueActions } from "./queues.js";
import { go, link } from "./router.js";
import { may } from "./session.js";
import { Blocked } from "./start.js";
import { bytes, duration, mark, number, since, Table, usePolled } from "./table.js";
import { showMoment, showTime, word } from "./text.js";
import { html, useRef, useState } from "./view.js";

const GROUPS = ["Health", "Work", "Links", "Safety", "Settings"];
const SECONDS = 10;
const SENDS_MAX = 200;
const TROUBLE_MAX = 5; // rows of a view in the overview
const path = (text) => encodeURIComponent(text);
const commands = (...texts) => html`${texts.filter(Boolean).map((text) => html`<${Command} key=${text} label="On the appliance's machine" text=${text} />`)}`;
const statusLevel = { pending: "good", inflight: "good", done: "good", dead: "bad", aborted: "warn" };

// A view reads its data, and has columns of its rows, facts of the whole, and a detail of a row.
// `trouble` has the rows that somebody should look at, for sessions with `scope`.
const VIEWS = {
  overview: { title: "Overview", group: "Health", seconds: 30, what: "overview", read: readTrouble, body: Overview, actions: () => [backUp] },
  findings: {
    title: "Findings", group: "Health", seconds: 60, read: () => get("/api/v1/doctor"), what: "doctor",
    facts: (data) => [["Verdict", mark(data.verdict, data.errors ? "bad" : data.warnings ? "warn" : "good")], ["Errors", data.errors],
      ["Warnings", data.warnings], ["Checks", data.checks.length], ["Version", data.version]],
    body: Findings, scope: "doctor:read",
    trouble: { rows: (data) => findingsOf(data, false), sentence: (row) => row.sentence, name: (row) => row.subject, open: () => "" },
  },
  rates: { title: "Rates", group: "Health", what: "rates", read: readRates, body: Charts, choice: { name: "range", label: "Range", values: ["1h", "24h", "7d"] } },
  forecast: {
    title: "Forecast", group: "Health", what: "forecast", seconds: 60, read: ({ range }) => get("/api/v1/forecast", { range: range === "1h" ? range : "14d" }),
    facts: (data) => [["Observed", duration(data.observed_days * 86_400)]], body: Usage, choice: { name: "range", label: "Range", values: ["14d", "7d", "24h", "1h"] },
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
    read: async () => ({ ...(await get("/bus/v1/workers")), ...(await get("/bus/v1/claims")) }), scope: "bus:read",
    trouble: { rows: ({ workers }) => workers.filter(obstacle), sentence: (row) => obstacle(row)[0], name: (row) => row.task, open: () => "" },
  },
  backups: {
    title: "Backups", group: "Safety", actions: () => [backUp], read: () => get("/api/v1/backups"), what: "backup role", scope: "backup:read",
    trouble: { rows: (data) => data.backups.filter((row) => row.problem || row.verification?.result === "bad"), sentence: (row) => row.problem || row.verification.problems.join("; ") },
    rows: (data) => data.backups, key: (row) => row.name, empty: "No backups yet.",
    columns: [["Name", (row) => row.name], ["State of", (row) => row.cut_at, since],
      ["Verified", (row) => (row.problem ? "unreadable" : row.verification?.result || "not yet"), (value, row) => html`${mark(value, { good: "good", "not yet": "warn", inconclusive: "warn" }[value] || "bad")} ${row.verification && since(row.verification.checked_at)}`],
      ["Size", (row) => row.stored_bytes, bytes], ["Events", (row) => row.last_event_id], ["Made in", (row) => row.seconds, duration],
      ["Writes paused", (row) => row.pause_ms / 1000, duration], ["Reason", (row) => row.reason]],
    detail: { actions: backupActions, show: (row) => html`<${Backup} key=${row.name} row=${row} />` },
  },
  queues: {
    title: "Queues", group: "Work", read: () => get("/v1/stats"), what: "courier", scope: "courier:use",
    trouble: { rows: (data) => VIEWS.queues.rows(data).filter((row) => row.dead), sentence: (row) => `${number(row.dead)} dead letters` },
    rows: (data) => data.streams.map(({ id, stats }) => ({ id, ...stats })), key: (row) => row.id, empty: "No streams yet. A stream begins with its first envelope.",
    columns: [["Stream", (row) => row.id], ["Depth", (row) => row.depth], ["Leased", (row) => row.inflight], ["Delayed", (row) => row.delayed],
      ["Dead", (row) => row.dead, (value) => (value ? mark(number(value), "bad") : 0)], ["Oldest", (row) => row.oldestReadyMs / 1000, duration],
      ["In/s", (row) => row.rateIn], ["Out/s", (row) => row.rateOut], ["Failed", (row) => row.nacked], ["Consumers", (row) => row.subscribers],
      ["State", (row) => (row.paused ? "paused" : "running"), (value) => mark(value, value === "paused" ? "warn" : "good")]],
    detail: {
      actions: queueActions,
      show: (row, again) => html`<${Envelopes} key=${row.id} stream=${row} again=${again} />`,
    },
  },
  sends: {
    title: "Sends", group: "Links", what: "outbox",
    read: async ({ status }) => ({ ...(await get("/v1/outbox/sends", { status, limit: SENDS_MAX })), state: await get("/v1/outbox") }),
    choice: { name: "status", label: "Status", values: ["", "pending", "inflight", "done", "dead", "aborted"] }, scope: "outbox:read",
    trouble: { watch: () => get("/v1/outbox/sends", { status: "dead", limit: SENDS_MAX }), rows: (data) => data.sends, sentence: (row) => `Not delivered: ${row.last_error}`, query: { status: "dead" } },
    actions: ({ state }) => [state.depth.dead > 0 && redriveSends(state.depth.dead), ...state.paused.map(({ route }) => ({ ...pauseRoute(route, true), title: `Resume ${route}` }))],
    facts: ({ state }) => [...Object.entries(state.depth).map(([status, count]) => [status, count, { status }]), ["Oldest pending", duration(state.oldest_pending_seconds)],
      ["Paused", state.paused.length ? mark(state.paused.map(pauseText).join(", "), "warn") : "–"], ["Level", mark(state.level, state.level === "normal" ? "good" : "bad")], ["Held routes", state.open_routes.join(", ") || "–"], ["Lost by a broker", state.lost]],
    rows: ({ sends, state }) => sends.map((row) => ({ ...row, paused: state.paused.find(({ route }) => route === row.route || route === row.target)?.route })), key: (row) => row.id, empty: "No sends.",
    columns: [["To", (row) => row.to], ["Status", (row) => row.status, (value) => mark(value, statusLevel[value])], ["Enqueued", (row) => row.enqueued_at, since],
      ["Attempts", (row) => row.attempts], ["Next attempt", (row) => row.next_attempt_at, since], ["Last error", (row) => row.last_error], ["Target", (row) => row.target], ["Mesh", (row) => row.mesh], ["Route", (row) => (row.paused ? `${row.route} (paused)` : row.route)]],
    detail: {
      read: (row) => get("/v1/outbox/inspect", { id: row.id }), show: (row) => commands(`agentlip outbox inspect ${word(row.id)}`),
      actions: (row) => [["dead", "aborted"].includes(row.status) && { title: "Redrive", scope: "outbox:admin", says: `The send is retired, and a new one with the same content is tried at once. ${TWICE}`,
        command: `agentlip outbox redrive ${word(row.id)} --auto`, work: () => post("/v1/outbox/redrive", { id: row.id, auto: true }), done: () => "The send is tried again." },
        pauseRoute(row.paused || row.route, row.paused)],
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
    title: "Links", group: "Links", what: "inbox", read: () => get("/v1/health"), scope: "inbox:read",
    trouble: { rows: (data) => data.links.filter(({ state }) => !["connected", "local"].includes(state)), sentence: (row) => `${row.state}: ${row.reason || "no reason is known"}` },
    facts: (data) => [["Waiting to send", data.queue_depth], ["In flight", data.inflight], ["Lag", data.lag_ms === null ? "–" : duration(data.lag_ms / 1000)], ["Key", html`<code>${data.member_pubkey.slice(0, 16)}…</code>`]],
    rows: (data) => data.links, key: (row) => row.mesh, empty: "This appliance is a member of no mesh.",
    columns: [["Mesh", (row) => row.mesh], ["State", (row) => row.state, (value) => mark(value, ["connected", "local"].includes(value) ? "good" : value === "stopped" ? "bad" : "warn")],
      ["Since", (row) => row.since, since], ["Reason", (row) => row.reason]],
  },
  webhooks: {
    title: "Webhooks", group: "Links", what: "webhooks role", scope: "hub:admin",
    trouble: { rows: (data) => VIEWS.webhooks.rows(data).filter((row) => row.failing_since || row.disabled_because), sentence: webhookState },
    read: async () => {
      const [{ webhooks }, { events }] = await Promise.all([get("/api/v1/webhooks", { limit: 1000 }), get("/api/v1/events", { tail: 1 })]);
      return { webhooks, head: events.at(-1)?.event_id || 0 };
    },
    rows: ({ webhooks, head }) => webhooks.map((row) => ({ ...row, behind: Math.max(0, head - row.cursor) })), key: (row) => row.id, empty: "No webhooks.",
    columns: [["Address", (row) => row.url], ["State", webhookState, (value) => mark(value, { enabled: "good", failing: "bad" }[value] || "warn")],
      ["Failing since", (row) => row.failing_since, since], ["Events behind", (row) => row.behind], ["Description", (row) => row.description], ["Format", (row) => row.format]],
    detail: {
      read: (row) => get("/v1/outbox/sends", { to: `queue:${row.id}`, status: "dead", limit: 20 }), show: (row) => commands(`agentlip webhook deliveries ${word(row.id)}`),
      actions: (row) => [redriveSends(0, row.id), { title: row.enabled ? "Disable" : "Enable", scope: "hub:admin", says: row.enabled ? "Nothing is sent there until somebody enables the webhook. Events wait." : "Sending goes on with the oldest event that was not delivered.",
        command: `agentlip webhook update ${word(row.id)} ${row.enabled ? "--disable" : "--enable"}`, work: () => patch(`/api/v1/webhooks/${path(row.id)}`, { enabled: !row.enabled }), done: () => "The webhook is changed." }],
    },
  },
  plugins: {
    title: "Plugins", group: "Work", what: "plugins role", scope: "hub:admin", trouble: { rows: (data) => data.plugins.filter(({ state }) => state === "broken"), sentence: (row) => row.reason },
    read: () => get("/api/v1/plugins"), rows: (data) => data.plugins, key: (row) => row.name, empty: "No plugins.",
    columns: [["Plugin", (row) => row.name], ["State", (row) => row.state, (value) => mark(value, { broken: "bad", paused: "warn", off: "warn" }[value] || "good")], ["Reason", (row) => row.reason],
      ["Events behind", (row) => row.lag], ["Waiting", (row) => row.pending], ["Done", (row) => row.done], ["Failed", (row) => row.failed], ["Type", (row) => row.type], ["Version", (row) => row.version]],
  },
  jobs: {
    title: "Jobs", group: "Work", what: "jobs role", scope: "jobs:read", trouble: { rows: (data) => data.jobs.filter((row) => ["failed", "lost"].includes(row.last_state)), sentence: (row) => row.last?.error || row.last_state },
    read: () => get("/api/v1/jobs"), rows: (data) => data.jobs, key: (row) => row.name, empty: "No jobs.",
    facts: ({ paused }) => (paused ? [["All jobs are paused", html`${mark("paused", "warn")} ${since(paused)}`]] : []),
    columns: [["Job", (row) => row.name], ["Last", (row) => row.last_state, (value) => value && mark(value, { failed: "bad", lost: "bad", cancelled: "warn" }[value] || "good")],
      ["At", (row) => row.last_at, since], ["Next", (row) => row.next_at, since], ["Schedule", (row) => row.schedule], ["Source", (row) => row.source],
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
    columns: people.columns, tools: people.Invite, detail: { actions: people.revoke, show: people.show, hidden: ["sessions"] },
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
    title: "Settings", group: "Settings", what: "settings", seconds: 0, read: () => get("/api/v1/settings"), scope: "doctor:read",
    trouble: { watch: () => get("/api/v1/doctor"), rows: (data) => findingsOf(data, true), sentence: (row) => row.sentence, name: (row) => row.subject, open: () => "" },
    rows: (data) => Object.entries(data.settings).map(([name, row]) => ({ name, ...row })), key: (row) => row.name, empty: "No settings.",
    columns: [["Setting", (row) => row.name], ["Value", (row) => (row.kind ? `(${row.kind})` : JSON.stringify(row.value)), (value) => html`<code>${value}</code>`],
      ["From", (row) => row.origin, (value) => (value === "default" ? html`<span class="soft">${value}</span>` : html`<strong>${value}</strong>`)]],
  },
};

const TWICE = "If the first one did arrive, the recipient gets it twice.";

// Of one webhook, or of everything.
function redriveSends(count, webhook) {
  const to = webhook && `queue:${webhook}`;
  return { title: webhook ? "Redrive" : "Redrive all", scope: "outbox:admin", field: () => ["Only with this text in the error (optional)", "text"],
    says: `${count ? `${number(count)} sends are dead letters.` : "Each dead letter of the webhook is sent again."} Up to 1,000 at once get a successor that is tried now. ${TWICE}`,
    command: `agentlip outbox redrive --status dead${to ? ` --to ${to}` : ""} --auto`,
    work: (_, error) => post("/v1/outbox/redrive", { status: "dead", auto: true, limit: 1000, ...(to && { to }), ...(error && { error_contains: error }) }),
    done: ({ requeued, more }) => `${number(requeued.length)} sends are tried again.${more ? " There may be more." : ""}` };
}

const pauseText = ({ route, until }) => `${route}${until ? ` until ${showMoment(until)}` : ""}`;

const pauseRoute = (route, paused) => pauseAction({ name: route, paused, access: { scope: "outbox:admin" }, meanwhile: "New sends are stored, and get too old as usual.",
  path: "/v1/outbox", subject: { route }, command: "agentlip outbox" });

function webhookState({ enabled, disabled_because: why, failing_since: failing }) {
  if (!enabled) return why ? `disabled: ${why}` : "disabled";
  return failing ? "failing" : "enabled";
}

// What is wrong in the views that the session may read, and which of them could not be read.
async function readTrouble() {
  const watched = Object.entries(VIEWS).filter(([, view]) => view.trouble && may(view.scope));
  const read = await Promise.allSettled(watched.map(([, { trouble, read: readAll }]) => (trouble.watch || readAll)({})));
  const rows = watched.flatMap(([name, { trouble }], index) => (read[index].status === "fulfilled" ? trouble.rows(read[index].value).map((row) => ({ name, row })) : []));
  const failed = watched.filter((_, index) => !["fulfilled"].includes(read[index].status) && !["ROLE_OFF", "STORE_ABSENT"].includes(read[index].reason.code));
  return { rows, failed: failed.map(([, { title }]) => title) };
}

export function OperateScreen({ place }) {
  const name = Object.hasOwn(VIEWS, place.query.view) ? place.query.view : "overview";
  const view = VIEWS[name];
  const [paused, setPaused] = useState(false);
  const { name: field = "", label, values: [first] = [] } = view.choice || {};
  const value = place.query[field] ?? first;
  const { data, error, at, again } = usePolled(() => view.read({ [field]: value }), `${name} ${value}`, view.seconds ?? SECONDS, paused);
  const trouble = usePolled(readTrouble, "trouble", name === "overview" ? 0 : 30, paused).data;
  const to = (query) => link({ screen: "operate", query: { view: name, ...query } });
  const shown = { ...place, query: { ...place.query, view: name, [field]: value } };
  return html`<section class="page wide operate" aria-label=${view.title}>
    <${Rail} current=${name} rows=${(name === "overview" && data?.rows) || trouble?.rows || []} />
    <div class="view">
    <header class="bar"><h1>${view.title}</h1>
      ${view.choice && html`<label>${label}<select value=${value} onChange=${(event) => go(to({ [field]: event.target.value }))}>
        ${view.choice.values.map((each) => html`<option key=${each} value=${each}>${each || "all"}</option>`)}</select></label>`}
      ${at > 0 && html`<span class="soft">As of ${showTime(at)}</span>`}
      ${data && view.actions && html`<${Actions} actions=${view.actions(data)} again=${again} />`}
      ${data && view.tools && html`<${view.tools} again=${again} />`}
      <button class="plain" onClick=${again}>Read again</button>
      ${view.seconds !== 0 && html`<button aria-pressed=${paused ? "true" : "false"} onClick=${() => setPaused(!paused)}>${paused ? "Update again" : "Stop updates"}</button>`}</header>
    ${error && (data ? html`<${Failure} error=${error} />` : html`<${Blocked} error=${error} what=${view.what} />`)}
    ${!data && !error && html`<p class="soft" role="status">Reading…</p>`}
    ${data && view.facts && html`<dl class="facts">${view.facts(data).map(([title, fact, query]) => html`<div key=${title}><dt>${title}</dt>
      <dd>${query ? html`<a href=${to(query)}>${number(fact)}</a>` : number(fact)}</dd></div>`)}</dl>`}
    ${data && view.body && html`<${view.body} data=${data} place=${shown} again=${again} />`}
    ${data && view.rows && html`<${Table} label=${view.title} place=${shown} columns=${view.columns} rows=${view.rows(data)} keyOf=${view.key} detail=${view.detail} empty=${view.empty} again=${again} />`}
    </div></section>`;
}

// The views by group, with how many rows of each somebody should look at.
function Rail({ current, rows }) {
  const countOf = (names) => rows.filter(({ name }) => names.includes(name)).length;
  const count = (names) => countOf(names) > 0 && html`<span class="badge wrong" aria-label=${`${countOf(names)} to look at`}>${number(countOf(names))}</span>`;
  const row = useRef(null);
  useCurrentInView(row, current);
  return html`<nav class="tabs" aria-label="Views" ref=${row}>${GROUPS.map((group) => {
    const views = Object.entries(VIEWS).filter(([, each]) => each.group === group);
    return html`<div key=${group} role="group" aria-label=${group}><span class="soft">${group} ${count(views.map(([name]) => name))}</span>
      ${views.map(([name, { title }]) => html`<a key=${name} href=${link({ screen: "operate", query: { view: name } })} aria-current=${name === current ? "page" : undefined}>${title} ${count([name])}</a>`)}</div>`;
  })}</nav>`;
}

// What somebody should look at, each with the first action that helps.
function Overview({ data: { rows, failed }, again }) {
  const views = Object.keys(VIEWS).filter((name) => rows.some((each) => each.name === name)).sort((one, other) => (one === "findings") - (other === "findings"));
  return html`${!rows.length && html`<p>Nothing needs you.</p>`}
    ${failed.length > 0 && html`<p class="bad">Not known: ${failed.join(", ")}.</p>`}
    ${views.map((name) => html`<${Wrong} key=${name} name=${name} rows=${rows.filter((each) => each.name === name).map(({ row }) => row)} again=${again} />`)}`;
}

function Wrong({ name, rows, again }) {
  const { title, key, columns, detail, trouble } = VIEWS[name];
  const { sentence, name: nameOf = columns?.[0][1], open = key, query } = trouble;
  return html`<section aria-label=${title}><h2>${title} <span class="soft">${number(rows.length)}</span></h2>
    <ul class="trouble">${rows.slice(0, TROUBLE_MAX).map((row, index) => html`<li key=${index}>
      <span><a href=${link({ screen: "operate", query: { view: name, open: open(row), ...query } })}>${nameOf(row)}</a> ${sentence(row)}</span>
      ${detail?.actions && html`<${Actions} actions=${detail.actions(row).slice(0, 1)} again=${again} />`}</li>`)}</ul>
    ${rows.length > TROUBLE_MAX && html`<p><a href=${link({ screen: "operate", query: { view: name, ...query } })}>${number(rows.length - TROUBLE_MAX)} more</a></p>`}</section>`;
}

// The doctor's findings that are no mere notes: those about settings, or all others.
const findingsOf = (data, ofSettings) => data.checks.flatMap((check) => check.findings)
  .filter(({ severity, check }) => severity !== "info" && check.startsWith("settings.") === ofSettings);

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
