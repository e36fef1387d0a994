// Buttons that change something. Each opens a dialog that says what changes, with the command that does the same.
import { post } from "./api.js";
import { Command, Dialog } from "./parts.js";
import { may } from "./session.js";
import { notify, now, state } from "./store.js";
import { showMoment, word } from "./text.js";
import { html, useEffect, useState } from "./view.js";

const PAUSE_MS = 200; // several keys are one preview
const SHOWN_MAX = 3;

// Whether the session may administer a stream; patterns have stars.
export const mayAdminister = (stream) => Boolean(state.session.scopes?.some((scope) => {
  const pattern = scope === "admin" ? "*" : /^streams:(.*):admin$/.exec(scope)?.[1];
  return pattern !== undefined && new RegExp(`^${pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`).test(stream);
}));

const FOR = [["until somebody resumes it", ""], ["for 15 minutes", "900"], ["for an hour", "3600"], ["for a day", "86400"], ["until a time", "until"]];
const secondsOf = (choice, time) => (choice === "until" ? Math.max(1, (Date.parse(time) - now()) / 1000) : Number(choice));

// A button that pauses what `subject` names, or resumes it. `paths` and `command` end in "pause" or "resume".
export const pauseAction = ({ name, paused, access, meanwhile, path, subject, command }) => (paused
  ? { title: "Resume", ...access, says: `${name}: deliveries go on.`, command: `${command} resume ${word(name)}`, work: () => post(`${path}/resume`, subject), done: () => `${name} is resumed.` }
  : { title: "Pause", ...access, says: `${name}: nothing is delivered meanwhile. ${meanwhile}`, choices: ["How long", FOR], field: (choice) => choice === "until" && ["Until", "datetime-local"],
    command: `${command} pause ${word(name)}`, work: (choice, time) => post(`${path}/pause`, { ...subject, ...(choice && { seconds: secondsOf(choice, time) }) }),
    done: ({ until }) => `${name} is paused${until ? ` until ${showMoment(until)}` : ""}.` });

// An action has a title, a scope (or `allowed`), `says` what changes, and `work(choice, text)`, whose answer `done` makes a sentence.
// `typed` is a name to type first; `choices` are [label, [[text, value], …]]; `field(choice)` is [label, type] of a text; `preview(choice,
// text)` counts what matches; `command` is what does the same.
export function Actions({ actions, again }) {
  const [open, setOpen] = useState("");
  const offered = actions.filter(Boolean).filter(({ scope, allowed }) => allowed ?? may(scope)).slice(0, SHOWN_MAX);
  const action = offered.find(({ title }) => title === open);
  if (!offered.length) return null;
  return html`<div class="acts" role="group" aria-label="Actions">${offered.map(({ title, danger }) => html`<button key=${title}
      class=${danger ? "danger" : ""} onClick=${() => setOpen(title)}>${title}…</button>`)}
    ${action && html`<${Ask} key=${open} action=${action} again=${again} close=${() => setOpen("")} />`}</div>`;
}

function Ask({ action, again, close }) {
  const { title, says, typed, choices, field, preview, danger, command, work, done } = action;
  const [name, setName] = useState("");
  const [choice, setChoice] = useState(choices?.[1][0][1]);
  const [text, setText] = useState("");
  const [counted, setCounted] = useState("");
  const asked = field?.(choice);
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => preview?.(choice, text).then((sentence) => current && setCounted(sentence), () => {}), PAUSE_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [choice, text]);
  const run = async () => {
    const answer = await work(choice, text.trim());
    notify(done(answer));
    again();
  };
  return html`<${Dialog} title=${title} action=${title} danger=${danger} close=${close} work=${run} disabled=${typed && name !== typed}>
    <p>${says}</p>
    ${choices && html`<label>${choices[0]}<select value=${choice} onChange=${(event) => setChoice(event.target.value)}>${choices[1].map(([text, value]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>`}
    ${asked && html`<label>${asked[0]}<input type=${asked[1]} value=${text} maxlength="200" onInput=${(event) => setText(event.target.value)} /></label>`}
    ${counted && html`<p role="status"><strong>${counted}</strong></p>`}
    ${typed && html`<label>Type <code>${typed}</code> to confirm<input value=${name} autocomplete="off" autofocus onInput=${(event) => setName(event.target.value)} /></label>`}
    ${command && html`<details><summary>The same by command</summary><${Command} label="Command" text=${command} /></details>`}
  <//>`;
}
