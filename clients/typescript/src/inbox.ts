import type { Http, Query, Reply } from "./http.js";
import { newKey } from "./hub.js";
import type { components } from "./schema.js";
import { follow } from "./stream.js";

export type Entry = components["schemas"]["Entry"];

/** The entries of one name: messages addressed to it, mentions, and topics that it follows. */
export class Inbox {
  /** `name`: the token's own name without it. */
  constructor(
    private readonly http: Http,
    private readonly name?: string,
  ) {}

  /** List entries that wait, oldest first. Listing acknowledges nothing. */
  list(
    query: Omit<Query<"get", "/api/v1/inbox">, "name"> = {},
    signal?: AbortSignal,
  ): Promise<Reply<"get", "/api/v1/inbox">> {
    const waitSeconds = query.wait ?? 0;
    return this.http.request("get", "/api/v1/inbox", {
      query: { ...query, ...this.#named() }, waitSeconds, signal,
    });
  }

  /** Yield entries after a position as they arrive; connect again after every break. */
  async *entries(after = 0, signal?: AbortSignal): AsyncGenerator<Entry, void> {
    const stream = follow(this.http, "/api/v1/inbox/stream", {
      after, query: this.#named(), signal,
    });
    for await (const item of stream) yield item.data as Entry;
  }

  acknowledge(...ids: number[]): Promise<Reply<"post", "/api/v1/inbox/acknowledge">> {
    const body = { ids, ...this.#named() };
    return this.http.request("post", "/api/v1/inbox/acknowledge", { body, key: newKey() });
  }

  /** Acknowledge all entries from `first` to `last`, which both have to be listed. */
  acknowledgeRange(
    first: number,
    last: number,
  ): Promise<Reply<"post", "/api/v1/inbox/acknowledge">> {
    const body = { first, last, ...this.#named() };
    return this.http.request("post", "/api/v1/inbox/acknowledge", { body, key: newKey() });
  }

  decline(id: number, reason: string): Promise<Reply<"post", "/api/v1/inbox/decline">> {
    const body = { id, reason, ...this.#named() };
    return this.http.request("post", "/api/v1/inbox/decline", { body, key: newKey() });
  }

  /** Make each later message in a topic an entry. `topic`: an id. */
  follow(topic: string): Promise<Reply<"post", "/api/v1/topics/{topic_id}/follow">> {
    return this.http.request("post", "/api/v1/topics/{topic_id}/follow", {
      path: { topic_id: topic }, body: this.#named(), key: newKey(),
    });
  }

  unfollow(topic: string): Promise<Reply<"post", "/api/v1/topics/{topic_id}/unfollow">> {
    return this.http.request("post", "/api/v1/topics/{topic_id}/unfollow", {
      path: { topic_id: topic }, body: this.#named(), key: newKey(),
    });
  }

  /** Show what became of a message, recipient by recipient. */
  receipts(message: string): Promise<Reply<"get", "/api/v1/messages/{message_id}/receipts">> {
    const path = { message_id: message };
    return this.http.request("get", "/api/v1/messages/{message_id}/receipts", { path });
  }

  #named(): { name?: string } {
    return this.name === undefined ? {} : { name: this.name };
  }
}
