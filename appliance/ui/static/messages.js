// One message: its text, its marks, its actions, and the dialogs of these.
import { AskMessage, askIn } from "./asks.js";
import { Content } from "./content.js";
import { edit, erase, loadEnrichments, loadTopics, move, MOVE_COUNT_MAX, newest, previewMove, topicsOf } from "./hub.js";
import { draftOf, dropDraft, keepDraft } from "./drafts.js";
import { Command, copyText, Dialog, Failure } from "./parts.js";
import { link } from "./router.js";
import { senderName } from "./session.js";
import { notify, state } from "./store.js";
import { ago, bytesOf, dayOf, hue, Outside, showDay, showMoment, showNumber, showTime } from "./text.js";
import { html, rarely, useEffect, useState } from "./view.js";

export const TEXT_BYTES_MAX = 65_536;
const TOGETHER_MS = 5 * 60_000; // messages of a sender that share one heading

// Whether a message continues the one before it.
function continues(message, above) {
  return Boolean(above) && above.sender === message.sender && above.principal === message.principal &&
    !above.deleted_at && Math.abs(Date.parse(message.created_at) - Date.parse(above.created_at)) < TOGETHER_MS;
}

export const Message = rarely(({ message, above, isFirstNew, selected, act, enriched, writable }) => {
  const newDay = !above || dayOf(above.created_at) !== dayOf(message.created_at);
  const together = !newDay && !isFirstNew && continues(message, above);
  const label = `${message.sender}, ${showMoment(message.created_at)}`;
  return html`<article class=${`message ${together ? "together" : ""} ${selected ? "selected" : ""} ${message.deleted_at ? "deleted" : ""}`}
    aria-label=${label} aria-current=${selected ? "true" : undefined} tabindex=${selected ? 0 : -1} onClick=${() => act("select", message)}>
    ${isFirstNew && html`<p class="first-new"><span>New</span></p>`}
    ${newDay && html`<h3 class="day"><span>${showDay(message.created_at)}</span></h3>`}
    <div class="body">
      ${together ? html`<time class="side" title=${showMoment(message.created_at)}>${showTime(message.created_at)}</time>`
        : html`<span class="avatar" style=${{ "--hue": hue(message.sender) }} aria-hidden="true">${[...message.sender][0]}</span>`}
      <div class="content">
        ${!together && html`<div class="who"><strong>${message.sender}</strong>
          ${message.principal && message.principal !== message.sender && html`<span class="soft" title="The token that posted it">via ${message.principal}</span>`}
          <time class="soft" datetime=${message.created_at} title=${showMoment(message.created_at)}>${showTime(message.created_at)}</time></div>`}
        <${Text} message=${message} />
        <${Enrichments} message=${message} known=${enriched} />
      </div>
      <${Actions} message=${message} act=${act} writable=${writable} />
    </div>
  </article>`;
});

function Text({ message }) {
  if (message.deleted_at) {
    return html`<p class="text soft"><em>Deleted by ${message.deleted_by || "unknown"}, ${ago(message.deleted_at)}</em></p>`;
  }
  const content = html`<${Content} text=${message.content_raw}>
    ${message.edited_at && html` <span class="mark" title=${`Edited ${showMoment(message.edited_at)}, version ${message.version}`}>edited</span>`}<//>`;
  const ask = askIn(message.content_raw);
  return ask ? html`<${AskMessage} id=${ask} message=${message}>${content}<//>` : content;
}

function Enrichments({ message, known }) {
  if (!known?.items.length || message.deleted_at) return null;
  return html`<ul class="chips" aria-label="Enrichments">${known.items.map((each) => html`<li title=${JSON.stringify(each.data)}>
    <span class="soft">${each.kind}</span> <${Outside} url=${each.data.url || ""}>${String(each.data.title || each.data.url || each.data.text ||
      [...message.content_raw].slice(each.span?.start, each.span?.end).join("") || each.plugin || "")}<//></li>`)}</ul>`;
}

function Actions({ message, act, writable }) {
  const buttons = [["link", "Link"], ["details", "Details"]];
  if (writable && !message.deleted_at) buttons.push(["edit", "Edit"], ["move", "Move"], ["delete", "Delete"]);
  return html`<div class="actions">${buttons.map(([name, title]) => html`<button class="plain" key=${name} title=${title}
    aria-label=${`${title}: message of ${message.sender}`} onClick=${(event) => { event.stopPropagation(); act(name, message); }}>${title}</button>`)}</div>`;
}

export function EditDialog({ message, close }) {
  const [draft] = useState(draftOf(message.id));
  const [{ base, saved }] = useState(draft || { base: message.version, saved: message.content_raw }); // what is being changed
  const [text, setText] = useState(draft ? draft.text : message.content_raw);
  const write = (written) => {
    setText(written);
    keepDraft(message.id, { text: written, base, saved });
  };
  const leave = () => {
    dropDraft(message.id);
    close();
  };
  if (message.deleted_at) {
    return html`<${Dialog} title="Edit message" action="Close" close=${close} work=${async () => {}}>
      <p>Deleted by ${message.deleted_by || "unknown"}. A deleted message can't be edited.</p><//>`;
  }
  const bytes = bytesOf(text);
  const conflict = message.version > base && message.content_raw !== saved;
  const work = async () => {
    await edit(message, text);
    dropDraft(message.id);
  };
  return html`<${Dialog} title="Edit message" action=${conflict ? "Save my text" : "Save"} close=${close} work=${work} wide=${conflict}
    disabled=${!text || text === message.content_raw || bytes > TEXT_BYTES_MAX}>
    ${conflict && html`<p role="status"><strong>Changed meanwhile.</strong> Keep one of the texts, or change yours.</p>`}
    <div class=${conflict ? "versions" : ""}>
      ${conflict && html`<section aria-label="The saved text"><p class="soft">Saved now</p><pre class="text" tabindex="0">${message.content_raw}</pre>
        <button type="button" onClick=${leave}>Keep the saved text</button></section>`}
      <label>${conflict ? "My text" : "Text"}<textarea rows="8" value=${text} onInput=${(event) => write(event.target.value)} autofocus></textarea></label></div>
    <p class="soft">${draft && draft.text !== saved && html`You had begun this text. <button type="button" class="plain" onClick=${leave}>Discard it</button> `}
      Earlier texts stay in the event log. ${bytes > TEXT_BYTES_MAX && "The text is too long."}</p>
  <//>`;
}

export function DeleteDialog({ message, close }) {
  return html`<${Dialog} title="Delete message" action="Delete" danger close=${close} work=${() => erase(message, senderName() || "someone")}>
    <blockquote class="text">${message.content_raw.slice(0, 300)}</blockquote>
    <p class="soft">It is shown as deleted from now on. Its text stays in the event log, which is never rewritten.</p>
  <//>`;
}

const MODES = [["one", "Only this message"], ["later", "This one and all later ones"], ["all", "All messages of the topic"]];

export function MoveDialog({ message, close }) {
  const [mode, setMode] = useState("one");
  const [topicId, setTopicId] = useState("");
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState(null);
  const topics = topicsOf(message.channel_id).filter((topic) => topic.id !== message.topic_id);
  useEffect(() => {
    loadTopics(message.channel_id);
  }, []);
  useEffect(() => {
    let current = true;
    setPreview(null);
    setError(null);
    previewMove(message, mode).then((found) => current && setPreview(found), (failure) => current && setError(failure));
    return () => { current = false; };
  }, [mode]);
  const work = async () => {
    const { affected_count: count } = await move(message, topicId, mode);
    notify(`Moved ${showNumber(count)} ${count === 1 ? "message" : "messages"} to “${state.topics.get(topicId)?.title}”.`);
  };
  return html`<${Dialog} title="Move to another topic" action="Move" close=${close} work=${work} disabled=${!topicId || !preview}>
    <fieldset><legend>What moves</legend>${MODES.map(([value, text]) => html`<label class="choice">
      <input type="radio" name="mode" value=${value} checked=${mode === value} onChange=${() => setMode(value)} />${text}</label>`)}</fieldset>
    <label>To topic of the same channel<select value=${topicId} onChange=${(event) => setTopicId(event.target.value)} required>
      <option value="">Choose a topic</option>
      ${topics.map((topic) => html`<option key=${topic.id} value=${topic.id}>${topic.title}</option>`)}</select></label>
    <div class="preview" aria-live="polite">
      ${error && html`<${Failure} error=${error} />`}
      ${!preview && !error && html`<p class="soft">Counting…</p>`}
      ${preview && html`<p>${preview.more ? `More than ${showNumber(MOVE_COUNT_MAX)}` : showNumber(preview.count)} ${preview.count === 1 ? "message moves" : "messages move"}:</p>
        <ol class="samples">${preview.samples.map((each) => html`<li key=${each.id}><strong>${each.sender}</strong> ${newest(each).content_raw.slice(0, 90)}</li>`)}</ol>`}
    </div>
  <//>`;
}

// Everything that is known about a message.
export function Details({ message, close }) {
  const [error, setError] = useState(null);
  useEffect(() => {
    loadEnrichments(message.id).catch(setError);
  }, [message.id, message.version]);
  const rows = [["Message", message.id], ["Sender", message.sender], ["Token", message.principal], ["Version", message.version],
    ["Created", showMoment(message.created_at)], ["Edited", message.edited_at && showMoment(message.edited_at)],
    ["Deleted", message.deleted_at && `${showMoment(message.deleted_at)} by ${message.deleted_by}`]];
  return html`<section class="details" aria-label="Details of the message">
    <header class="bar"><h2>Message</h2><button class="plain" onClick=${close} aria-label="Close details"><span aria-hidden="true">× </span>Close</button></header>
    <dl>${rows.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    <p><a href=${link({ screen: "events", query: { topic_id: message.topic_id } })}>Events of its topic</a></p>
    ${!message.deleted_at && html`<${Command} label="Raw" text=${message.content_raw} />`}
    ${error && error.status !== 404 && html`<${Failure} error=${error} />`}
    <${Enrichments} message=${message} known=${state.enrichments.get(message.id)} />
  </section>`;
}

// Returns the address of a message if it could not be copied.
export async function copyLink(message) {
  const address = location.origin + location.pathname + link({ channel: message.channel_id, topic: message.topic_id, message: message.id });
  if (!(await copyText(address))) return address;
  notify("Link copied.");
  return null;
}
