// Channels and their topics, with unread counts.
import { loadTopics, topicsOf, createChannel, createTopic, renameTopic } from "./hub.js";
import { Badge, Dialog, Failure } from "./parts.js";
import { go, link } from "./router.js";
import { mayPost } from "./session.js";
import { state, recall, keep, changed } from "./store.js";
import { unread } from "./unread.js";
import { html, useEffect, useState } from "./view.js";

const TOPICS_SHOWN = 12;
let opened = new Set(recall("opened", []));

function toggle(id) {
  opened = new Set(opened);
  if (!opened.delete(id)) opened.add(id);
  keep("opened", [...opened].slice(-200));
  changed();
}

export function Sidebar({ place, onNewChannel }) {
  const channels = [...state.channels.values()].sort((one, other) => one.name.localeCompare(other.name));
  return html`<nav class="sidebar" aria-label="Channels">
    <div class="heading"><h2>Channels</h2>
      ${mayPost() && html`<button class="plain" onClick=${onNewChannel} aria-label="New channel" title="New channel">+</button>`}
    </div>
    <ul>${channels.map((channel) => html`<${ChannelItem} key=${channel.id} channel=${channel} place=${place} />`)}</ul>
    ${state.loaded && !channels.length && html`<p class="soft pad">No channels yet.</p>`}
  </nav>`;
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
      <a href=${link({ channel: channel.id })} aria-current=${active && !place.topic ? "page" : undefined} title=${channel.name}>${channel.name}</a>
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
