// Who is signed in. The cookie is HttpOnly, and counts only with the secret that the page keeps. The
// page never sees a token, except one typed here.
import { address, ApiError, get, request } from "./api.js";
import { dropAllDrafts } from "./drafts.js";
import { changed, recall, keep, keepPageSecret, state } from "./store.js";

const PATH = "/api/v1/sessions";
const SIGN_IN = "/api/v1/sign-in";
const MARK = "agentlip.sign-in"; // in this tab only, while the person is at the issuer

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

// The host of the issuer that signs people in; empty without one.
export async function findIssuer() {
  const { issuer } = await get(SIGN_IN);
  return issuer ? new URL(issuer).host : "";
}

export async function leaveForIssuer() {
  const begun = await request("POST", SIGN_IN);
  sessionStorage.setItem(MARK, begun.state);
  location.assign(begun.location);
}

// The parameters with which an issuer has sent the browser back. They leave the address at once.
export function takeAnswer() {
  const answer = Object.fromEntries(new URLSearchParams(location.search));
  if (!answer.state || !(answer.code || answer.error)) return null;
  history.replaceState(null, "", location.pathname + location.hash);
  const isOurs = sessionStorage.getItem(MARK) === answer.state;
  sessionStorage.removeItem(MARK);
  return { ...answer, isOurs };
}

export async function signInWithAnswer({ state, code, error, isOurs, ...more }) {
  const refused = error ? `the issuer did not sign you in: ${more.error_description || error}`
    : isOurs ? "" : "this sign-in began in another tab, or elsewhere";
  if (refused) throw new ApiError(401, { error: refused, code: "SIGN_IN_REFUSED", hint: "sign in again" });
  return opened(await request("POST", `${SIGN_IN}/complete`, { state, code }));
}

export async function signInWithToken(token) {
  const response = await fetch(address(PATH), {
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
    tokenId: session?.token_id || "",
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
