import type { Body, Http, Reply } from "./http.js";
import { newKey } from "./hub.js";
import type { components } from "./schema.js";
import { follow } from "./stream.js";

export type BusMessage = components["schemas"]["BusMessage"];
export type BusClaim = components["schemas"]["BusClaim"];
const LEASE_SECONDS = 60;
type Publication = Omit<Body<"post", "/bus/v1/messages">, "from_agent">;

/** One agent on the worker bus. */
export class Bus {
  constructor(
    private readonly http: Http,
    readonly agent: string,
  ) {}

  publish(message: Publication, key = newKey()): Promise<Reply<"post", "/bus/v1/messages">> {
    const body = { ...message, from_agent: this.agent };
    return this.http.request("post", "/bus/v1/messages", { body, key });
  }

  /** List the next messages after the agent's cursor, waiting for the first. */
  async poll(waitSeconds = 0, limit = 100, signal?: AbortSignal): Promise<BusMessage[]> {
    const query = { agent: this.agent, limit, wait: waitSeconds };
    const call = { query, waitSeconds, signal };
    return (await this.http.request("get", "/bus/v1/messages", call)).messages;
  }

  /** Move the agent's cursor: all messages up to `seq` are done. */
  ack(seq: number): Promise<Reply<"post", "/bus/v1/acks">> {
    const body = { agent: this.agent, seq };
    return this.http.request("post", "/bus/v1/acks", { body, repeatable: true });
  }

  /** Yield messages to the agent or to all as they arrive; connect again after every break. */
  async *messages(after: number, signal?: AbortSignal): AsyncGenerator<BusMessage, void> {
    const query = { agent: this.agent };
    const stream = follow(this.http, "/bus/v1/stream", { after, query, signal });
    for await (const item of stream) yield item.data as BusMessage;
  }

  /** Claim a task, a path or a slot, waiting for it. Throws BUS_CLAIM_HELD. */
  claim(task: string, leaseSeconds = LEASE_SECONDS, waitSeconds = 0): Promise<BusClaim> {
    const body = { task, agent: this.agent, lease_seconds: leaseSeconds, wait: waitSeconds };
    return this.http.request("post", "/bus/v1/claims", { body, key: newKey(), waitSeconds });
  }

  renew(claim: BusClaim, leaseSeconds = LEASE_SECONDS): Promise<BusClaim> {
    const body = { task: claim.task_id, agent: this.agent, fence: claim.fence };
    return this.http.request("post", "/bus/v1/claims/renew", {
      body: { ...body, lease_seconds: leaseSeconds }, repeatable: true,
    });
  }

  async release(claim: BusClaim): Promise<boolean> {
    const body = { task: claim.task_id, agent: this.agent, fence: claim.fence };
    const call = { body, repeatable: true };
    return (await this.http.request("post", "/bus/v1/claims/release", call)).released;
  }

  /** Run `work` with a claim that is renewed meanwhile; a lost claim aborts the signal. */
  async withClaim<T>(
    task: string,
    work: (claim: BusClaim, signal: AbortSignal) => Promise<T>,
    leaseSeconds = LEASE_SECONDS,
  ): Promise<T> {
    const claim = await this.claim(task, leaseSeconds);
    const lost = new AbortController();
    const renew = () => this.renew(claim, leaseSeconds).catch((error) => lost.abort(error));
    const timer = setInterval(renew, (leaseSeconds * 1000) / 3);
    try {
      return await work(claim, lost.signal);
    } finally {
      clearInterval(timer);
      await this.release(claim);
    }
  }

  beat(fields: Omit<Body<"post", "/bus/v1/heartbeats">, "agent"> = { status: "working" }) {
    const body = { ...fields, agent: this.agent };
    return this.http.request("post", "/bus/v1/heartbeats", { body, repeatable: true });
  }

  async workers(): Promise<Reply<"get", "/bus/v1/workers">["workers"]> {
    return (await this.http.request("get", "/bus/v1/workers")).workers;
  }
}
