// Who is signed in. The cookie is HttpOnly, and counts only with the secret that the page keeps. The
// page never sees a token, except one typed here.
import { ApiError, get, request } from "./api.js";
import { dropAllDrafts } from "./drafts.js";
import { changed, recall, keep, keepPageSecret, state } from "./store.js";

const PATH = "/api/v1/sessions";

// The secret of a one-time link. It leaves the address before anything else happens.
export function takeInvite() {
  const match = /^#invite=([A-Za-z0-9._~-]{1,512})$/.exec(location.hash);
  if (!match) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return match[1];
}

export async function signInWithInvite(invite) {
  return opened(await request("POST", PATH, { invite }));
}

export async function signInWithToken(token) {
  const response = await fetch(PATH, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: "{}",
    credentials: "same-origin",
    cache: "no-store",
  });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body);
  return opened(body);
}

function opened(session) {
  keepPageSecret(session.page_secret);
  return signedIn(session);
}

export async function signOut() {
  await request("DELETE", `${PATH}/current`);
  keepPageSecret("");
  dropAllDrafts();
  signedIn(null);
}

// What one person wrote here is not for the next one.
function makeRoomFor(person) {
  if (recall("person", person) !== person) dropAllDrafts();
  keep("person", person);
}

// On a loopback address one may read without a session.
export async function refreshSession() {
  try {
    signedIn(await get(`${PATH}/current`));
  } catch (error) {
    if (error.status !== 401 && error.status !== 404) throw error;
    signedIn(null);
  }
}

function signedIn(session) {
  if (session) makeRoomFor(session.token_name);
  state.session = {
    signedIn: Boolean(session),
    known: true,
    name: session?.token_name || "",
    scopes: session?.scopes || [],
    senders: session?.senders || null,
    expiresAt: session?.expires_at || null,
  };
  changed();
  return state.session;
}

// Whether the session has a scope: everywhere, or in this channel.
export const may = (scope, channel) =>
  Boolean(state.session.scopes?.some((each) => ["admin", scope, `${scope}@${channel}`].includes(each)));
export const mayPost = (channel) => may("hub:post", channel);
export const mayRead = () => Boolean(state.session.scopes?.some((each) => each === "admin" || each.startsWith("hub:read")));

let chosen = ""; // the name that the person writes with, while the page is open

export function senderName() {
  const { senders, name } = state.session;
  if (senders?.length) return senders.includes(chosen) ? chosen : senders[0];
  return chosen || name;
}

export function rememberSender(name) {
  chosen = name;
}
