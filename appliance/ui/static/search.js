// Search: words, phrases and filters as pills, with the matches marked.
import { get } from "./api.js";
import { loadTopics } from "./hub.js";
import { Failure } from "./parts.js";
import { go, link } from "./router.js";
import { state, watchers } from "./store.js";
import { highlighted, midnight, showMoment, showNumber } from "./text.js";
import { html, useEffect, useLayoutEffect, useState } from "./view.js";

const LIMIT = 50; // results at first, and more each time
const LIMIT_MAX = 1_000;
const TITLES_MAX = 20; // topics whose titles are loaded
const PAUSE_MS = 300; // several changes are one search
const CHANGES = new Set(["message.edited", "message.deleted", "message.moved_topic"]);

const FILTERS = { channel_id: "in", topic_id: "topic", sender: "from", since: "since", until: "until" };
const shownFilter = (name, value) =>
  ({ channel_id: state.channels.get(value)?.name, topic_id: state.topics.get(value)?.title })[name] || value;

export function SearchScreen({ place }) {
  const { q = "", channel_id = "", topic_id = "", sender = "", since = "", until = "", order = "" } = place.query;
  const [words, setWords] = useState(q);
  const [name, setName] = useState(sender);
  const [limit, setLimit] = useState(LIMIT);
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const key = JSON.stringify(place.query);
  useLayoutEffect(() => { // at once: later, it would delete what was typed since
    setWords(q);
    setName(sender);
    setLimit(LIMIT);
    setFound(null);
    setError(null);
  }, [key]);
  useEffect(() => {
    if (!q) return undefined;
    let [current, timer] = [true, 0];
    const query = { q, channel_id, topic_id, sender, order, after: midnight(since), before: midnight(until, 1), prefix: true, limit };
    const search = () => get("/api/v1/search", query).then(
      (result) => current && (setFound(result), loadTitles(result.messages)), (failure) => current && setError(failure),
    );
    // A match that changed is gone at once, and back if it still matches.
    const watch = ({ name: event, data: { message_id: id } }) => {
      if (!CHANGES.has(event)) return;
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
  }, [key, limit]);
  const show = (query) => go(link({ screen: "search", query: { ...place.query, q: words.trim(), sender: name.trim(), ...query } }));
  const channels = [...state.channels.values()].sort((one, other) => one.name.localeCompare(other.name));
  const filters = Object.keys(FILTERS).filter((each) => place.query[each]);
  return html`<section class="page" aria-label="Search">
    <h1>Search</h1>
    <form class="filters" role="search" onSubmit=${(event) => { event.preventDefault(); show({}); }}>
      <label class="wide">Words<input type="search" id="query" value=${words} maxlength="300" placeholder='words, "a phrase", one OR two'
        onInput=${(event) => setWords(event.target.value)} autofocus /></label>
      <label>Sender<input value=${name} maxlength="200" size="12" onInput=${(event) => setName(event.target.value)} onChange=${(event) => show({ sender: event.target.value.trim() })} /></label>
      <label>Channel<select value=${channel_id} onChange=${(event) => show({ channel_id: event.target.value, topic_id: "" })}>
        <option value="">All channels</option>${channels.map((each) => html`<option key=${each.id} value=${each.id}>${each.name}</option>`)}</select></label>
      <label>Since<input type="date" value=${since} onChange=${(event) => show({ since: event.target.value })} /></label>
      <label>Until<input type="date" value=${until} onChange=${(event) => show({ until: event.target.value })} /></label>
      <label>Order<select value=${order} onChange=${(event) => show({ order: event.target.value })}>
        <option value="">Best first</option><option value="newest">Newest first</option></select></label>
      <button class="primary">Search</button>
    </form>
    ${filters.length > 0 && html`<p class="pills">${filters.map((each) => html`<button key=${each} aria-label=${`Remove the filter ${FILTERS[each]}`}
      onClick=${() => show({ [each]: "" })}><span class="soft">${FILTERS[each]}</span> ${shownFilter(each, place.query[each])} ×</button>`)}</p>`}
    <div aria-live="polite">
      ${error && html`<${Failure} error=${error} />`}
      ${q && !found && !error && html`<p class="soft">Searching…</p>`}
      ${found && html`<p class="soft">${found.messages.length
        ? `${found.has_more ? `The ${order || "best"}` : ""} ${showNumber(found.messages.length)} ${found.messages.length === 1 ? "message" : "messages"}`
        : "No message has these words."}${!found.fts_used && found.messages.length > 0 ? " (without the index)" : ""}</p>`}
    </div>
    <ol class="results">${found?.messages.map((each) => html`<li key=${each.id}>
      <a href=${link({ channel: each.channel_id, topic: each.topic_id, message: each.id })}>
        <span class="soft">${state.channels.get(each.channel_id)?.name} › ${state.topics.get(each.topic_id)?.title || "…"} · <strong>${each.sender}</strong> · ${showMoment(each.created_at)}</span>
        <span class="text">${highlighted(each.snippet, q)}</span></a></li>`)}</ol>
    ${found?.has_more && limit < LIMIT_MAX && html`<button onClick=${() => setLimit(limit + LIMIT)}>More results</button>`}
  </section>`;
}

// The titles of the topics that results are in.
function loadTitles(messages) {
  const missing = new Map(messages.filter((each) => !state.topics.has(each.topic_id)).map((each) => [each.topic_id, each.channel_id]));
  for (const [topicId, channelId] of [...missing].slice(0, TITLES_MAX)) loadTopics(channelId, topicId);
}
