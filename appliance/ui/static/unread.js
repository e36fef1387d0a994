// Unread counts per topic, kept in this browser for each workspace with the event they reach.
//
// Events after that one are replayed at the next visit, so counts include what happened meanwhile.
import { changed, keep, recall } from "./store.js";

const SAVE_MS = 1_000;
const TOPICS_MAX = 2_000;

class Unread {
  constructor() {
    this.name = "";
    this.topics = {}; // topic id → { channel, count }
    this.cursor = null;
    this.open = null; // the topic that is read now
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
      const { topic_id: topic, channel_id: channel } = event.data.message;
      if (topic === this.open && !document.hidden) return this.later();
      const old = this.topics[topic];
      if (old || Object.keys(this.topics).length < TOPICS_MAX) {
        this.topics = { ...this.topics, [topic]: { channel, count: (old?.count || 0) + 1 } };
      }
    }
    this.later();
  }

  read(topic) {
    this.open = topic;
    if (topic && this.topics[topic] && !document.hidden) {
      const { [topic]: _, ...others } = this.topics;
      this.topics = others;
      this.later();
      changed();
    }
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
