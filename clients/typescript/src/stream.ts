import { AgentlipError } from "./errors.js";
import { type Http, type PathOf, retrySeconds, sleep } from "./http.js";

/** The appliance sends a comment each 15 s, so three are missing. */
const SILENCE_SECONDS = 45;
const LINE_CHARACTERS_MAX = 8 * 1024 * 1024;

export interface StreamOptions {
  /** The last id that was processed. */
  after: number;
  query?: object;
  signal?: AbortSignal | undefined;
  /** Runs after each connection, before its first item. */
  connected?: () => Promise<void>;
}

/** One item of a stream: its id and its decoded data. */
export interface StreamItem {
  id: number;
  data: unknown;
}

/**
 * Yield a stream's items in order, each once, and connect again after every break.
 *
 * Ends when the signal aborts. Throws AgentlipError when another connection can't help.
 */
export async function* follow(
  http: Http,
  path: PathOf<"get">,
  options: StreamOptions,
): AsyncGenerator<StreamItem, void> {
  let last = options.after;
  for (let attempt = 1; ; attempt++) {
    let pause = 0;
    const connection = new Connection(options.signal);
    try {
      const query = { ...options.query, after: last };
      const response = await http.open(path, query, String(last), connection.signal);
      await options.connected?.();
      for await (const item of connection.items(response)) {
        if (item.id <= last) continue;
        yield item;
        last = item.id;
        attempt = 0;
      }
    } catch (error) {
      if (options.signal?.aborted) return;
      pause = connection.signal.aborted ? 0 : retrySeconds(error, Math.max(attempt, 1));
      if (pause === Infinity) throw error;
    } finally {
      connection.close();
    }
    try {
      await sleep(Math.max(pause, 0.1), options.signal);
    } catch {
      return;
    }
  }
}

class Connection {
  readonly #abort = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly signal: AbortSignal;

  constructor(signal?: AbortSignal) {
    const own = this.#abort.signal;
    this.signal = signal ? AbortSignal.any([signal, own]) : own;
    this.#listen();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#abort.abort();
  }

  async *items(response: Response): AsyncGenerator<StreamItem, void> {
    let id = 0;
    for await (const line of this.#lines(response)) {
      if (line.startsWith("id:")) id = Number(line.slice(3));
      if (line.startsWith("data:")) yield { id, data: JSON.parse(line.slice(5)) as unknown };
    }
  }

  /** Yield whole lines; a line that a break cut off is dropped. */
  async *#lines(response: Response): AsyncGenerator<string, void> {
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        const broken = new AgentlipError("the stream broke", "UNREACHABLE", 0, "agentlip status");
        broken.cause = error;
        throw broken;
      }
      if (part.done) return;
      this.#listen();
      const lines = (rest + part.value).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > LINE_CHARACTERS_MAX) throw new AgentlipError("line too long", "TOO_LARGE");
      yield* lines;
    }
  }

  /** Abort unless something arrives in time. */
  #listen(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#abort.abort(), SILENCE_SECONDS * 1000);
  }
}
