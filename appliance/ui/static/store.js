// What all screens share, and the news that it changed. Changes are drawn once a frame.

export const state = {
  connection: { name: "connecting", error: null, retryAt: 0 },
  session: { name: "", known: false, signedIn: false, senders: null, scopes: null, expiresAt: null },
  channels: new Map(), // by id
  topics: new Map(), // by id
  channelTopics: new Map(), // channel id → { ids: Set, more, loading }
  logs: new Map(), // topic id → TopicLog
  attachments: new Map(), // topic id → { items, more }
  enrichments: new Map(), // message id → { version, items }
  readOnly: null, // why changes are refused, until the next connection
  loaded: false, // the channels are there
  notice: null, // a sentence about the last action
  skewMs: 0,
  skewSeen: false, // the person knows
  clockWarning: null, // an event whose time jumped
  head: 0,
};

const SECOND_MS = 1_000;
const ROUGH_MS = 5_000; // the server's times are whole seconds, and older by their way
let skewMs = 0; // how much the appliance's clock is ahead of this browser's

// Now, by the appliance's clock, to which all times that are shown belong.
export const now = () => Date.now() + skewMs;

export function noteServerTime(date) {
  const skew = Date.parse(date) + SECOND_MS / 2 - Date.now();
  if (Math.abs(skew - skewMs) > ROUGH_MS) skewMs = Math.abs(skew) > ROUGH_MS ? skew : 0;
  state.skewMs = skewMs;
}

const FRAME_MS = 16;
const listeners = new Set();
let queued = false;

export function changed() {
  if (queued) return;
  queued = true;
  setTimeout(() => {
    queued = false;
    for (const listener of listeners) listener();
  }, FRAME_MS);
}

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// Listeners to each event that happens while the page is open, after it was applied.
export const watchers = new Set();

let noticeTimer = 0;
export function notify(text, bad = false) {
  clearTimeout(noticeTimer);
  state.notice = { text, bad };
  noticeTimer = setTimeout(() => {
    state.notice = null;
    changed();
  }, bad ? 12_000 : 5_000);
  changed();
}

export function fail(error) {
  notify(error.hint ? `${error.message} — ${error.hint}` : error.message, true);
}

// What is kept in this browser: preferences, counts, and the session's secret of this page.
// Appliances below several paths of a host have a storage together.
const root = new URL("..", import.meta.url).pathname;
const keyOf = (name) => `agentlip.ui.${root === "/" ? "" : root}${name}`;

export function recall(name, otherwise) {
  try {
    const text = localStorage.getItem(keyOf(name));
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

// The cookie of a session reaches all ports of this host; this storage belongs to one of them. So the
// cookie counts only with this second secret, which is of no use without the cookie.
export const SECRET_KEY = keyOf("page");
let page = "";
export const pageSecret = () => recall("page", page);
export function keepPageSecret(secret) {
  page = secret;
  keep("page", secret);
}

export function keep(name, value) {
  try {
    localStorage.setItem(keyOf(name), JSON.stringify(value));
  } catch {
    // A full or disabled storage only loses preferences.
  }
}

export function remove(name) {
  try {
    localStorage.removeItem(keyOf(name));
  } catch {
    // A disabled storage has nothing.
  }
}

export function keptNames(prefix) {
  try {
    return Object.keys(localStorage).filter((each) => each.startsWith(keyOf(prefix))).map((each) => each.slice(keyOf("").length));
  } catch {
    return [];
  }
}
