// Questions of agents: cards with buttons, on their own screen, at home and in their topics. A pressed
// answer waits for some seconds, in which it can be undone, before it is sent.
import { alertPerson } from "./alerts.js";
import { get, post } from "./api.js";
import { Content, useMeasured } from "./content.js";
import { Empty, Failure } from "./parts.js";
import { link } from "./router.js";
import { changed, fail, notify, now as timeNow, onChange, state } from "./store.js";
import { ago, showMoment, showTime } from "./text.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

const WAITING_MAX = 100;
const RECENT_MAX = 20;
const KNOWN_MAX = 500;
const PAUSE_MS = 150; // several messages about asks are one request
const UNDO_MS = 5_000;
const TICK_MS = 1_000;
const ABOUT_AN_ASK = /ask_[0-9A-Z]{26}/;
const DAY_SECONDS = 86_400;

export const asks = { waiting: [], more: false, recent: [], loaded: false, error: null };
const known = new Map(); // ask id → ask, or null while it is read
const pressed = new Map(); // ask id → { answer, at, timer }: chosen, and not sent yet
let timer = 0;
let newest = 0;

export const askIn = (text) => ABOUT_AN_ASK.exec(text)?.[0];

function learn(ask) {
  known.set(ask.id, ask);
  if (known.size > KNOWN_MAX) known.delete(known.keys().next().value);
}

async function readAsk(id) {
  if (!known.has(id)) known.set(id, null);
  try {
    learn((await get(`/api/v1/asks/${id}`)).ask);
  } catch {
    return; // then its message stays a text
  }
  changed();
}

export async function loadAsks() {
  const number = (newest += 1);
  try {
    const [waiting, all] = await Promise.all([
      get("/api/v1/asks", { state: "waiting", mine: true, limit: WAITING_MAX }),
      get("/api/v1/asks", { limit: RECENT_MAX }),
    ]);
    if (number !== newest) return; // a later request has newer rows
    [...waiting.asks, ...all.asks].forEach(learn);
    const recent = all.asks.filter((each) => each.state !== "waiting");
    alertPerson(waiting.asks, asks.loaded);
    Object.assign(asks, { waiting: waiting.asks, more: waiting.has_more, recent, loaded: true, error: null });
  } catch (error) {
    if (number === newest) asks.error = error;
  }
  changed();
}

// A question or its answer is an ordinary message that names its ask.
export function noteAsk(event) {
  const id = event.name === "message.created" && askIn(event.data.message.content_raw);
  if (!id) return;
  if (known.has(id)) readAsk(id);
  clearTimeout(timer);
  timer = setTimeout(loadAsks, PAUSE_MS);
}

function press(id, answer) {
  pressed.set(id, { answer, at: Date.now() + UNDO_MS, timer: setTimeout(() => sendAnswer(id), UNDO_MS) });
  changed();
}

function undo(id) {
  clearTimeout(pressed.get(id).timer);
  pressed.delete(id);
  changed();
}

async function sendAnswer(id) {
  const { answer, timer: sending } = pressed.get(id);
  clearTimeout(sending);
  pressed.set(id, { answer });
  try {
    await post(`/api/v1/asks/${id}/answer`, { answer });
  } catch (error) {
    const { state: settled, answer: other, answered_by: name } = error.details || {};
    if (error.code === "ASK_SETTLED" && settled) notify(`${name} was faster: ${other ?? settled}`, true);
    else fail(error);
  }
  await readAsk(id);
  pressed.delete(id);
  loadAsks();
}

// An answer that waits is sent when the page is left.
addEventListener("pagehide", () => pressed.forEach(({ timer: waiting }, id) => waiting && sendAnswer(id)));

export function AsksBadge() {
  const count = asks.waiting.length;
  return count ? html` <span class="badge" aria-label=${`${count} waiting`}>${count}${asks.more ? "+" : ""}</span>` : null;
}

export function AsksScreen() {
  useEffect(() => void loadAsks(), []);
  return html`<section class="page" aria-label="Waiting for you">
    <h1>Waiting for you</h1>
    ${asks.error && html`<${Failure} error=${asks.error} retry=${loadAsks} />`}
    ${asks.loaded && !asks.waiting.length && html`<${Empty} title="Nothing waits for you">
      <p class="soft">Agents ask here with <code>agentlip ask create</code> or the tool <code>ask_person</code>.</p><//>`}
    ${asks.waiting.map((each) => html`<${Question} key=${each.id} id=${each.id} />`)}
    ${asks.recent.length > 0 && html`<h2>Settled lately</h2>
      <ul class="cards asked">${asks.recent.map((each) => html`<li key=${each.id}><a href=${link({ message: each.message_id })}>
        <span class="text">${each.text}</span>
        <span class="soft"><strong>${each.answer ?? each.state}</strong> · ${each.answer === null ? "" : `${each.state} by `}${each.answered_by} · ${showMoment(each.settled_at)}</span></a></li>`)}</ul>`}
  </section>`;
}

// What is known about an ask, and the answer that was pressed, as they change.
function useAsk(id) {
  const [ask, setAsk] = useState(known.get(id));
  const [choice, setChoice] = useState(pressed.get(id));
  useEffect(() => {
    if (!known.has(id)) readAsk(id);
    const stop = onChange(() => (setAsk(known.get(id)), setChoice(pressed.get(id))));
    return () => void stop();
  }, []);
  useMeasured([ask, choice]);
  return [ask, choice];
}

// The card in place of a question's message; other messages that name an ask stay texts.
export function AskMessage({ id, message, children }) {
  const [ask] = useAsk(id);
  if (ask?.message_id === message.id) return html`<${Question} id=${id} inTopic />`;
  return children;
}

export function Question({ id, inTopic }) {
  const [ask, choice] = useAsk(id);
  const box = useRef(null);
  const acted = useRef(false); // the pressed button goes away, so the focus moves to the next one
  useLayoutEffect(() => {
    if (acted.current) box.current?.querySelector("button, textarea")?.focus({ preventScroll: true });
    acted.current = false;
  }, [choice]);
  if (!ask) return null;
  const act = (work) => (event) => {
    event.preventDefault();
    event.stopPropagation();
    acted.current = true;
    work();
  };
  return html`<article class="ask" ref=${box} aria-label=${`Question of ${ask.asker}`}>
    ${!inTopic && html`<p class="soft"><strong>${ask.asker}</strong>${ask.principal && ask.principal !== ask.asker && ` (${ask.principal})`} · ${ago(ask.created_at)}${" · "}
      <a href=${link({ message: ask.message_id })}>in its topic</a></p>`}
    <${Content} text=${ask.text} />
    ${ask.blocks.length > 0 && html`<p class="soft">Blocks ${ask.blocks.map((each) => html`<code key=${each}>${each}</code> `)}</p>`}
    ${ask.deadline && ask.state === "waiting" && html`<${Deadline} ask=${ask} />`}
    <div aria-live="polite">
      ${ask.state !== "waiting" ? html`<p class="settled"><span aria-hidden="true">✓ </span><strong>${ask.answer ?? ask.state}</strong>, by ${ask.answered_by},${" "}
        <time datetime=${ask.settled_at} title=${showMoment(ask.settled_at)}>${showTime(ask.settled_at)}</time></p>`
        : choice ? html`<${Pressed} choice=${choice} undo=${act(() => undo(id))} />` : null}</div>
    ${ask.state === "waiting" && !choice && html`<${Answers} ask=${ask} act=${act} />`}
  </article>`;
}

function useTick() {
  const [, setNow] = useState(0);
  useEffect(() => {
    const ticking = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(ticking);
  }, []);
}

function Pressed({ choice, undo: takeBack }) {
  useTick();
  const seconds = Math.max(1, Math.ceil((choice.at - Date.now()) / 1000));
  return html`<p class="bar">Answer: <strong>${choice.answer}</strong> ${choice.timer
    ? html`<button onClick=${takeBack}>Undo</button><span class="soft" aria-hidden="true">Sent in ${seconds} s</span>` : html`<span class="soft">Sending…</span>`}</p>`;
}

function Deadline({ ask }) {
  useTick();
  const seconds = Math.max(0, (new Date(ask.deadline) - timeNow()) / 1000);
  return html`<p class="soft" title=${showMoment(ask.deadline)}>Deadline in <time datetime=${ask.deadline}>${countdown(seconds)}</time>,
    then ${ask.default === null ? "it expires" : html`<strong>${ask.default}</strong>`}</p>`;
}

function Answers({ ask, act }) {
  const [text, setText] = useState("");
  const { signedIn, name } = state.session;
  if (!signedIn) return html`<p class="soft"><a href="#/sign-in">Sign in</a> to answer.</p>`;
  if (!mayAnswer()) return html`<p class="soft">Your token lacks the scope <code>ask:answer</code>.</p>`;
  if (ask.may_answer.length && !ask.may_answer.includes(name)) return html`<p class="soft">Only ${ask.may_answer.join(", ")} may answer.</p>`;
  return html`<form class="bar" onSubmit=${act(() => press(ask.id, text))}>
    ${ask.choices.map((each) => html`<button type="button" key=${each} onClick=${act(() => press(ask.id, each))}>${each}</button>`)}
    ${!ask.choices.length && html`<textarea rows="2" maxlength="8000" aria-label="Your answer" value=${text} onClick=${(event) => event.stopPropagation()} onInput=${(event) => setText(event.target.value)}></textarea>
      <button class="primary" disabled=${!text.trim()}>Answer</button>`}
  </form>`;
}

function mayAnswer() {
  const { scopes } = state.session;
  return !scopes || scopes.some((each) => each === "admin" || each.startsWith("ask:answer"));
}

function countdown(seconds) {
  if (seconds >= DAY_SECONDS) return `${Math.floor(seconds / DAY_SECONDS)} d ${Math.floor((seconds % DAY_SECONDS) / 3600)} h`;
  const parts = [seconds / 3600, (seconds / 60) % 60, seconds % 60].map(Math.floor);
  return parts.map((each) => String(each).padStart(2, "0")).join(":");
}
