// A topic: its messages, where to write, and its attachments.
import { draftOf, dropDraft, keepDraft } from "./drafts.js";
import { attempt, firstSince, loadAttachments, loadTopics, newest, openLog, send } from "./hub.js";
import { Newer, VirtualList } from "./list.js";
import { copyLink, DeleteDialog, Details, EditDialog, Message, MoveDialog, TEXT_BYTES_MAX } from "./messages.js";
import { AddressDialog, Dialog, Empty, Failure } from "./parts.js";
import { goQuietly, link } from "./router.js";
import { mayPost, rememberSender, senderName } from "./session.js";
import { RenameTopic } from "./sidebar.js";
import { notify, state, watchers } from "./store.js";
import { bytesOf, midnight, Outside, safeUrl, showMoment, showNumber } from "./text.js";
import { unread } from "./unread.js";
import { Component, createRef, html, useEffect, useState } from "./view.js";

const WIDE_PX = 1_280; // from there on, a pane stands beside the messages and hides none
const HEARD_MS = 1_000;
const DIALOGS = { edit: EditDialog, move: MoveDialog, delete: DeleteDialog };
const keyOf = (message) => message.id;

// Where one was in a topic, for reload and the back button.
const placeOf = (topicId) => {
  try {
    return JSON.parse(sessionStorage.getItem(`agentlip.ui.place.${topicId}`));
  } catch {
    return null;
  }
};
function keepPlace(topicId, place) {
  try {
    if (place) sessionStorage.setItem(`agentlip.ui.place.${topicId}`, JSON.stringify(place));
    else sessionStorage.removeItem(`agentlip.ui.place.${topicId}`);
  } catch {
    // Then a reload begins at the end.
  }
}

export class TopicScreen extends Component {
  constructor(props) {
    super(props);
    this.compose = createRef();
    this.list = createRef();
    this.state = { dialog: null, target: null, details: null, pane: innerWidth >= WIDE_PX, renaming: false };
    this.act = this.act.bind(this);
    this.onKey = this.onKey.bind(this);
  }

  componentDidMount() {
    addEventListener("keydown", this.onKey);
    this.enter();
  }

  componentDidUpdate(before) {
    if (before.place.topic !== this.props.place.topic) unread.leave(before.place.topic);
    this.enter();
  }

  componentWillUnmount() {
    removeEventListener("keydown", this.onKey);
    unread.leave(this.props.place.topic);
  }

  enter() {
    const { channel, topic } = this.props.place;
    const log = state.logs.get(topic);
    unread.read(log?.following && !log.newer ? topic : null);
    if (!state.topics.has(topic) && !state.channelTopics.get(channel)?.error) loadTopics(channel, topic);
    if (this.state.pane && !state.attachments.has(topic)) {
      state.attachments.set(topic, { items: [], more: false });
      attempt(() => loadAttachments(topic));
    }
  }

  act(name, message) {
    if (name === "select") this.select(message);
    else if (name === "link") copyLink(message).then((address) => this.setState({ address }));
    else if (name === "details") this.setState({ details: message.id });
    else this.setState({ dialog: name, target: message });
  }

  select(message) {
    const { channel, topic } = this.props.place;
    goQuietly(link({ channel, topic, message: message.id }));
  }

  // Shows the newest messages from now on.
  toEnd() {
    const { channel, topic, message } = this.props.place;
    const log = state.logs.get(topic);
    keepPlace(topic, null);
    if (message) goQuietly(link({ channel, topic }));
    if (log.newer) log.loadNewest();
    else this.list.current?.toEnd();
  }

  // Selects the first message of a day or, if there is none, of the next day with messages.
  async jump(day) {
    const { channel, topic } = this.props.place;
    const first = await firstSince(topic, midnight(day));
    if (first) goQuietly(link({ channel, topic, message: first.id }));
    else notify("No messages since that day.");
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const { items } = state.logs.get(this.props.place.topic) || { items: [] };
    const index = items.findIndex((each) => each.id === this.props.place.message);
    const selected = items[index];
    const step = { j: 1, k: -1 }[event.key];
    if (step) {
      const next = items[index < 0 ? items.length - 1 : index + step];
      if (next) {
        this.select(next);
        if (this.list.current) this.list.current.wantsFocus = true;
      }
    } else if (event.key === "c" && this.compose.current) {
      this.compose.current.focus();
    } else if (event.key === "t") {
      this.setState({ jumping: true });
    } else if (event.key === "l" && selected) {
      this.act("link", selected);
    } else if (event.key === "i" && selected) {
      this.act("details", selected);
    } else if (selected && mayPost(this.props.place.channel) && !selected.deleted_at && { e: 1, m: 1, d: 1 }[event.key]) {
      this.act({ e: "edit", m: "move", d: "delete" }[event.key], selected);
    } else {
      return;
    }
    event.preventDefault();
  }

  render({ place }, { dialog, target, details, address, pane, renaming, jumping }) {
    const { channel: channelId, topic: topicId, message: messageId } = place;
    const channel = state.channels.get(channelId);
    const topic = state.topics.get(topicId);
    const saved = placeOf(topicId);
    const log = openLog(topicId, messageId || (state.logs.get(topicId)?.filled ? null : saved?.key));
    const shown = details && log.items.find((each) => each.id === details);
    const Box = dialog && DIALOGS[dialog];
    const writable = mayPost(channelId);
    const firstNew = unread.firstOf(topicId);
    return html`<section class="topic" aria-label=${topic?.title || "Topic"}>
      <header class="bar"><h1><a class="soft" href=${link({ channel: channelId })} title=${channel?.name}>${channel?.name || "Channel"}</a>
        <span aria-hidden="true">›</span><span class="title" title=${topic?.title}>${topic?.title || "Topic"}</span></h1>
        ${topic && writable && html`<button class="plain rename" onClick=${() => this.setState({ renaming: true })}>Rename</button>`}
        <button class="plain" onClick=${() => this.setState({ jumping: true })}>Jump to day</button>
        <a class="button plain" href=${link({ screen: "search", query: { topic_id: topicId } })}>Search</a>
        <button class="plain" aria-pressed=${pane ? "true" : "false"} onClick=${() => this.setState({ pane: !pane })}>Attachments</button></header>
      <div class="columns">
        <div class="stream">
          ${log.error && html`<${Failure} error=${log.error} retry=${log.loadNewest} />`}
          ${log.filled && !log.items.length && !log.error && !log.loading && html`<${Empty} title="No messages yet">
            <p class="soft">${writable ? "Write the first one below." : "Messages appear here as agents post them."}</p><//>`}
          ${log.filled && log.items.length > 0 && html`<${VirtualList} key=${`${topicId} ${log.turn}`} self=${this.list} items=${log.items} keyOf=${keyOf} label="Messages"
            follow=${!log.newer} focus=${messageId || null} place=${messageId ? null : saved} busy=${Boolean(log.loading)}
            onPlace=${(value) => keepPlace(topicId, value)} onFollow=${(value) => { log.follow(value); this.enter(); }}
            onTop=${() => log.older && !log.loading && !log.error && log.loadOlder()}
            onEnd=${() => log.newer && !log.loading && !log.error && log.loadNewer()}
            row=${(message, index, items) => html`<${Message} message=${message} above=${items[index - 1]} isFirstNew=${message.id === firstNew}
              selected=${message.id === messageId} act=${this.act} enriched=${state.enrichments.get(message.id)} writable=${writable} />`} />`}
          ${!log.items.length && log.loading && html`<p class="soft pad">Loading messages…</p>`}
          <${Announcer} key=${`heard ${topicId}`} topicId=${topicId} />
          <${Newer} log=${log} count=${unread.ofTopic(topicId)} show=${() => this.toEnd()} />
          <${Compose} key=${topicId} to=${[channel?.name, topic?.title].filter(Boolean).join(" › ")} writable=${writable} topicId=${topicId} area=${this.compose} sending=${() => this.toEnd()} />
        </div>
        ${(pane || shown) && html`<aside class="pane" aria-label="Attachments and details">
          ${shown ? html`<${Details} message=${shown} close=${() => this.setState({ details: null })} />`
            : html`<${Attachments} topicId=${topicId} place=${place} close=${() => this.setState({ pane: false })} />`}</aside>`}
      </div>
      ${Box && html`<${Box} message=${newest(target)} close=${() => this.setState({ dialog: null })} />`}
      ${address && html`<${AddressDialog} address=${address} close=${() => this.setState({ address: null })} />`}
      ${jumping && html`<${JumpDialog} jump=${(day) => this.jump(day)} close=${() => this.setState({ jumping: false })} />`}
      ${renaming && topic && html`<${RenameTopic} topic=${topic} close=${() => this.setState({ renaming: false })} />`}
    </section>`;
  }
}

function JumpDialog({ jump, close }) {
  const [day, setDay] = useState("");
  return html`<${Dialog} title="Jump to a day" action="Jump" close=${close} work=${() => jump(day)} disabled=${!midnight(day)}>
    <label>Day<input type="date" value=${day} onInput=${(event) => setDay(event.target.value)} required autofocus /></label>
  <//>`;
}

// What a screen reader hears of new messages: several together, and never their texts.
function Announcer({ topicId }) {
  const [text, setText] = useState("");
  useEffect(() => {
    let [count, timer] = [0, 0];
    const watch = ({ name, data }) => {
      if (name !== "message.created" || data.message.topic_id !== topicId) return;
      count += 1;
      const words = `${count === 1 ? "New message" : `${showNumber(count)} new messages, the last`} from ${data.message.sender}`;
      clearTimeout(timer);
      timer = setTimeout(() => {
        count = 0;
        setText(words);
      }, HEARD_MS);
    };
    watchers.add(watch);
    return () => {
      watchers.delete(watch);
      clearTimeout(timer);
    };
  }, []);
  return html`<p class="heard" aria-live="polite">${text}</p>`;
}

function Compose({ to, topicId, writable, area, sending }) {
  const [text, setText] = useState(draftOf(topicId) || "");
  const [sender, setSender] = useState(senderName());
  const [busy, setBusy] = useState(false);
  const write = (written) => {
    setText(written);
    if (written) keepDraft(topicId, written);
    else dropDraft(topicId);
  };
  useEffect(() => setSender(senderName()), [state.session]);
  if (!writable) {
    return html`<p class="compose soft">You can read here. ${state.session.signedIn ? html`To write, your token needs the scope <code>hub:post</code>.`
      : html`<a href="#/sign-in">Sign in</a> to write.`}</p>`;
  }
  const bytes = bytesOf(text);
  const ready = text.trim() && sender.trim() && bytes <= TEXT_BYTES_MAX && !busy;
  const submit = async (event) => {
    event?.preventDefault();
    if (!ready) return;
    const field = area.current;
    field.focus(); // now: the person may be elsewhere when the message is sent
    setBusy(true);
    rememberSender(sender.trim());
    sending();
    const isSent = await attempt(() => send(topicId, sender.trim(), text));
    if (isSent) write(field.value.startsWith(text) ? field.value.slice(text.length) : field.value); // typed meanwhile
    setBusy(false);
  };
  const onKey = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event);
  const { senders } = state.session;
  return html`<form class="compose" onSubmit=${submit}>
    <textarea ref=${area} rows=${Math.min(8, text.split("\n").length)} value=${text} placeholder=${`Message ${to}`} title="Shift+Enter begins a new line"
      aria-label="Message" onInput=${(event) => write(event.target.value)} onKeyDown=${onKey}></textarea>
    <div class="send"><label>as ${senders?.length
      ? html`<select value=${sender} onChange=${(event) => setSender(event.target.value)}>${senders.map((each) => html`<option>${each}</option>`)}</select>`
      : html`<input value=${sender} maxlength="200" size="12" onInput=${(event) => setSender(event.target.value)} placeholder="your name" />`}</label>
      ${bytes > TEXT_BYTES_MAX && html`<span class="bad" role="alert">${bytes - TEXT_BYTES_MAX} bytes too long</span>`}
      <button class="primary" disabled=${!ready}>Send</button></div>
  </form>`;
}

function Attachments({ topicId, place, close }) {
  const list = state.attachments.get(topicId);
  return html`<section aria-label="Attachments"><header class="bar"><h2>Attachments</h2>
    <button class="plain" onClick=${close} aria-label="Close attachments"><span aria-hidden="true">× </span>Close</button></header>
    ${!list?.items.length && html`<p class="soft">Links and files that belong to this topic appear here.</p>`}
    <ul class="attachments">${list?.items.map((each) => html`<${Attachment} key=${each.id} attachment=${each} place=${place} />`)}</ul>
    ${list?.more && html`<button onClick=${() => attempt(() => loadAttachments(topicId, true))}>More attachments</button>`}
  </section>`;
}

function Attachment({ attachment, place }) {
  const { kind, key, value_json: value, source_message_id: source, created_at: created } = attachment;
  const { url, title, ...others } = value;
  const name = String(title || url || key || kind);
  return html`<li><span class="mark">${kind}</span>
    <${Outside} url=${url}>${name}<//>
    ${url !== undefined && !safeUrl(url) && html`<code class="soft">${String(url)}</code>`}
    ${title && safeUrl(url) && html`<span class="soft host">${new URL(safeUrl(url)).host}</span>`}
    ${Object.keys(others).length > 0 && html`<code class="soft json">${JSON.stringify(others).slice(0, 300)}</code>`}
    <span class="soft">${showMoment(created)}
      ${source && html` · <a href=${link({ channel: place.channel, topic: place.topic, message: source })}>message</a>`}</span></li>`;
}
