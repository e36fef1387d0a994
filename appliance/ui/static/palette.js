// Go to anything by its name: what was visited lately comes first, then what matches best.
import { get } from "./api.js";
import { useModal } from "./parts.js";
import { go, link } from "./router.js";
import { may } from "./session.js";
import { keep, recall, state } from "./store.js";
import { html, useEffect, useRef, useState } from "./view.js";

const RECENT_MAX = 30;
const SHOWN_MAX = 50;
const RECENT_BONUS = 30;
const SCATTERED_MIN = 6; // points for each character that is not beside the others
const VISITED = "visited";
const MESSAGE_ID = /^[\w-]{20,64}$/;
const SCREENS = [["Home", ""], ["Waiting for you", "asks"], ["Search", "search"], ["Events", "events"], ["Operate", "operate"]];
const operate = (view, open) => link({ screen: "operate", query: { view, open } });

// What other roles have: [kind, scope, its rows as [name, address]].
const SOURCES = [
  ["Job", "jobs:read", async () => (await get("/api/v1/jobs")).jobs.map(({ name }) => [name, operate("jobs", name)])],
  ["Queue", "admin", async () => (await get("/v1/stats")).streams.map(({ id }) => [id, operate("queues", id)])],
  ["Person", "admin", async () => (await get("/api/v1/tokens")).tokens.map(({ id, name }) => [name, operate("people", id)])],
  ["Setting", "admin", async () => Object.keys((await get("/api/v1/settings")).settings).map((name) => [name, operate("settings", name)])],
];

// Remembers an address for the next time.
function remember(address) {
  const others = recall(VISITED, []).filter((each) => each !== address);
  keep(VISITED, [address, ...others].slice(0, RECENT_MAX));
}

export function noteVisit({ channel, topic }) {
  if (channel) remember(link({ channel, topic }));
}

function readHub() {
  const channels = [...state.channels.values()].map(({ id, name }) => ({ kind: "Channel", name, to: link({ channel: id }) }));
  const topics = [...state.topics.values()].map(({ id, title, channel_id: channel }) => (
    { kind: "Topic", name: title, hint: state.channels.get(channel)?.name || "", to: link({ channel, topic: id }) }));
  return [...SCREENS.map(([name, screen]) => ({ kind: "Screen", name, to: link({ screen }) })), ...channels, ...topics];
}

// How well a text has a word's characters in their order: more for the beginnings of words and for neighbours,
// less for gaps. 0: not all of them.
function scoreWord(text, word) {
  const whole = text.indexOf(word);
  if (whole >= 0) return 100 + (whole === 0 ? 40 : /[^\p{L}\p{N}]/u.test(text[whole - 1]) ? 30 : 0) - Math.min(20, text.length - word.length) / 2;
  let [score, index] = [0, -1];
  for (const character of word) {
    const next = text.indexOf(character, index + 1);
    if (next < 0) return 0;
    const isStart = next === 0 || /[^\p{L}\p{N}]/u.test(text[next - 1]);
    score += (next === index + 1 ? 8 : 0) + (isStart ? 10 : 0) - Math.min(5, next - index) + 5;
    index = next;
  }
  return score < SCATTERED_MIN * word.length ? 0 : Math.min(90, score);
}

function score({ name, hint = "" }, words) {
  const [text, context] = [name.toLowerCase(), hint.toLowerCase()];
  const scores = words.map((word) => scoreWord(text, word) || (context.includes(word) ? 20 : 0));
  return scores.every(Boolean) ? scores.reduce((sum, each) => sum + each, 0) / words.length : 0;
}

function rank(items, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const visited = recall(VISITED, []);
  const age = ({ to }) => (visited.indexOf(to) + RECENT_MAX + 1) % (RECENT_MAX + 1); // never visited: the largest
  if (!words.length) return [...items].sort((one, other) => age(one) - age(other)).slice(0, SHOWN_MAX);
  const scored = items.map((item) => [item, score(item, words)]).filter(([, points]) => points > 0)
    .map(([item, points]) => [item, points + (age(item) < RECENT_MAX ? RECENT_BONUS / (1 + age(item)) : 0)]);
  return scored.sort(([, one], [, other]) => other - one).slice(0, SHOWN_MAX).map(([item]) => item);
}

// The rows of other roles, as they arrive. A role that is off adds none.
function useOthers() {
  const [others, setOthers] = useState([]);
  useEffect(() => {
    for (const [kind, scope, read] of SOURCES) {
      if (may(scope)) read().then((rows) => setOthers((old) => [...old, ...rows.map(([name, to]) => ({ kind, name, to }))]), () => {});
    }
  }, []);
  return others;
}

export function Palette({ close }) {
  const box = useRef(null);
  const [query, setQuery] = useState("");
  const [index, setIndex] = useState(0);
  const others = useOthers();
  useModal(box);
  useEffect(() => box.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [index, query]);
  const rows = rank([...readHub(), ...others], query);
  const id = query.trim();
  if (MESSAGE_ID.test(id) && /\d/.test(id)) rows.push({ kind: "Message", name: id, to: link({ message: id }) });
  const open = (row) => {
    if (!row) return;
    remember(row.to);
    close();
    go(row.to);
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && rows.length) setIndex((index + step + rows.length) % rows.length);
    else if (event.key === "Enter") open(rows[index]);
    else return;
    event.preventDefault();
  };
  return html`<dialog ref=${box} class="palette" onClose=${close} aria-label="Go to" onClick=${(event) => event.target === box.current && close()}>
    <input role="combobox" aria-label="Go to" aria-expanded="true" aria-controls="palette-rows" aria-autocomplete="list" autocomplete="off" maxlength="200" autofocus
      aria-activedescendant=${rows.length ? `palette-${index}` : undefined} placeholder="Channel, topic, job, queue, person, setting or message id" value=${query}
      onInput=${(event) => { setQuery(event.target.value); setIndex(0); }} onKeyDown=${onKey} />
    <ul id="palette-rows" role="listbox" aria-label="Matches">${rows.map((row, place) => html`<li key=${row.to} id=${`palette-${place}`} role="option" aria-selected=${place === index ? "true" : "false"}
      onClick=${() => open(row)}><span class="soft kind">${row.kind}</span><span class="name">${row.name}</span><span class="soft">${row.hint}</span></li>`)}</ul>
    <p class="soft" role="status">${rows.length ? "" : "Nothing has this name."}</p>
  </dialog>`;
}
