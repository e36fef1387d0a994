// Unread counts per topic, kept in this browser for each workspace with the event they reach.
//
// Events after that one are replayed at the next visit, so counts include what happened meanwhile.
import { changed, keep, recall } from "./store.js";

const SAVE_MS = 1_000;
const TOPICS_MAX = 2_000;
const LINE_MAX = 120; // characters of the latest message
const lineOf = (text) => text.slice(0, LINE_MAX).replace(/\s+/g, " ");

class Unread {
  constructor() {
    this.name = "";
    this.topics = {}; // topic id → { channel, count, first }, and the latest message: { last, at, sender, line }
    this.cursor = null;
    this.open = null; // the topic whose end is in view
    this.line = null; // { topic, first }: what was new when it was read
    this.timer = 0;
    addEventListener("pagehide", () => this.save());
    addEventListener("visibilitychange", () => !document.hidden && this.open && this.read(this.open));
    addEventListener("storage", (event) => event.key === `agentlip.ui.${this.name}` && this.load());
  }

  // `workspace`: the id of the database.
  use(workspace, epoch) {
    this.name = `unread.${workspace}.${epoch}`;
    this.cursor = null;
    this.topics = {};
    this.load();
  }

  load() {
    const saved = recall(this.name, null);
    if (!saved || saved.cursor < (this.cursor ?? 0)) return;
    this.topics = saved.topics;
    this.cursor = saved.cursor;
    changed();
  }

  count(event) {
    this.cursor = event.event_id;
    if (event.name === "message.created") {
      const { topic_id: topic, channel_id: channel, id, sender, created_at: at, content_raw: text } = event.data.message;
      if (topic === this.open && !document.hidden) return this.later();
      const old = this.topics[topic];
      if (old || Object.keys(this.topics).length < TOPICS_MAX) {
        this.topics[topic] = { channel, count: (old?.count || 0) + 1, first: old ? old.first : id, last: id, at, sender, line: lineOf(text) };
      }
    }
    this.follow(event);
    this.later();
  }

  // The line of a message that was edited or deleted.
  follow({ name, scope, data }) {
    const latest = this.topics[scope?.topic_id];
    if (!latest || latest.last !== data.message_id) return;
    if (name === "message.edited") latest.line = lineOf(data.new_content);
    if (name === "message.deleted") latest.line = "[deleted]";
  }

  // The end of this topic is in view, or of none.
  read(topic) {
    this.open = topic;
    if (topic && this.topics[topic] && !document.hidden) {
      const { [topic]: { first }, ...others } = this.topics;
      this.line = { topic, first };
      this.topics = others;
      this.later();
      changed();
    }
  }

  // The list of the next topic may come to its end before this one is left.
  leave(topic) {
    if (this.open === topic) this.open = null;
    if (this.line?.topic === topic) this.line = null;
  }

  // The message above which a line says that it is new, while the topic is open.
  firstOf(topic) {
    return this.topics[topic]?.first || (this.line?.topic === topic ? this.line.first : null);
  }

  later() {
    if (!this.timer) this.timer = setTimeout(() => this.save(), SAVE_MS);
  }

  save() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.name && this.cursor !== null) keep(this.name, { cursor: this.cursor, topics: this.topics });
  }

  ofTopic(id) {
    return this.topics[id]?.count || 0;
  }

  ofChannel(id) {
    return Object.values(this.topics).reduce((sum, each) => sum + (each.channel === id ? each.count : 0), 0);
  }

  get total() {
    return Object.values(this.topics).reduce((sum, each) => sum + each.count, 0);
  }
}

export const unread = new Unread();
