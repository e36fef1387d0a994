// A job's runs: a square for each, and the chosen one with its cause, attempts and output, live while it runs.
import { Actions } from "./actions.js";
import { get, post } from "./api.js";
import { Failure } from "./parts.js";
import { duration, mark, since, usePolled } from "./table.js";
import { showMoment, word } from "./text.js";
import { html, useEffect, useState } from "./view.js";

const RUNS_MAX = 40;
const OUTPUT_CHARACTERS_MAX = 100_000; // the end of an output
const WAIT_SECONDS = 15;
const LEVELS = { succeeded: "good", failed: "bad", lost: "bad", cancelled: "warn" };
const level = (run) => LEVELS[run.state] || "busy";
const isOver = (run) => run.state in LEVELS;
const path = (name) => `/api/v1/jobs/${encodeURIComponent(name)}`;

export const jobActions = (job) => [
  { title: "Run now", scope: "jobs:run", says: `A run of ${job.name} begins, beside its schedule.`, command: `agentlip jobs run ${word(job.name)}`,
    work: () => post(`${path(job.name)}/runs`, {}), done: ({ run }) => `Run ${run.id} was requested.` },
  job.paused_at
    ? { title: "Resume", scope: "jobs:run", says: `${job.name} starts by its schedule again.`, command: `agentlip jobs resume ${word(job.name)}`,
      work: () => post(`${path(job.name)}/resume`, {}), done: () => `${job.name} is resumed.` }
    : { title: "Pause", scope: "jobs:run", says: `No run of ${job.name} starts until somebody resumes it. A run that goes on is not ended.`,
      command: `agentlip jobs pause ${word(job.name)}`, work: () => post(`${path(job.name)}/pause`, {}), done: () => `${job.name} is paused.` },
];

export function JobRuns({ job }) {
  const { data, error, again } = usePolled(() => get(`${path(job)}/history`, { limit: RUNS_MAX }), `runs ${job}`, 5);
  const [chosen, choose] = useState("");
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<p class="soft" role="status">Reading the runs…</p>`;
  if (!data.runs.length) return html`<p class="soft">No runs yet.</p>`;
  const run = data.runs.find(({ id }) => id === chosen) || data.runs[0];
  return html`<div class="runs">
    <div class="squares" role="group" aria-label="Runs, newest first">${data.runs.map((each) => html`<button key=${each.id} class=${level(each)}
      aria-pressed=${each.id === run.id ? "true" : "false"} aria-label=${`${each.state}, ${showMoment(each.created_at)}`}
      title=${`${each.state} · ${showMoment(each.created_at)}`} onClick=${() => choose(each.id)}></button>`)}</div>
    <${Run} key=${run.id} listed=${run} again=${again} /></div>`;
}

function Run({ listed, again }) {
  const { data, error, again: readAgain } = usePolled(() => get(`/api/v1/jobs/runs/${listed.id}`), `run ${listed.id} ${listed.state}`, isOver(listed) ? 0 : 5);
  if (error) return html`<${Failure} error=${error} />`;
  const run = data?.run || listed;
  const attempts = run.attempts || [];
  const cancel = !isOver(run) && { title: "Stop", danger: true, scope: "jobs:run", says: "The run's processes are ended. A cancelled run is not repeated.",
    command: `agentlip jobs cancel ${run.id}`, work: () => post(`/api/v1/jobs/runs/${run.id}/cancel`, {}), done: () => "The run is being cancelled." };
  return html`<section aria-label=${`Run ${run.id}`}>
    <header class="bar"><h3>${mark(run.state, LEVELS[run.state] || "warn")} ${since(run.created_at)}</h3><${Actions} actions=${[cancel]} again=${() => { again(); readAgain(); }} /></header>
    ${run.error && html`<p class="state bad">${run.error}</p>`}
    ${run.waits_for && html`<p>Waits: ${run.waits_for}</p>`}
    <dl><dt>Run</dt><dd><code>${run.id}</code></dd>
      <dt>Cause</dt><dd>${run.cause}${run.detail ? ` · ${run.detail}` : ""}${run.principal ? ` · ${run.principal}` : ""}</dd>
      <dt>Exit code</dt><dd>${run.exit_code ?? "–"}</dd>
      <dt>Attempts</dt><dd>${attempts.length ? attempts.map((each) => html`<div key=${each.number}>${each.number}: ${each.state}${each.ended_at ? ` after ${duration((Date.parse(each.ended_at) - Date.parse(each.started_at)) / 1000)}` : ""}${each.error ? ` · ${each.error}` : ""}</div>`) : run.attempts_made}</dd></dl>
    ${run.attempts_made > 0 && html`<${Output} key=${run.attempts_made} run=${run.id} />`}
  </section>`;
}

// The end of the latest attempt's output, which grows while the attempt runs.
function Output({ run }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  useEffect(() => {
    let isShown = true;
    const follow = async () => {
      for (let after = 0, over = false; isShown && !over;) {
        const piece = await get(`/api/v1/jobs/runs/${run}/output`, { after, wait: after ? WAIT_SECONDS : 0 });
        [after, over] = [piece.next, piece.over];
        if (isShown && piece.text) setText((before) => (before + piece.text).slice(-OUTPUT_CHARACTERS_MAX));
      }
    };
    follow().catch((failure) => isShown && setError(failure));
    return () => { isShown = false; };
  }, []);
  if (error) return html`<${Failure} error=${error} />`;
  return html`<pre class="output" tabindex="0" aria-label="Output">${text || "No output."}</pre>`;
}
