// Search: words and phrases, with the matches marked.
import { get } from "./api.js";
import { Failure } from "./parts.js";
import { go, link } from "./router.js";
import { state, watchers } from "./store.js";
import { highlighted, showMoment, showNumber } from "./text.js";
import { html, useEffect, useState } from "./view.js";

const LIMIT = 100;
const PAUSE_MS = 300; // several changes are one search
const CHANGES = new Set(["message.edited", "message.deleted", "message.moved_topic"]);

export function SearchScreen({ place }) {
  const { q = "", channel_id = "", topic_id = "", sender = "" } = place.query;
  const [words, setWords] = useState(q);
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    setWords(q);
    setFound(null);
    setError(null);
    if (!q) return undefined;
    let [current, timer] = [true, 0];
    const search = () => get("/api/v1/search", { q, channel_id, topic_id, sender, limit: LIMIT }).then(
      (result) => current && setFound(result), (failure) => current && setError(failure),
    );
    // A match that changed is gone at once, and back if it still matches.
    const watch = ({ name, data: { message_id: id } }) => {
      if (!CHANGES.has(name)) return;
      setFound((old) => {
        const messages = old?.messages.filter((each) => each.id !== id);
        if (!messages || messages.length === old.messages.length) return old;
        clearTimeout(timer);
        timer = setTimeout(search, PAUSE_MS);
        return { ...old, messages };
      });
    };
    watchers.add(watch);
    search();
    return () => {
      current = false;
      clearTimeout(timer);
      watchers.delete(watch);
    };
  }, [q, channel_id, topic_id, sender]);
  const show = (query) => go(link({ screen: "search", query: { q: words.trim(), channel_id, topic_id, sender, ...query } }));
  const channels = [...state.channels.values()].sort((one, other) => one.name.localeCompare(other.name));
  return html`<section class="page" aria-label="Search">
    <h1>Search</h1>
    <form class="filters" role="search" onSubmit=${(event) => { event.preventDefault(); show({}); }}>
      <label class="wide">Words<input type="search" id="query" value=${words} maxlength="300" placeholder='words, "a phrase", one OR two'
        onInput=${(event) => setWords(event.target.value)} autofocus /></label>
      <label>Channel<select value=${channel_id} onChange=${(event) => show({ channel_id: event.target.value, topic_id: "" })}>
        <option value="">All channels</option>${channels.map((each) => html`<option key=${each.id} value=${each.id}>${each.name}</option>`)}</select></label>
      ${topic_id && html`<button type="button" onClick=${() => show({ topic_id: "" })}>Only “${state.topics.get(topic_id)?.title || topic_id}” ×</button>`}
      <button class="primary">Search</button>
    </form>
    <div aria-live="polite">
      ${error && html`<${Failure} error=${error} />`}
      ${q && !found && !error && html`<p class="soft">Searching…</p>`}
      ${found && html`<p class="soft">${found.messages.length
        ? `${found.has_more ? "The best" : ""} ${showNumber(found.messages.length)} ${found.messages.length === 1 ? "message" : "messages"}`
        : "No message has these words."}${!found.fts_used && found.messages.length > 0 ? " (without the index)" : ""}</p>`}
    </div>
    <ol class="results">${found?.messages.map((each) => html`<li key=${each.id}>
      <a href=${link({ channel: each.channel_id, topic: each.topic_id, message: each.id })}>
        <span class="soft">${state.channels.get(each.channel_id)?.name} · <strong>${each.sender}</strong> · ${showMoment(each.created_at)}</span>
        <span class="text">${highlighted(each.snippet, q)}</span></a></li>`)}</ol>
  </section>`;
}
