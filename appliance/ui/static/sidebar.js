// Channels and their topics, with unread counts.
import { loadTopics, topicsOf, createChannel, createTopic, renameTopic } from "./hub.js";
import { Badge, Dialog, Failure } from "./parts.js";
import { go, link } from "./router.js";
import { mayPost } from "./session.js";
import { state, recall, keep, changed } from "./store.js";
import { showNumber } from "./text.js";
import { unread } from "./unread.js";
import { html, useEffect, useRef, useState } from "./view.js";

const TOPICS_SHOWN = 12;
const ACTIVE_MAX = 25; // channels that are listed without asking for more
const FILTERED_MAX = 100;
let opened = new Set(recall("opened", []));
let pinned = new Set(recall("pinned", []));

function toggle(id) {
  opened = new Set(opened);
  if (!opened.delete(id)) opened.add(id);
  keep("opened", [...opened].slice(-200));
  changed();
}

function togglePin(id) {
  if (!pinned.delete(id)) pinned.add(id);
  keep("pinned", [...pinned]);
  changed();
}

// The latest activity of each channel: topic's times, and unread messages count as now.
function activityOf() {
  const latest = new Map();
  for (const { channel_id: id, updated_at: at } of state.topics.values()) if (!(latest.get(id) >= at)) latest.set(id, at);
  for (const { channel, at } of Object.values(unread.topics)) latest.set(channel, at || "9");
  return latest;
}

// The channels in three groups, each by name: pinned, active lately, and the rest.
function grouped(channels, place) {
  const others = channels.filter(({ id }) => !pinned.has(id));
  const latest = others.length > ACTIVE_MAX && activityOf();
  const rank = ({ id }) => (id === place.channel || opened.has(id) ? "~" : latest.get(id) || "");
  const byActivity = latest ? [...others].sort((one, other) => Number(rank(one) < rank(other)) - Number(rank(one) > rank(other))) : others;
  const active = new Set(byActivity.slice(0, ACTIVE_MAX));
  return [
    ["Pinned", channels.filter(({ id }) => pinned.has(id))],
    ["Active", others.filter((channel) => active.has(channel))],
    ["More", others.filter((channel) => !active.has(channel))],
  ];
}

function isWithin(row, box) {
  const [inner, outer] = [row.getBoundingClientRect(), box.getBoundingClientRect()];
  return inner.top >= outer.top && inner.bottom <= outer.bottom;
}

export function Sidebar({ place, menu, onNewChannel }) {
  const [filter, setFilter] = useState("");
  const [all, setAll] = useState(false);
  const box = useRef(null);
  const current = useRef({ row: null, isInView: false });
  const currentRow = () => box.current.querySelector("[aria-current]");
  const noteScroll = () => {
    const row = currentRow();
    if (row === current.current.row) current.current.isInView = row && isWithin(row, box.current);
  };
  useEffect(() => { // the open channel or topic comes into view, and stays there when rows above it change
    const [row, before] = [currentRow(), current.current];
    if (row && (row !== before.row || before.isInView || menu !== before.menu)) row.scrollIntoView({ block: "nearest" });
    current.current = { row, menu, isInView: row && isWithin(row, box.current) };
  });
  const channels = [...state.channels.values()].sort((one, other) => one.name.localeCompare(other.name));
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return html`<nav class="sidebar" aria-label="Channels" ref=${box} onScroll=${noteScroll}>
    <div class="sidebar-top"><div class="heading"><h2>Channels</h2>
      ${mayPost() && html`<button class="plain" onClick=${onNewChannel} aria-label="New channel"><span aria-hidden="true">+ </span>New</button>`}
    </div>
    <input type="search" value=${filter} maxlength="100" placeholder="Filter" aria-label="Filter channels and topics" onInput=${(event) => setFilter(event.target.value)} /></div>
    ${words.length ? html`<${Filtered} channels=${channels} words=${words} place=${place} />`
      : grouped(channels, place).filter(([, group]) => group.length).map(([name, group], _, groups) => html`<section key=${name} aria-label=${`${name} channels`}>
        ${name === "More" ? html`<button class="plain" aria-expanded=${all ? "true" : "false"} onClick=${() => setAll(!all)}>${all ? "Fewer" : `More (${showNumber(group.length)})`}</button>`
          : groups.length > 1 && html`<h3>${name}</h3>`}
        ${(name !== "More" || all) && html`<ul>${group.map((channel) => html`<${ChannelItem} key=${channel.id} channel=${channel} place=${place} />`)}</ul>`}</section>`)}
    ${state.loaded && !channels.length && html`<p class="soft pad">No channels yet.</p>`}
  </nav>`;
}

// Channels and topics whose names have all words.
function Filtered({ channels, words, place }) {
  const matches = (text) => words.every((word) => text.toLowerCase().includes(word));
  const names = new Map(channels.map(({ id, name }) => [id, name]));
  const rows = [
    ...channels.filter(({ name }) => matches(name)).map(({ id, name }) => ({ id, name, to: { channel: id } })),
    ...[...state.topics.values()].map(({ id, title, channel_id: channel }) => ({ id, name: `${names.get(channel)} › ${title}`, to: { channel, topic: id } })).filter(({ name }) => matches(name)),
  ];
  return html`<p class="soft pad" role="status">${rows.length > FILTERED_MAX ? `The first ${FILTERED_MAX} of ${showNumber(rows.length)}` : `${rows.length} found`}</p>
    <ul class="filtered">${rows.slice(0, FILTERED_MAX).map(({ id, name, to }) => html`<li key=${id}><a href=${link(to)} title=${name}
      class=${unread.ofTopic(id) ? "unread" : ""} aria-current=${(place.topic || place.channel) === id ? "page" : undefined}>${name}</a></li>`)}</ul>`;
}

function ChannelItem({ channel, place }) {
  const active = place.channel === channel.id;
  const open = active || opened.has(channel.id);
  const [all, setAll] = useState(false);
  useEffect(() => {
    if (open && !state.channelTopics.has(channel.id)) loadTopics(channel.id);
  });
  const list = state.channelTopics.get(channel.id);
  const topics = open ? topicsOf(channel.id) : [];
  const shown = all ? topics : topics.filter((topic, index) => index < TOPICS_SHOWN || topic.id === place.topic);
  const more = () => {
    setAll(true);
    if (list?.more) loadTopics(channel.id);
  };
  return html`<li>
    <div class=${`channel ${active && !place.topic ? "active" : ""}`}>
      <button class="plain fold" aria-expanded=${open ? "true" : "false"} onClick=${() => toggle(channel.id)}
        aria-label=${`Topics of ${channel.name}`}>${open ? "▾" : "▸"}</button>
      <a class=${unread.ofChannel(channel.id) ? "unread" : ""} href=${link({ channel: channel.id })} aria-current=${active && !place.topic ? "page" : undefined} title=${channel.name}>${channel.name}</a>
      <${Badge} count=${open ? 0 : unread.ofChannel(channel.id)} />
    </div>
    ${open && html`<ul class="topics">
      ${shown.map((topic) => html`<li key=${topic.id}>
        <a class=${unread.ofTopic(topic.id) ? "unread" : ""} href=${link({ channel: channel.id, topic: topic.id })}
          aria-current=${place.topic === topic.id ? "page" : undefined} title=${topic.title}><span>${topic.title}</span>
          <${Badge} count=${unread.ofTopic(topic.id)} /></a></li>`)}
      ${list?.error && html`<li><${Failure} error=${list.error} /></li>`}
      ${(shown.length < topics.length || (all && list?.more)) && html`<li><button class="plain soft" onClick=${more}>more topics</button></li>`}
    </ul>`}
  </li>`;
}

// All topics of a channel, as a table.
export function ChannelScreen({ place }) {
  const channel = state.channels.get(place.channel);
  const [naming, setNaming] = useState(false);
  useEffect(() => {
    if (channel && !state.channelTopics.has(channel.id)) loadTopics(channel.id);
  }, [channel?.id, state.channelTopics]);
  if (!channel) return html`<section class="page"><h1>Channel not found</h1><p>It may be hidden from your token.</p></section>`;
  const list = state.channelTopics.get(channel.id);
  const topics = topicsOf(channel.id);
  return html`<section class="page">
    <header class="bar"><h1>${channel.name}</h1>
      <button aria-pressed=${pinned.has(channel.id) ? "true" : "false"} onClick=${() => togglePin(channel.id)}>${pinned.has(channel.id) ? "Unpin" : "Pin"}</button>
      ${mayPost(channel.id) && html`<button class="primary" onClick=${() => setNaming(true)}>New topic</button>`}</header>
    ${channel.description && html`<p class="soft">${channel.description}</p>`}
    ${list?.error && html`<${Failure} error=${list.error} />`}
    ${topics.length > 0 && html`<ul class="cards">${topics.map((topic) => html`<li key=${topic.id}>
      <a href=${link({ channel: channel.id, topic: topic.id })}><strong>${topic.title}</strong>
      <${Badge} count=${unread.ofTopic(topic.id)} /></a></li>`)}</ul>`}
    ${list && !list.loading && !topics.length && !list.error && html`<p class="soft">No topics yet. A topic holds the messages about one subject.</p>`}
    ${list?.more && html`<button onClick=${() => loadTopics(channel.id)}>More topics</button>`}
    ${naming && html`<${NewTopic} channel=${channel} close=${() => setNaming(false)} />`}
  </section>`;
}

export function NewChannel({ close }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const work = async () => go({ channel: (await createChannel(name.trim(), description.trim())).id });
  return html`<${Dialog} title="New channel" action="Create channel" close=${close} work=${work} disabled=${!name.trim()}>
    <label>Name<input value=${name} maxlength="100" onInput=${(event) => setName(event.target.value)} required autofocus /></label>
    <label>Description<input value=${description} maxlength="2000" onInput=${(event) => setDescription(event.target.value)} /></label>
  <//>`;
}

function NewTopic({ channel, close }) {
  const [title, setTitle] = useState("");
  const work = async () => go({ channel: channel.id, topic: (await createTopic(channel.id, title.trim())).id });
  return html`<${Dialog} title=${`New topic in ${channel.name}`} action="Create topic" close=${close} work=${work} disabled=${!title.trim()}>
    <label>Title<input value=${title} maxlength="200" onInput=${(event) => setTitle(event.target.value)} required autofocus /></label>
  <//>`;
}

export function RenameTopic({ topic, close }) {
  const [title, setTitle] = useState(topic.title);
  return html`<${Dialog} title="Rename topic" action="Rename" close=${close} work=${() => renameTopic(topic.id, title.trim())}
    disabled=${!title.trim() || title === topic.title}>
    <label>Title<input value=${title} maxlength="200" onInput=${(event) => setTitle(event.target.value)} required autofocus /></label>
  <//>`;
}
