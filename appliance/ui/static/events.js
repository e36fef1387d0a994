// The event log: the newest events, filtered, as they happen.
import { get } from "./api.js";
import { Newer, VirtualList } from "./list.js";
import { Failure } from "./parts.js";
import { go, link } from "./router.js";
import { Blocked } from "./start.js";
import { state, watchers } from "./store.js";
import { showMoment } from "./text.js";
import { Component, createRef, html, rarely } from "./view.js";
import { Log, PAGE } from "./window.js";

const HOUR_MS = 3_600_000;
const NAMES = ["channel.created", "topic.created", "topic.renamed", "message.created", "message.edited", "message.deleted",
  "message.moved_topic", "message.enriched", "topic.attachment_added"];

const keyOf = (event) => String(event.event_id);

// The events that match the filters, as a window of the log: around an event, or at its end.
function eventLog(filters, around) {
  const page = async (range) => {
    const { events, has_more: more } = await get("/api/v1/events", { ...range, ...filters });
    return { items: events, more };
  };
  const log = new Log({
    keyOf, order: (one, other) => one.event_id - other.event_id,
    read: ({ before, after }) => page(after ? { after: after.event_id, limit: PAGE } : { tail: PAGE, before: before?.event_id }),
  });
  if (around) {
    log.loadAround(async () => {
      const [above, below] = await Promise.all([page({ tail: PAGE, before: around }), page({ after: around - 1, limit: PAGE })]);
      return { items: [...above.items, ...below.items], older: above.more, newer: below.more };
    });
  } else {
    log.loadNewest();
  }
  return log;
}

export class EventsScreen extends Component {
  constructor(props) {
    super(props);
    const event = Number(props.place.query.event) || 0;
    this.list = createRef();
    this.log = eventLog(this.filters, event);
    this.state = { open: new Set([event]) };
    this.onEvent = this.onEvent.bind(this);
    this.toggle = this.toggle.bind(this);
  }

  componentDidMount() {
    watchers.add(this.onEvent);
  }

  componentWillUnmount() {
    watchers.delete(this.onEvent);
  }

  get filters() {
    const { name, channel_id, topic_id } = this.props.place.query;
    return { name, channel_id, topic_id };
  }

  onEvent(frame) {
    const { name, channel_id, topic_id } = this.filters;
    const { scope = {} } = frame;
    if (name && frame.name !== name) return;
    if (channel_id && scope.channel_id !== channel_id) return;
    if (topic_id && scope.topic_id !== topic_id && scope.topic_id2 !== topic_id) return;
    if (!this.log.following) this.log.unseen += 1;
    this.log.insert({ ...frame, data_json: frame.data });
  }

  toEnd() {
    if (this.props.place.query.event) go(link({ screen: "events", query: this.filters }));
    else if (this.log.newer) this.log.loadNewest();
    else this.list.current?.toEnd();
  }

  toggle(id) {
    this.setState(({ open }) => {
      const next = new Set(open);
      if (!next.delete(id)) next.add(id);
      return { open: next };
    });
  }

  render({ place }, { open }) {
    const { log } = this;
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
        </form></header>
      <div class="stream">
        ${log.error && (log.error.status === 403 ? html`<${Blocked} error=${log.error} />` : html`<${Failure} error=${log.error} retry=${log.loadNewest} />`)}
        ${log.filled && !log.loading && !log.items.length && !log.error && html`<p class="soft pad">No events here yet. New ones appear as they happen.</p>`}
        ${log.items.length > 0 && html`<${VirtualList} key=${log.turn} self=${this.list} items=${log.items} keyOf=${keyOf} label="Events"
          follow=${!log.newer} focus=${place.query.event || null} busy=${Boolean(log.loading)} onFollow=${(value) => log.follow(value)}
          onTop=${() => log.older && !log.loading && !log.error && log.loadOlder()}
          onEnd=${() => log.newer && !log.loading && !log.error && log.loadNewer()}
          row=${(event, index, items) => html`<${Event} event=${event} above=${items[index - 1]} open=${open.has(event.event_id)} toggle=${this.toggle} />`} />`}
        <${Newer} log=${log} count=${log.unseen} show=${() => this.toEnd()} /></div>
    </section>`;
  }
}

const Event = rarely(({ event, above, open, toggle }) => {
  const jump = above ? Date.parse(event.ts) - Date.parse(above.ts) : 0;
  const target = place(event);
  return html`<div class="event" role="article" aria-label=${`Event ${event.event_id}, ${event.name}`}>
    <div class="line"><button class="plain fold" aria-expanded=${open ? "true" : "false"} onClick=${() => toggle(event.event_id)}
      aria-label=${`JSON of event ${event.event_id}`}>${open ? "▾" : "▸"}</button>
      <a class="number" href=${link({ screen: "events", query: { event: event.event_id } })} aria-label=${`Link to event ${event.event_id}`}>${event.event_id}</a>
      <strong>${event.name}</strong>
      <span class="summary">${summary(event)}</span>
      ${target && html`<a href=${link(target)}>Open</a>`}
      <time class="soft" datetime=${event.ts}>${showMoment(event.ts)}</time></div>
    ${jump < -HOUR_MS && html`<p class="bad">The clock went back by more than an hour before this event. Its number gives the order.</p>`}
    ${open && html`<pre tabindex="0">${JSON.stringify(event.data_json, null, 2)}</pre>`}
  </div>`;
});

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
