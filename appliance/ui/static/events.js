// The event log: the newest events, filtered, as they happen.
import { get } from "./api.js";
import { VirtualList } from "./list.js";
import { Failure } from "./parts.js";
import { go, link } from "./router.js";
import { state, watchers } from "./store.js";
import { showMoment, showNumber } from "./text.js";
import { Component, html } from "./view.js";

const PAGE = 200;
const ROWS_MAX = 5_000;
const HOUR_MS = 3_600_000;
const NAMES = ["channel.created", "topic.created", "topic.renamed", "message.created", "message.edited", "message.deleted",
  "message.moved_topic", "message.enriched", "topic.attachment_added"];

export class EventsScreen extends Component {
  constructor(props) {
    super(props);
    this.state = { items: [], error: null, loading: true, paused: false, waiting: [], open: new Set() };
    this.onEvent = this.onEvent.bind(this);
  }

  componentDidMount() {
    watchers.add(this.onEvent);
    this.load();
  }

  componentDidUpdate(before) {
    if (JSON.stringify(before.place.query) !== JSON.stringify(this.props.place.query)) this.load();
  }

  componentWillUnmount() {
    watchers.delete(this.onEvent);
  }

  get filters() {
    const { name, channel_id, topic_id } = this.props.place.query;
    return { name, channel_id, topic_id };
  }

  async load() {
    const { filters } = this;
    const event = Number(this.props.place.query.event) || 0; // with those around it, and without new ones
    this.setState({ loading: true, error: null, items: [], waiting: [], paused: event > 0, open: new Set([event]) });
    try {
      const range = event ? { after: Math.max(0, event - PAGE / 2), limit: PAGE } : { tail: PAGE };
      const { events } = await get("/api/v1/events", { ...range, ...filters });
      if (JSON.stringify(filters) !== JSON.stringify(this.filters)) return;
      this.setState(({ items }) => {
        const last = events.at(-1)?.event_id ?? 0;
        return { items: [...events, ...items.filter((each) => each.event_id > last)], loading: false };
      });
    } catch (error) {
      this.setState({ error, loading: false });
    }
  }

  onEvent(frame) {
    const { name, channel_id, topic_id } = this.filters;
    const { scope = {} } = frame;
    if (name && frame.name !== name) return;
    if (channel_id && scope.channel_id !== channel_id) return;
    if (topic_id && scope.topic_id !== topic_id && scope.topic_id2 !== topic_id) return;
    const event = { ...frame, data_json: frame.data };
    const list = this.state.paused ? "waiting" : "items";
    this.setState((old) => ({ [list]: [...old[list], event].slice(-ROWS_MAX) }));
  }

  pause() {
    if (this.props.place.query.event) return go(link({ screen: "events", query: this.filters }));
    return this.setState(({ paused, items, waiting }) =>
      paused ? { paused: false, items: [...items, ...waiting].slice(-ROWS_MAX), waiting: [] } : { paused: true });
  }

  toggle(id) {
    this.setState(({ open }) => {
      const next = new Set(open);
      if (!next.delete(id)) next.add(id);
      return { open: next };
    });
  }

  render({ place }, { items, error, loading, paused, waiting, open }) {
    const { name = "", channel_id = "", topic_id = "" } = place.query;
    const show = (query) => go(link({ screen: "events", query: { name, channel_id, topic_id, ...query } }));
    return html`<section class="topic" aria-label="Events">
      <header class="bar"><h1>Events</h1>
        <form class="filters" onSubmit=${(event) => event.preventDefault()}>
          <label>Event<select value=${name} onChange=${(event) => show({ name: event.target.value })}>
            <option value="">All events</option>${NAMES.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
          <label>Channel<select value=${channel_id} onChange=${(event) => show({ channel_id: event.target.value })}>
            <option value="">All channels</option>${[...state.channels.values()].map((each) => html`<option key=${each.id} value=${each.id}>${each.name}</option>`)}</select></label>
          ${topic_id && html`<button type="button" onClick=${() => show({ topic_id: "" })}>Only “${state.topics.get(topic_id)?.title || topic_id}” ×</button>`}
        </form>
        <button aria-pressed=${paused ? "true" : "false"} onClick=${() => this.pause()}>
          ${paused ? `Continue${waiting.length ? ` (${showNumber(waiting.length)} new)` : ""}` : "Pause"}</button></header>
      ${error && html`<${Failure} error=${error} retry=${() => this.load()} />`}
      ${!loading && !items.length && !error && html`<p class="soft pad">No events here yet. New ones appear as they happen.</p>`}
      ${items.length > 0 && html`<${VirtualList} key=${JSON.stringify(place.query)} items=${items} keyOf=${keyOf} label="Events" follow=${!paused} focus=${place.query.event || null}
        row=${(event, index) => html`<${Event} event=${event} above=${items[index - 1]} open=${open.has(event.event_id)}
          toggle=${() => this.toggle(event.event_id)} />`} />`}
    </section>`;
  }
}

const keyOf = (event) => String(event.event_id);

function Event({ event, above, open, toggle }) {
  const jump = above ? Date.parse(event.ts) - Date.parse(above.ts) : 0;
  const target = place(event);
  return html`<div class="event" role="article" aria-label=${`Event ${event.event_id}, ${event.name}`}>
    <div class="line"><button class="plain fold" aria-expanded=${open ? "true" : "false"} onClick=${toggle}
      aria-label=${`JSON of event ${event.event_id}`}>${open ? "▾" : "▸"}</button>
      <a class="number" href=${link({ screen: "events", query: { event: event.event_id } })} aria-label=${`Link to event ${event.event_id}`}>${event.event_id}</a>
      <strong>${event.name}</strong>
      <span class="summary">${summary(event)}</span>
      ${target && html`<a href=${link(target)}>Open</a>`}
      <time class="soft" datetime=${event.ts}>${showMoment(event.ts)}</time></div>
    ${jump < -HOUR_MS && html`<p class="bad">The clock went back by more than an hour before this event. Its number gives the order.</p>`}
    ${open && html`<pre tabindex="0">${JSON.stringify(event.data_json, null, 2)}</pre>`}
  </div>`;
}

function summary({ name, data_json: data }) {
  if (name === "channel.created") return data.channel?.name;
  if (name === "topic.created") return data.topic?.title;
  if (name === "topic.renamed") return `${data.old_title} → ${data.new_title}`;
  if (name === "message.created") return `${data.message?.sender}: ${(data.message?.content_raw || "").slice(0, 120)}`;
  if (name === "message.edited") return (data.new_content || "").slice(0, 120);
  if (name === "message.deleted") return `by ${data.deleted_by}`;
  if (name === "topic.attachment_added") return String(data.attachment?.value_json?.title || data.attachment?.value_json?.url || data.attachment?.kind || "");
  return data.message_id || "";
}

// Where an event's entity is shown.
function place({ scope = {}, data_json: data }) {
  const channel = scope.channel_id || data.channel?.id;
  const topic = data.new_topic_id || scope.topic_id || data.topic?.id;
  const message = data.message?.id || data.message_id;
  return channel ? { channel, topic, message: topic && message } : null;
}
