// The WebSocket: every event once and in order, through restarts. A restore begins a new epoch.
//
//   probe ─▶ hello(after) ─▶ replay ─▶ live ─▶ closed ─▶ wait, longer each time ─▶ probe
//
// A browser can't read why a socket was refused, so a read over HTTP comes first. Sockets need a
// session even where reading is free (loopback), and a proxy may pass none: then the events come by
// long polling.
import { address, ApiError, get, OFFLINE } from "./api.js";
import { mayRead, refreshSession } from "./session.js";
import { changed, pageSecret, state } from "./store.js";

const WAIT_MS_MIN = 500;
const WAIT_MS_MAX = 30_000;
const STABLE_MS = 10_000; // a socket that lived that long resets the waiting time
const UNAUTHORIZED = 4401;
const POLL_SECONDS = 15;

export class Live {
  // `start(head, epoch)` → the event after which to begin, `onEvent(event, replayed)`,
  // `onReady()` when the replay is done, `onEpoch()` when the workspace was restored.
  constructor({ start, onEvent, onReady, onEpoch }) {
    Object.assign(this, { start, onEvent, onReady, onEpoch });
    this.cursor = null;
    this.epoch = null;
    this.failures = 0;
    this.timer = 0;
    this.socket = null;
    this.polling = false;
    addEventListener("online", () => this.now());
    addEventListener("offline", () => this.socket?.close());
  }

  // Connect at once, for example after signing in.
  now() {
    clearTimeout(this.timer);
    this.failures = 0;
    this.polling = false;
    if (this.socket) this.socket.close();
    else this.connect();
  }

  stop() {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  async connect() {
    if (this.connecting) return;
    this.connecting = true;
    try {
      const { replay_until: head } = await get("/api/v1/events", { tail: 1 });
      if (this.cursor === null) this.cursor = await this.start(head);
      if (this.polling) await this.poll(head);
      else this.open();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.lost(error);
    } finally {
      this.connecting = false;
    }
  }

  async poll(head) {
    const { epoch } = await get("/health");
    this.receive({ type: "hello_ok", epoch, replay_until: head, latest_event_id: head });
    while (this.polling && this.cursor !== null) {
      const { events } = await get("/api/v1/events", { after: this.cursor, limit: 500, wait: POLL_SECONDS });
      // Reads are repeated while the appliance is away, so a restore may lie between two of them.
      if ((await get("/health")).epoch !== this.epoch) return this.restored();
      for (const event of events) this.receive({ ...event, type: "event", data: event.data_json });
    }
    if (!this.socket && this.cursor !== null) this.open();
  }

  open() {
    const endpoint = address("/ws");
    endpoint.protocol = endpoint.protocol.replace("http", "ws");
    const secret = pageSecret();
    const socket = new WebSocket(endpoint, secret ? ["agentlip.v1", `agentlip.token.${secret}`] : []);
    let opened = 0;
    this.socket = socket;
    this.until = Infinity;
    socket.onopen = () => {
      opened = Date.now();
      const hello = { type: "hello", after_event_id: this.cursor };
      if (this.epoch) hello.epoch = this.epoch;
      socket.send(JSON.stringify(hello));
    };
    socket.onmessage = (message) => this.socket === socket && this.receive(JSON.parse(message.data));
    socket.onclose = (close) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (opened && Date.now() - opened > STABLE_MS) this.failures = 0;
      if (close.code === UNAUTHORIZED && state.session.signedIn) {
        this.ended();
      } else if (close.code === UNAUTHORIZED || (!opened && this.failures)) {
        this.polling = true;
        this.connect();
      } else {
        this.lost(null);
      }
    };
  }

  receive(frame) {
    if (frame.type === "event") {
      if (frame.event_id <= this.cursor) return;
      this.cursor = frame.event_id;
      state.head = Math.max(state.head, frame.event_id);
      this.onEvent(frame, frame.event_id <= this.until);
      if (frame.event_id >= this.until) this.ready();
    } else if (frame.type === "hello_ok") {
      if (this.epoch && this.epoch !== frame.epoch) return this.restored();
      this.epoch = frame.epoch;
      this.until = frame.replay_until;
      state.head = frame.latest_event_id;
      if (this.cursor >= this.until) this.ready();
    } else if (frame.code === "EPOCH_CHANGED") {
      this.restored();
    }
  }

  ready() {
    this.until = -1;
    if (state.connection.name === "live") return;
    state.readOnly = null;
    this.set("live", null);
    this.onReady();
  }

  // The session ended. A restore ends all of them: then what is shown may be gone too.
  async ended() {
    this.lost(new ApiError(401, {}));
    await refreshSession().catch(() => {});
    if (state.session.signedIn && !mayRead()) {
      this.set("blocked", new ApiError(403, { error: "your token may not read the hub", code: "FORBIDDEN", details: { scope: "hub:read" } }));
    }
    const { epoch } = await get("/health").catch(() => ({}));
    if (!epoch || !this.epoch || epoch === this.epoch) return;
    this.cursor = this.epoch = null;
    this.onEpoch();
  }

  restored() {
    this.stop();
    this.cursor = this.epoch = null;
    state.connection = { name: "connecting", error: null, retryAt: 0 };
    this.onEpoch();
    setTimeout(() => this.connect());
  }

  lost(error) {
    this.failures += 1;
    this.polling = false;
    const most = Math.min(WAIT_MS_MAX, WAIT_MS_MIN * 2 ** Math.min(this.failures - 1, 10));
    const delay = most * (0.5 + Math.random() / 2);
    const name = error && error.status === 401 ? "signed-out"
      : error && error.code !== OFFLINE ? "blocked"
      : this.failures > 3 || !navigator.onLine ? "offline" : "reconnecting";
    this.set(name, error, Date.now() + delay);
    clearTimeout(this.timer);
    if (name !== "signed-out") this.timer = setTimeout(() => this.connect(), delay);
  }

  set(name, error, retryAt = 0) {
    state.connection = { name, error, retryAt };
    changed();
  }
}
