import type { Body, Http, Reply } from "./http.js";
import { newKey } from "./hub.js";
import type { components } from "./schema.js";

export type Ask = components["schemas"]["Ask"];
const WAIT_SECONDS = 25; // of one request

/** Questions to people. */
export class Asks {
  constructor(private readonly http: Http) {}

  /** Ask a person. Returns before the answer. */
  async ask(body: Body<"post", "/api/v1/asks">, key = newKey()): Promise<Ask> {
    return (await this.http.request("post", "/api/v1/asks", { body, key })).ask;
  }

  /** Wait until an ask is answered, cancelled or past its deadline. */
  async settled(id: string, signal?: AbortSignal): Promise<Ask> {
    for (;;) {
      const call = { path: { ask_id: id }, query: { wait: WAIT_SECONDS }, signal };
      const { ask } = await this.http.request("get", "/api/v1/asks/{ask_id}", {
        ...call, waitSeconds: WAIT_SECONDS,
      });
      if (ask.state !== "waiting") return ask;
    }
  }

  answer(id: string, answer: string): Promise<Reply<"post", "/api/v1/asks/{ask_id}/answer">> {
    return this.http.request("post", "/api/v1/asks/{ask_id}/answer", {
      path: { ask_id: id }, body: { answer }, key: newKey(),
    });
  }

  cancel(id: string): Promise<Reply<"post", "/api/v1/asks/{ask_id}/cancel">> {
    return this.http.request("post", "/api/v1/asks/{ask_id}/cancel", {
      path: { ask_id: id }, body: {}, key: newKey(),
    });
  }
}
