// The person's own menu: who is signed in, with which rights and browsers, and what ends that.
import { get } from "./api.js";
import { Failure, useModal } from "./parts.js";
import { Sessions } from "./people.js";
import { signOut } from "./session.js";
import { fail, state } from "./store.js";
import { ago, showMoment } from "./text.js";
import { html, useEffect, useRef, useState } from "./view.js";

export function Account({ otherTheme, help, done }) {
  const [isOpen, setOpen] = useState(false);
  const { known, signedIn, name } = state.session;
  if (!known) return null;
  if (!signedIn) return html`<a class="plain person" href="#/sign-in">Sign in</a><button class="plain" aria-label="Light or dark" title="Light or dark" onClick=${otherTheme}>◐</button>
    <button class="plain" aria-label="Keys" title="Keys (?)" onClick=${help}>?</button>`;
  const close = () => setOpen(false);
  return html`<button class="plain person" aria-haspopup="dialog" onClick=${() => setOpen(true)}>${name} ▾</button>
    ${isOpen && html`<${Menu} close=${close} otherTheme=${otherTheme} help=${() => { close(); help(); }} done=${done} />`}`;
}

function Menu({ close, otherTheme, help, done }) {
  const box = useRef(null);
  const [sessions, setSessions] = useState([]);
  const [error, setError] = useState(null);
  useModal(box);
  const { name, scopes, expiresAt, tokenId } = state.session;
  const read = () => get("/api/v1/sessions", { limit: 1000 }).then((page) => setSessions(page.sessions.filter((each) => each.token_id === tokenId)), setError);
  useEffect(() => void read(), []);
  const used = sessions[0]?.last_used_at;
  const leave = () => signOut().then(() => { close(); done(); }, fail);
  return html`<dialog ref=${box} class="account" aria-label="Your account" onClose=${close} onClick=${(event) => event.target === box.current && close()}>
    <h2>${name}</h2>
    <dl><dt>Scopes</dt><dd><span class="chips">${scopes.map((scope) => html`<span key=${scope} class="chip">${scope}</span>`)}</span></dd>
      <dt>Last use</dt><dd>${used ? html`<time datetime=${used} title=${showMoment(used)}>${ago(used)}</time>` : "not recorded yet"}</dd>
      ${expiresAt && html`<dt>Signed in until</dt><dd>${showMoment(expiresAt)}</dd>`}</dl>
    ${error && html`<${Failure} error=${error} />`}
    <${Sessions} sessions=${sessions} again=${read} />
    <div class="acts"><button onClick=${otherTheme} aria-label="Light or dark">◐ Light or dark</button><button onClick=${help}>Keys <kbd>?</kbd></button>
      <button class="danger" onClick=${leave}>Sign out here</button><button class="plain" onClick=${close}>Close</button></div>
  </dialog>`;
}
