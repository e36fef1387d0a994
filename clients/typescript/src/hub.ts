import { AgentlipError } from "./errors.js";
import type { Body, Http, Query, Reply } from "./http.js";
import type { components } from "./schema.js";
import { follow } from "./stream.js";

export type Message = components["schemas"]["Message"];
/** An event, as streams carry it. */
export interface HubEvent {
  event_id: number;
  ts: string;
  name: string;
  scope: { channel_id?: string; topic_id?: string; topic_id2?: string };
  data: Record<string, unknown>;
}

export interface PostOptions {
  /** Names that get an entry in their inbox. */
  to?: string[];
  /** Seconds in which they have to acknowledge. */
  ackBySeconds?: number;
  /** What happens then: `remind` or `reassign:NAME`. */
  onOverdue?: string;
  /** Repeats with one key post once. A new one is made without it. */
  key?: string;
}

export interface EventsOptions {
  /** The cursor: the last event that was processed. 0 for all. */
  after: number;
  /** The epoch that was stored with the cursor. */
  epoch?: string;
  /** Channels by id or name. */
  channels?: string[];
  topics?: string[];
  signal?: AbortSignal;
}

/** Channels, topics, messages and the event log. */
export class Hub {
  /** The epoch of the history that `events` follows: store it with the cursor. */
  epoch = "";

  constructor(private readonly http: Http) {}

  createChannel(name: string, description?: string): Promise<Reply<"post", "/api/v1/channels">> {
    const body = { name, description: description ?? null };
    return this.http.request("post", "/api/v1/channels", { body, key: newKey() });
  }

  createTopic(channel: string, title: string): Promise<Reply<"post", "/api/v1/topics">> {
    const body = { channel_id: channel, title };
    return this.http.request("post", "/api/v1/topics", { body, key: newKey() });
  }

  /** Post a message. `topic`: an id, or CHANNEL/TITLE. */
  post(
    topic: string,
    sender: string,
    text: string,
    options: PostOptions = {},
  ): Promise<Reply<"post", "/api/v1/messages">> {
    const body: Body<"post", "/api/v1/messages"> = {
      topic_id: topic,
      sender,
      content_raw: text,
      to: options.to ?? [],
      ack_by_seconds: options.ackBySeconds ?? null,
      on_overdue: options.onOverdue ?? null,
    };
    return this.http.request("post", "/api/v1/messages", { body, key: options.key ?? newKey() });
  }

  edit(message: string, text: string, version?: number): Promise<MessageChange> {
    return this.#change(message, {
      op: "edit", content_raw: text, expected_version: version ?? null,
    });
  }

  delete(message: string, actor: string, version?: number): Promise<MessageChange> {
    return this.#change(message, { op: "delete", actor, expected_version: version ?? null });
  }

  /** Yield a topic's messages, newest first. */
  async *messages(topic: string, pageSize = 100): AsyncGenerator<Message, void> {
    let before: string | undefined;
    for (;;) {
      const query: Query<"get", "/api/v1/messages"> = { topic_id: topic, limit: pageSize };
      if (before) query.before_id = before;
      const page = await this.http.request("get", "/api/v1/messages", { query });
      yield* page.messages;
      if (!page.has_more || !page.cursor) return;
      before = page.cursor;
    }
  }

  search(
    words: string,
    query: Omit<Query<"get", "/api/v1/search">, "q"> = {},
  ): Promise<Reply<"get", "/api/v1/search">> {
    return this.http.request("get", "/api/v1/search", { query: { ...query, q: words } });
  }

  /** Show what waits for a name, in at most `tokens` tokens. */
  catchUp(query: Query<"get", "/api/v1/catch-up">): Promise<Reply<"get", "/api/v1/catch-up">> {
    return this.http.request("get", "/api/v1/catch-up", { query });
  }

  health(): Promise<Reply<"get", "/health">> {
    return this.http.request("get", "/health");
  }

  /**
   * Yield events after a cursor, then new ones for ever; connect again after every break.
   *
   * Each event arrives once and in order. Throws EPOCH_CHANGED when the appliance has another
   * history than before, as after a restore: start again from 0, or from `details.newest`.
   */
  async *events(options: EventsOptions): AsyncGenerator<HubEvent, void> {
    this.epoch = options.epoch ?? "";
    const stream = follow(this.http, "/api/v1/events/stream", {
      after: options.after,
      query: { channel_id: options.channels, topic_id: options.topics },
      signal: options.signal,
      connected: () => this.#compareEpoch(),
    });
    for await (const item of stream) yield item.data as HubEvent;
  }

  /** Run after each connection: a process has one history while it lives. */
  async #compareEpoch(): Promise<void> {
    const { epoch } = await this.health();
    if (this.epoch !== "" && this.epoch !== epoch) {
      const newest = await this.http.request("get", "/api/v1/events", { query: { tail: 1 } });
      const details = { epoch, newest: newest.events[0]?.event_id ?? 0 };
      const hint = "start from 0, or from details.newest to skip the past";
      throw new AgentlipError("the appliance has another history", "EPOCH_CHANGED", 0, hint, details);
    }
    this.epoch = epoch;
  }

  #change(message: string, body: Body<"patch", "/api/v1/messages/{message_id}">) {
    const path = { message_id: message };
    return this.http.request("patch", "/api/v1/messages/{message_id}", { path, body, key: newKey() });
  }
}

export type MessageChange = Reply<"patch", "/api/v1/messages/{message_id}">;

/** Make an idempotency key. `crypto.randomUUID` is missing on pages without TLS. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
