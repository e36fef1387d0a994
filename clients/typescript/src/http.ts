import { AgentlipError, readError } from "./errors.js";
import type { paths } from "./schema.js";

type Method = "delete" | "get" | "patch" | "post" | "put";
/** Paths with a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: object } ? P : never;
}[keyof paths];
type OperationOf<M extends Method, P extends PathOf<M>> = paths[P] extends { [K in M]: infer O }
  ? O
  : never;
type Content<T> = T extends { content: { "application/json": infer J } } ? J : never;
/** The JSON of an operation's success. */
export type Reply<M extends Method, P extends PathOf<M>> =
  OperationOf<M, P> extends { responses: infer R }
    ? { [S in keyof R]: S extends 200 | 201 | 202 ? Content<R[S]> : never }[keyof R]
    : never;
/** The JSON that an operation takes. */
export type Body<M extends Method, P extends PathOf<M>> =
  OperationOf<M, P> extends { requestBody?: infer B } ? Content<NonNullable<B>> : never;
/** The query that an operation takes. */
export type Query<M extends Method, P extends PathOf<M>> =
  OperationOf<M, P> extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;

export interface ClientOptions {
  /** Address, for example http://127.0.0.1:7464 */
  url: string;
  /** Token, as `agentlip token create` prints it. */
  token?: string | undefined;
  /** Seconds until a request without an answer fails (30). */
  timeoutSeconds?: number;
  /** Attempts at a request that may be repeated (6). */
  attempts?: number;
  /** Replaces the platform's `fetch`. */
  fetch?: typeof fetch;
}

export interface Call<M extends Method, P extends PathOf<M>> {
  /** Values for `{name}` in the path. */
  path?: Record<string, string>;
  query?: Query<M, P>;
  body?: Body<M, P>;
  /** Idempotency key: makes a write repeatable. */
  key?: string | undefined;
  /** Whether a write without a key may be repeated. */
  repeatable?: boolean;
  /** Seconds that the appliance may wait before the answer. */
  waitSeconds?: number;
  signal?: AbortSignal | undefined;
}

const TIMEOUT_SECONDS = 30;
const ATTEMPTS = 6; // about 15 s
const RETRY_SECONDS_MAX = 30; // a longer Retry-After is the caller's decision
const RETRIED = new Set<number | string>([429, 502, 503, 504, "TIMED_OUT", "UNREACHABLE"]);

/** Sends typed requests, and repeats what is safe to repeat. */
export class Http {
  readonly #options: ClientOptions;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    this.#options = { ...options, url: options.url.replace(/\/+$/, "") };
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /** Send a request and return its JSON. Throws AgentlipError. */
  async request<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    call: Call<M, P> = {},
  ): Promise<Reply<M, P>> {
    const repeatable = method === "get" || call.key !== undefined || call.repeatable === true;
    const attempts = repeatable ? (this.#options.attempts ?? ATTEMPTS) : 1;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#send(method, path, call);
      } catch (error) {
        call.signal?.throwIfAborted();
        const seconds = retrySeconds(error, attempt);
        if (attempt >= attempts || seconds > RETRY_SECONDS_MAX) throw error;
        await sleep(seconds, call.signal);
      }
    }
  }

  /** Open server-sent events. The caller reads or cancels the body. */
  open(path: PathOf<"get">, query: object, lastId: string, signal: AbortSignal): Promise<Response> {
    const headers = { ...this.#headers(), Accept: "text/event-stream", "Last-Event-ID": lastId };
    return this.#answer(this.#address(path, {}, query), { headers, signal });
  }

  async #send<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    call: Call<M, P>,
  ): Promise<Reply<M, P>> {
    const headers = this.#headers();
    if (call.body !== undefined) headers["Content-Type"] = "application/json";
    if (call.key !== undefined) headers["Idempotency-Key"] = call.key;
    const seconds = (this.#options.timeoutSeconds ?? TIMEOUT_SECONDS) + (call.waitSeconds ?? 0);
    const timeout = AbortSignal.timeout(seconds * 1000);
    const response = await this.#answer(this.#address(path, call.path ?? {}, call.query ?? {}), {
      method: method.toUpperCase(),
      headers,
      body: call.body === undefined ? null : JSON.stringify(call.body),
      signal: call.signal ? AbortSignal.any([call.signal, timeout]) : timeout,
    });
    try {
      return (await response.json()) as Reply<M, P>;
    } catch (error) {
      throw this.#failed(error);
    }
  }

  async #answer(address: string, init: RequestInit): Promise<Response> {
    let response;
    try {
      response = await this.#fetch(address, init);
    } catch (error) {
      throw this.#failed(error);
    }
    if (!response.ok) throw await readError(response);
    return response;
  }

  /** Make the error for a request whose answer did not arrive whole. */
  #failed(cause: unknown): AgentlipError {
    const timedOut = cause instanceof DOMException && cause.name === "TimeoutError";
    const code = timedOut ? "TIMED_OUT" : "UNREACHABLE";
    const problem = timedOut ? "the appliance does not answer" : "no appliance can be reached";
    const made = new AgentlipError(`${problem}: ${this.#options.url}`, code, 0, "agentlip status");
    made.cause = cause;
    return made;
  }

  #headers(): Record<string, string> {
    const { token } = this.#options;
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  #address(path: string, values: Record<string, string>, query: object): string {
    const filled = path.replace(/{(\w+)}/g, (_, name: string) =>
      encodeURIComponent(values[name] ?? ""),
    );
    const address = new URL(this.#options.url + filled);
    for (const [name, value] of Object.entries(query)) {
      for (const each of [value].flat()) {
        if (each !== undefined && each !== null) address.searchParams.append(name, String(each));
      }
    }
    return address.href;
  }
}

/** Return the seconds before the next attempt; Infinity if another attempt can't help. */
export function retrySeconds(error: unknown, attempt: number): number {
  if (!(error instanceof AgentlipError && RETRIED.has(error.status || error.code))) return Infinity;
  return Math.max(error.retryAfter ?? 0, backoffSeconds(attempt));
}

/** Return 0.25 s, 0.5 s, … up to 8 s, from half to all of it at random. */
export function backoffSeconds(attempt: number): number {
  return Math.min(8, 0.25 * 2 ** Math.min(attempt - 1, 10)) * (0.5 + Math.random() / 2);
}

/** Wait. Throws the signal's reason when the signal aborts. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
