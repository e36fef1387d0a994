import { backoffSeconds, type Body, type Http, type Reply, sleep } from "./http.js";
import { newKey } from "./hub.js";

/** What a queue carries; `id` makes a repeated enqueue one envelope. */
export interface Envelope {
  id: string;
  /** When the envelope was made, UTC in ISO 8601. */
  ts: string;
  type: string;
  payload: unknown;
  [field: string]: unknown;
}

/** An envelope to send: a missing `id` is a new one, a missing `ts` is now. */
export type NewEnvelope = Partial<Envelope> & { type: string; payload: unknown };

/** A leased envelope, and which attempt this is. */
export interface Delivery {
  envelope: Envelope;
  attempt: number;
  receiver: string;
}

export interface WorkOptions {
  signal: AbortSignal;
  /** Milliseconds of a lease, renewed at a third (30,000). */
  leaseMs?: number;
  /** Envelopes at once (1). */
  concurrency?: number;
  /** Hears what a handler threw, and connection errors. */
  failed?: (error: unknown, envelope?: Envelope) => void;
}

const LEASE_MS = 30_000;
const WAIT_SECONDS = 20;

/** Queues with leases. */
export class Courier {
  constructor(private readonly http: Http) {}

  /** Enqueue an envelope and return its id. */
  async enqueue(to: string, envelope: NewEnvelope): Promise<string> {
    const body = { to, envelope: complete(envelope) };
    const call = { body, repeatable: true };
    return (await this.http.request("post", "/v1/enqueue", call)).id;
  }

  /** Enqueue up to 1,000 envelopes, all or none. */
  async enqueueMany(to: string, envelopes: NewEnvelope[]): Promise<string[]> {
    const body = { to, envelopes: envelopes.map(complete) };
    const call = { body, repeatable: true };
    return (await this.http.request("post", "/v1/enqueue/batch", call)).ids;
  }

  /** Lease envelopes, waiting for the first. */
  async receive(
    request: Body<"post", "/v1/receive">,
    signal?: AbortSignal,
  ): Promise<Delivery[]> {
    const call = { body: request, waitSeconds: request.wait ?? 0, signal };
    const reply = await this.http.request("post", "/v1/receive", call);
    const { receiver } = reply;
    const leased = reply.deliveries as { deliver: Envelope; attempt?: number }[];
    return leased.map(({ deliver, attempt = 1 }) => ({ envelope: deliver, attempt, receiver }));
  }

  ack(delivery: Delivery): Promise<Reply<"post", "/v1/ack">> {
    const body = { receiver: delivery.receiver, ids: [delivery.envelope.id] };
    return this.http.request("post", "/v1/ack", { body, repeatable: true });
  }

  nack(
    delivery: Delivery,
    mode: "fail" | "reject" | "release" = "fail",
    error = "",
  ): Promise<Reply<"post", "/v1/nack">> {
    const body = { receiver: delivery.receiver, ids: [delivery.envelope.id], mode, error };
    return this.http.request("post", "/v1/nack", { body, repeatable: true });
  }

  extend(delivery: Delivery, leaseMs = LEASE_MS): Promise<Reply<"post", "/v1/extend">> {
    const body = { receiver: delivery.receiver, ids: [delivery.envelope.id], leaseMs };
    return this.http.request("post", "/v1/extend", { body, repeatable: true });
  }

  /**
   * Run a handler for each envelope until the signal aborts.
   *
   * A lease is renewed while its handler runs. The envelope is acked when the handler returns, and
   * nacked with the error when the handler throws. After the signal, running handlers finish.
   */
  async work(
    stream: string,
    handler: (envelope: Envelope, delivery: Delivery) => unknown,
    options: WorkOptions,
  ): Promise<void> {
    const lines = Array.from({ length: options.concurrency ?? 1 }, () =>
      this.#line(stream, handler, options),
    );
    await Promise.all(lines);
  }

  async #line(stream: string, handler: Parameters<Courier["work"]>[1], options: WorkOptions) {
    const leaseMs = options.leaseMs ?? LEASE_MS;
    for (let attempt = 1; !options.signal.aborted; attempt++) {
      try {
        const request = { stream, max: 1, wait: WAIT_SECONDS, leaseMs };
        for (const delivery of await this.receive(request, options.signal)) {
          await this.#handle(delivery, handler, leaseMs, options);
        }
        attempt = 0;
      } catch (error) {
        if (options.signal.aborted) return;
        options.failed?.(error);
        await sleep(backoffSeconds(attempt), options.signal).catch(() => undefined);
      }
    }
  }

  async #handle(
    delivery: Delivery,
    handler: Parameters<Courier["work"]>[1],
    leaseMs: number,
    options: WorkOptions,
  ): Promise<void> {
    const renew = () => void this.extend(delivery, leaseMs).catch(options.failed);
    const timer = setInterval(renew, leaseMs / 3);
    try {
      await handler(delivery.envelope, delivery);
    } catch (error) {
      options.failed?.(error, delivery.envelope);
      await this.nack(delivery, "fail", String(error).slice(0, 1000));
      return;
    } finally {
      clearInterval(timer);
    }
    await this.ack(delivery);
  }
}

function complete(envelope: NewEnvelope): Envelope {
  return { id: newKey(), ts: new Date().toISOString(), ...envelope };
}
