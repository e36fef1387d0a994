// Waiting for you: questions of agents, answered by a button or a text, and what became of them.
import { get, post } from "./api.js";
import { Empty, Failure } from "./parts.js";
import { link } from "./router.js";
import { changed, fail, notify, now as timeNow, state } from "./store.js";
import { ago, linked, showMoment } from "./text.js";
import { html, useEffect, useState } from "./view.js";

const WAITING_MAX = 100;
const RECENT_MAX = 20;
const PAUSE_MS = 150; // several messages about asks are one request
const TICK_MS = 1_000;
const ABOUT_AN_ASK = /ask_[0-9A-Z]{26}/;
const DAY_SECONDS = 86_400;

const asks = { waiting: [], more: false, recent: [], loaded: false, error: null };
let timer = 0;
let newest = 0;

export async function loadAsks() {
  const number = (newest += 1);
  try {
    const [waiting, all] = await Promise.all([
      get("/api/v1/asks", { state: "waiting", mine: true, limit: WAITING_MAX }),
      get("/api/v1/asks", { limit: RECENT_MAX }),
    ]);
    if (number !== newest) return; // a later request has newer rows
    const recent = all.asks.filter((each) => each.state !== "waiting");
    Object.assign(asks, { waiting: waiting.asks, more: waiting.has_more, recent, loaded: true, error: null });
  } catch (error) {
    if (number === newest) asks.error = error;
  }
  changed();
}

// A question or its answer is an ordinary message that names its ask.
export function noteAsk(event) {
  if (event.name !== "message.created" || !ABOUT_AN_ASK.test(event.data.message.content_raw)) return;
  clearTimeout(timer);
  timer = setTimeout(loadAsks, PAUSE_MS);
}

export function AsksBadge() {
  const count = asks.waiting.length;
  return count ? html` <span class="badge" aria-label=${`${count} waiting`}>${count}${asks.more ? "+" : ""}</span>` : null;
}

export function AsksScreen() {
  const [now, setNow] = useState(timeNow());
  useEffect(() => {
    loadAsks();
    const ticking = setInterval(() => setNow(timeNow()), TICK_MS);
    return () => clearInterval(ticking);
  }, []);
  return html`<section class="page" aria-label="Waiting for you">
    <h1>Waiting for you</h1>
    ${asks.error && html`<${Failure} error=${asks.error} retry=${loadAsks} />`}
    ${asks.loaded && !asks.waiting.length && html`<${Empty} title="Nothing waits for you">
      <p class="soft">Agents ask here with <code>agentlip ask create</code> or the tool <code>ask_person</code>.</p><//>`}
    <div aria-live="polite">${asks.waiting.map((each) => html`<${Waiting} key=${each.id} ask=${each} now=${now} />`)}</div>
    ${asks.recent.length > 0 && html`<h2>Settled lately</h2>
      <ul class="cards asked">${asks.recent.map((each) => html`<li key=${each.id}><a href=${link({ message: each.message_id })}>
        <span class="text">${each.text}</span>
        <span class="soft"><strong>${each.answer ?? each.state}</strong> · ${each.answer === null ? "" : `${each.state} by `}${each.answered_by} · ${showMoment(each.settled_at)}</span></a></li>`)}</ul>`}
  </section>`;
}

function Waiting({ ask, now }) {
  const [busy, setBusy] = useState(false);
  const [text, setText] = useState("");
  const answer = async (chosen) => {
    setBusy(true);
    try {
      await post(`/api/v1/asks/${encodeURIComponent(ask.id)}/answer`, { answer: chosen });
      notify(`Answered: ${chosen}`);
    } catch (error) {
      const { state: settled, answer: other, answered_by: who } = error.details || {};
      if (error.code === "ASK_SETTLED" && settled) notify(`${who} was faster: ${other ?? settled}`, true);
      else fail(error);
    }
    setBusy(false);
    loadAsks();
  };
  const seconds = ask.deadline && Math.max(0, (new Date(ask.deadline) - now) / 1000);
  return html`<article class="ask" aria-label=${`Question of ${ask.asker}`}>
    <p class="soft"><strong>${ask.asker}</strong>${ask.principal && ask.principal !== ask.asker && ` (${ask.principal})`} · ${ago(ask.created_at)}${" · "}
      <a href=${link({ message: ask.message_id })}>in its topic</a></p>
    <p class="text">${linked(ask.text)}</p>
    ${ask.blocks.length > 0 && html`<p class="soft">Blocks ${ask.blocks.map((each) => html`<code key=${each}>${each}</code> `)}</p>`}
    ${ask.deadline && html`<p class="soft" title=${showMoment(ask.deadline)}>Deadline in <time datetime=${ask.deadline}>${countdown(seconds)}</time>,
      then ${ask.default === null ? "it expires" : html`<strong>${ask.default}</strong>`}</p>`}
    ${mayAnswer() ? html`<form class="bar" onSubmit=${(event) => { event.preventDefault(); answer(text); }}>
      ${ask.choices.map((each) => html`<button type="button" key=${each} disabled=${busy} onClick=${() => answer(each)}>${each}</button>`)}
      ${!ask.choices.length && html`<textarea rows="2" maxlength="8000" aria-label="Your answer" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
        <button class="primary" disabled=${busy || !text.trim()}>Answer</button>`}
    </form>` : html`<p class="soft">${state.session.signedIn ? html`Your token lacks the scope <code>ask:answer</code>.` : html`<a href="#/sign-in">Sign in</a> to answer.`}</p>`}
  </article>`;
}

function mayAnswer() {
  const { signedIn, scopes } = state.session;
  return signedIn && (!scopes || scopes.some((each) => each === "admin" || each.startsWith("ask:answer")));
}

function countdown(seconds) {
  if (seconds >= DAY_SECONDS) return `${Math.floor(seconds / DAY_SECONDS)} d ${Math.floor((seconds % DAY_SECONDS) / 3600)} h`;
  const parts = [seconds / 3600, (seconds / 60) % 60, seconds % 60].map(Math.floor);
  return parts.map((each) => String(each).padStart(2, "0")).join(":");
}
