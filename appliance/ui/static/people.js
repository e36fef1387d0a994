// Who may do what here: tokens with their scopes, the browsers that are signed in, and invitations.
import { Actions } from "./actions.js";
import { get, post, request } from "./api.js";
import { Command, Dialog } from "./parts.js";
import { may } from "./session.js";
import { since } from "./table.js";
import { word } from "./text.js";
import { html, useState } from "./view.js";

const INVITED_SECONDS = 86_400;
const PRESETS = {
  Reader: ["hub:read"],
  Writer: ["hub:read", "hub:post", "ask:answer"],
  Operator: ["admin"],
};
const chips = (scopes) => html`<span class="chips">${scopes.map((scope) => html`<span key=${scope} class="chip">${scope}</span>`)}</span>`;

export async function readPeople() {
  const [{ tokens }, { sessions }] = await Promise.all([get("/api/v1/tokens"), get("/api/v1/sessions", { limit: 1000 })]);
  return { tokens: tokens.filter(({ state }) => state === "active").map((token) => ({ ...token, sessions: sessions.filter(({ token_id: id }) => id === token.id) })) };
}

export const columns = [
  ["Name", (row) => row.name], ["Scopes", (row) => row.scopes.join(" "), (_, row) => chips(row.scopes)], ["Last used", (row) => row.last_used_at, since],
  ["Browsers", (row) => row.sessions.length], ["Ends", (row) => row.expires_at, since], ["Made", (row) => row.created_at, since],
  ["End", (row) => (row.id === "server" ? "" : "revoke"), (_, row, again) => html`<${Actions} again=${again} actions=${revoke(row)} />`],
];

export const revoke = (row) => [row.id !== "server" && { title: "Revoke", danger: true, scope: "admin", says: `${row.name} can do nothing here any more, at once; ${row.sessions.length} browsers are signed out. This can't be undone.`,
  typed: row.name, command: `agentlip token revoke ${word(row.id)}`, work: () => request("DELETE", `/api/v1/tokens/${encodeURIComponent(row.id)}`), done: () => `${row.name} is revoked.` }];

export const show = (row, again) => html`<${Sessions} sessions=${row.sessions} again=${again} />`;

// The browsers that are signed in with a token, each with the button that ends it.
export function Sessions({ sessions, again }) {
  if (!sessions.length) return null;
  return html`<ul class="sessions">${sessions.map((session) => html`<li key=${session.id}>${session.current ? "This browser" : "A browser"}, since ${since(session.created_at)}
    <${Actions} again=${again} actions=${[{ title: "Sign out", allowed: true, says: session.current ? "This browser is signed out." : "That browser is signed out; its page says so.",
      work: () => request("DELETE", `/api/v1/sessions/${session.id}`), done: () => "The browser is signed out." }]} /></li>`)}</ul>`;
}

export function Invite({ again }) {
  const [isOpen, setOpen] = useState(false);
  if (!may("admin")) return null;
  return html`<button class="primary" onClick=${() => setOpen(true)}>Invite…</button>${isOpen && html`<${InviteDialog} again=${again} close=${() => setOpen(false)} />`}`;
}

// Makes a token and a link, which is shown once.
function InviteDialog({ again, close }) {
  const [name, setName] = useState("");
  const [preset, setPreset] = useState("Writer");
  const [link, setLink] = useState("");
  const work = async () => {
    const { token } = await post("/api/v1/tokens", { name: name.trim(), scopes: PRESETS[preset], senders: [name.trim()] });
    const { secret } = await post("/api/v1/invitations", { token_id: token.id, lifetime_seconds: INVITED_SECONDS });
    setLink(`${location.origin}${location.pathname}#invite=${secret}`);
    again();
  };
  if (link) {
    return html`<${Dialog} key="link" title=${`Send this link to ${name.trim()}`} action="Done" close=${close} work=${async () => {}}>
      <${Command} label="Works once, within a day" text=${link} /><p class="soft">The link is not shown again.</p><//>`;
  }
  return html`<${Dialog} title="Invite somebody" action="Make a link" close=${close} keep work=${work} disabled=${!name.trim()}>
    <label>Name<input value=${name} maxlength="100" autocomplete="off" autofocus onInput=${(event) => setName(event.target.value)} /></label>
    <fieldset><legend>Rights</legend>${Object.entries(PRESETS).map(([title, scopes]) => html`<label key=${title} class="radio"><input type="radio" name="preset" checked=${preset === title} onChange=${() => setPreset(title)} /> ${title} ${chips(scopes)}</label>`)}</fieldset>
    <details><summary>The same by command</summary><${Command} label="Command" text=${`agentlip token create --name ${word(name.trim() || "NAME")} --sender ${word(name.trim() || "NAME")} ${PRESETS[preset].map((scope) => `--scope ${scope}`).join(" ")} --invite`} /></details>
  <//>`;
}
