// Requests to the HTTP API. Every failure is an ApiError with a code, a sentence and a hint.

import { changed, noteServerTime, pageSecret, state } from "./store.js";

const TRIES_MAX = 3;
const TIMEOUT_MS = 20_000;
const KEEPALIVE_MAX = 10_000;
export const OFFLINE = "UNREACHABLE";
const READ_ONLY = "STORE_READ_ONLY";

export class ApiError extends Error {
  constructor(status, body, retryAfter = 0) {
    super(body.error || "the request failed");
    this.status = status;
    this.code = body.code || "UNKNOWN";
    this.hint = body.hint || "";
    this.details = body.details || {};
    this.body = body;
    this.retryAfter = retryAfter;
  }

  // The same request may succeed later.
  get passes() {
    return this.code === OFFLINE || this.status === 429 || this.status === 503;
  }
}

function unreachable() {
  return new ApiError(0, {
    error: "the appliance is unreachable", code: OFFLINE, hint: "agentlipd status",
  });
}

// Relative to this file, so that a proxy may serve the appliance below any path.
export const address = (path) => new URL(`..${path}`, import.meta.url);

async function once(method, path, body, headers, seconds) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(address(path), {
      method,
      headers,
      body: text,
      keepalive: text?.length < KEEPALIVE_MAX, // a small change is sent although the page is left
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.timeout(seconds ? seconds * 1000 : TIMEOUT_MS),
    });
  } catch {
    throw unreachable();
  }
  noteServerTime(response.headers.get("date"));
  let content = {};
  try {
    content = response.status === 204 ? {} : await response.json();
  } catch {
    if (response.ok) throw unreachable(); // the connection ended within the reply
  }
  if (!response.ok) throw new ApiError(response.status, content, Number(response.headers.get("retry-after")) || 0);
  return content;
}

// Repeats what may be repeated: reads, and changes with an idempotency key. A request that may take
// `seconds` is sent once.
export async function request(method, path, body, seconds) {
  const headers = { Accept: "application/json" };
  if (pageSecret()) headers["X-Agentlip-Request"] = pageSecret();
  if (method !== "GET") headers["Idempotency-Key"] = unique();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  for (let tries = 1; ; tries += 1) {
    try {
      return await once(method, path, body, headers, seconds);
    } catch (error) {
      if (error.code === READ_ONLY) {
        state.readOnly = error;
        changed();
        throw error;
      }
      if (!error.passes || seconds || tries >= TRIES_MAX) throw error;
      await wait(Math.min(5, error.retryAfter || 0.3 * 2 ** tries) * 1000);
    }
  }
}

export const get = (path, query = {}, seconds = 0) => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  return request("GET", given.length ? `${path}?${new URLSearchParams(given)}` : path, undefined, seconds);
};
export const post = (path, body) => request("POST", path, body);
export const patch = (path, body) => request("PATCH", path, body);
export const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// `crypto.randomUUID` exists only on https and on loopback.
function unique() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
