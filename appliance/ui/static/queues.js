// A courier stream: its envelopes, and what can be done with them.
import { Actions, mayAdminister, pauseAction } from "./actions.js";
import { get, post } from "./api.js";
import { Failure } from "./parts.js";
import { number, since, usePolled } from "./table.js";
import { word } from "./text.js";
import { html, useState } from "./view.js";

const PEEK_MAX = 20;
const COUNTED_MAX = 1000;
const WHICH = [["all", ""], ["with this reason", "reason"], ["with this type", "type"], ["from this sender", "from"]];
const COUNTS = { dead: "dead", ready: "ready", delayed: "delayed", leased: "inflight" }; // a state's field in the statistics

const narrow = (which, text) => (which && text ? { [which]: text } : {});

// How many dead letters a selection has, from a page of them.
async function countDead({ id, dead }, which, text) {
  if (!which || !text) return `${number(dead)} dead letters match.`;
  const { envelopes } = await get("/v1/peek", { stream: id, state: "dead", limit: COUNTED_MAX });
  const count = envelopes.filter((each) => (which === "reason" ? each.reason : each.envelope[which]) === text).length;
  return `${number(count)} of ${dead > COUNTED_MAX ? `the first ${number(COUNTED_MAX)}` : number(dead)} dead letters match.`;
}

export function queueActions(stream) {
  const { id, dead, depth, paused } = stream;
  const allowed = mayAdminister(id);
  const name = word(id);
  return [
    dead > 0 && { title: "Redrive", allowed, says: `Dead letters of ${id} become ready, and are delivered again.`, command: `agentlip courier dlq redrive ${name}`,
      choices: ["Which", WHICH], field: (which) => which && ["Text", "text"], preview: (which, text) => countDead(stream, which, text),
      work: (which, text) => post("/v1/streams/redrive", { stream: id, state: "dead", ...narrow(which, text) }), done: ({ count }) => `${number(count)} envelopes are ready again.` },
    pauseAction({ name: id, paused, access: { allowed }, meanwhile: "New envelopes are stored.", path: "/v1/streams", subject: { stream: id }, command: "agentlip courier" }),
    { title: "Purge", danger: true, allowed, typed: id, says: `All ${number(depth)} envelopes of ${id} are removed, dead letters too. This can't be undone.`, command: `agentlip courier purge ${name}`,
      work: () => post("/v1/streams/purge", { stream: id }), done: ({ count }) => `${number(count)} envelopes are removed.` },
  ];
}

const oneActions = (stream, { id, state }) => (state === "dead" ? [
  { title: "Redrive", allowed: mayAdminister(stream), says: `The dead letter ${id} becomes ready, and is delivered again.`, command: `agentlip courier dlq redrive ${word(stream)} --id ${word(id)}`,
    work: () => post("/v1/streams/redrive", { stream, state: "dead", ids: [id] }), done: () => `${id} is ready again.` },
] : []);

// The first envelopes in a state, without leasing them.
export function Envelopes({ stream, again }) {
  const [state, setState] = useState(stream.dead ? "dead" : "ready");
  const { data, error, again: readAgain } = usePolled(() => get("/v1/peek", { stream: stream.id, state, limit: PEEK_MAX }), `peek ${stream.id} ${state}`, 10);
  const read = () => { readAgain(); again(); };
  return html`<div class="pills" role="group" aria-label="State">${Object.keys(COUNTS).map((each) => html`<button key=${each} aria-pressed=${each === state ? "true" : "false"} onClick=${() => setState(each)}>${each} ${number(stream[COUNTS[each]])}</button>`)}</div>
    ${error && html`<${Failure} error=${error} />`}
    ${data && !data.envelopes.length && html`<p class="soft">No ${state} envelopes.</p>`}
    <ul class="trouble">${data?.envelopes.map((each) => html`<li key=${each.id}><details><summary>${each.id} <span class="soft">${each.reason || each.envelope.type}</span> ${since(each.deadAt || each.enqueuedAt)}</summary>
      <pre tabindex="0">${JSON.stringify(each, null, 2)}</pre></details><${Actions} actions=${oneActions(stream.id, each)} again=${read} /></li>`)}</ul>
    ${data?.has_more && html`<p class="soft">The first ${PEEK_MAX} are shown.</p>`}`;
}
