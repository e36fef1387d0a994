// Home: what needs the person. Open questions, the doctor's findings, failed jobs, and unread topics.
import { AlertChoices } from "./alerts.js";
import { get } from "./api.js";
import { asks, Question } from "./asks.js";
import { loadAllTopics } from "./hub.js";
import { Badge, Empty } from "./parts.js";
import { link } from "./router.js";
import { may } from "./session.js";
import { state } from "./store.js";
import { mark, since, usePolled } from "./table.js";
import { showNumber } from "./text.js";
import { unread } from "./unread.js";
import { html, useEffect } from "./view.js";

const TOPICS_MAX = 50;
const FINDINGS_SECONDS = 60;
const JOBS_SECONDS = 20;
const FAILED = new Set(["failed", "lost"]);
const operate = (view, open) => link({ screen: "operate", query: { view, open } });

// A list that is read again and again if the session has the scope; [] until it is there.
function useListed(scope, seconds, read) {
  const allowed = may(scope);
  const { data } = usePolled(() => (allowed ? read() : []), `${scope} ${allowed}`, seconds);
  return { rows: data || [], isRead: data !== null };
}

const readFindings = async () => (await get("/api/v1/doctor")).checks.flatMap((check) => check.findings)
  .filter(({ severity, explained_by: cause }) => severity !== "info" && !cause);
const readFailedJobs = async () => (await get("/api/v1/jobs")).jobs.filter((job) => FAILED.has(job.last_state));

export function Home() {
  const findings = useListed("admin", FINDINGS_SECONDS, readFindings);
  const jobs = useListed("jobs:read", JOBS_SECONDS, readFailedJobs);
  const topics = Object.entries(unread.topics).sort(([, one], [, other]) => (other.at ?? "").localeCompare(one.at ?? ""));
  const isUnnamed = topics.slice(0, TOPICS_MAX).some(([id]) => !state.topics.has(id));
  useEffect(() => {
    if (isUnnamed) loadAllTopics();
  }, [isUnnamed]);
  const count = asks.waiting.length + findings.rows.length + jobs.rows.length + topics.length;
  const isRead = asks.loaded && findings.isRead && jobs.isRead;
  return html`<section class="page home" aria-label="Home">
    <h1>Home</h1>
    ${!count && isRead && html`<${Empty} title="Nothing needs you"><p class="soft">Questions, findings, failed jobs and unread topics appear here.</p><//>`}
    <${Part} title="Questions" count=${asks.waiting.length}>
      ${asks.waiting.map((each) => html`<${Question} key=${each.id} id=${each.id} />`)}<//>
    <${Part} title="Findings" count=${findings.rows.length}><ul class="cards">${findings.rows.map((each) => html`<li key=${`${each.check} ${each.problem} ${each.subject}`}>
      <a href=${operate("findings")}>${mark(each.severity, each.severity === "warning" ? "warn" : "bad")}<span class="line">${each.subject}: ${each.sentence}</span></a></li>`)}</ul><//>
    <${Part} title="Failed jobs" count=${jobs.rows.length}><ul class="cards">${jobs.rows.map((each) => html`<li key=${each.name}>
      <a href=${operate("jobs", each.name)}>${mark(each.last_state, "bad")}<strong>${each.name}</strong><span class="line soft">${each.problem || each.last?.error || ""}</span>
      ${each.last_at && since(each.last_at)}</a></li>`)}</ul><//>
    <${Part} title="Unread" count=${topics.length}><ul class="cards">${topics.slice(0, TOPICS_MAX).map(([id, each]) => html`<${UnreadTopic} key=${id} id=${id} ...${each} />`)}</ul>
      ${topics.length > TOPICS_MAX && html`<p class="soft">And ${showNumber(topics.length - TOPICS_MAX)} more.</p>`}<//>
    <${AlertChoices} />
  </section>`;
}

function Part({ title, count, children }) {
  return count > 0 && html`<section aria-label=${title}><h2>${title} <span class="soft">${showNumber(count)}</span></h2>${children}</section>`;
}

function UnreadTopic({ id, channel, count, at, sender, line }) {
  return html`<li><a class="unread-topic" href=${link({ channel, topic: id })}>
    <span class="bar"><span class="unread">${state.topics.get(id)?.title || "…"}</span><span class="soft">${state.channels.get(channel)?.name}</span>
      <${Badge} count=${count} />${at && since(at)}</span>
    <span class="line">${sender && html`<strong>${sender}</strong> `}<span class="soft">${line}</span></span></a></li>`;
}
