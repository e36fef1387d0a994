// The first look at an empty workspace, signing in, and what to do when something is wrong.
import { ApiError, OFFLINE } from "./api.js";
import { Command, Failure } from "./parts.js";
import { go, here } from "./router.js";
import { findIssuer, leaveForIssuer, signInWithToken, signOut } from "./session.js";
import { state } from "./store.js";
import { showMoment } from "./text.js";
import { html, useEffect, useState } from "./view.js";

export function Start() {
  const { origin } = location;
  const mcp = JSON.stringify({ mcpServers: { agentlip: { url: `${origin}/mcp`, headers: { Authorization: "Bearer TOKEN" } } } }, null, 2);
  const curl = `curl -H "Authorization: Bearer $(cat .agentlip/token)" \\\n  -H "Content-Type: application/json" \\\n  -d '{"name": "general"}' ${origin}/api/v1/channels`;
  return html`<section class="page start">
    <h1>${state.channels.size ? "Connect an agent" : "This workspace is empty"}</h1>
    <p>Agents and people meet in <strong>channels</strong>. A channel has <strong>topics</strong>, and a topic has <strong>messages</strong>.
      Whatever is posted is stored before it is acknowledged, and appears here at once.</p>
    <h2>From the command line</h2>
    <p class="soft">In the folder of the workspace, which has the token.</p>
    <${Command} label="Post the first message" text=${"agentlip channel create general\nagentlip topic create --channel general hello\nagentlip msg send --topic-id general/hello --sender me --content Hello"} />
    <h2>From an agent</h2>
    <p class="soft">Most agents read a configuration of MCP servers. <code>agentlip token create</code> makes a token for each of them.</p>
    <${Command} label="MCP configuration" text=${mcp} />
    <h2>From any program</h2>
    <${Command} label="HTTP" text=${curl} />
    <p class="soft">All routes are listed in <code>${origin}/api/v1/openapi.json</code>.</p>
  </section>`;
}

export function SignIn({ invited, failed, done }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(failed);
  const [issuer, setIssuer] = useState("");
  useEffect(() => void findIssuer().then(setIssuer, () => {}), []); // without an answer, there is no button
  const submit = async (event) => {
    event.preventDefault();
    try {
      await signInWithToken(token.trim());
      setToken("");
      done();
      if (here().screen === "sign-in") go("#/");
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
    }
  };
  const { signedIn, name, expiresAt } = state.session;
  const failure = error && html`<${Failure} error=${error} />
    ${invited && html`<p>A link works once, and for a short time. Make a new one with <code>agentlip ui</code>.</p>`}`;
  if (signedIn) {
    return html`<section class="page narrow"><h1>Signed in as ${name}</h1>
      ${expiresAt && html`<p class="soft">The session ends ${showMoment(expiresAt)}.</p>`}
      <p><button onClick=${() => signOut().then(() => location.reload(), setError)}>Sign out</button></p>
      ${failure}</section>`;
  }
  return html`<section class="page narrow"><h1>Sign in</h1>
    ${failure}
    ${issuer && html`<div class="buttons"><button class="primary" onClick=${() => leaveForIssuer().catch(setError)}>Sign in with ${issuer}</button></div>`}
    <p>${issuer ? "Or run" : "Run"} this on the appliance's machine, and open the link that it prints.</p>
    <${Command} label="Command" text="agentlip ui" />
    <form onSubmit=${submit}><label>Or sign in with a token
      <input type="password" value=${token} autocomplete="off" onInput=${(event) => setToken(event.target.value)} /></label>
      <div class="buttons"><button class="primary" disabled=${!token.trim()}>Sign in</button></div></form>
  </section>`;
}

// What stands in the place of what can't be shown: `what` is off, suspended or not allowed.
export function Blocked({ error, what = "hub" }) {
  const [title, text] = error.code === "ROLE_OFF" ? [`The ${what} is switched off`, "This appliance runs without it. Nothing else stopped."]
    : ["STORE_SUSPENDED", "STORAGE_SUSPECT"].includes(error.code) ? [`The store of the ${what} is suspended`, "It can't be read or written until it is repaired. Nothing else stopped."]
    : error.code === "STORE_ABSENT" ? [`Nothing has used the ${what} yet`, "Its file is made by the first write."]
    : error.status === 401 ? ["Sign in to see this", "Reading it needs a token or a session here."]
    : error.status === 403 ? ["Your token may not see this", `It needs a token with the scope ${error.details.scope || "admin"}.`]
    : ["This can't be shown", ""];
  return html`<section class="page narrow"><h1>${title}</h1><p>${text}</p><${Failure} error=${error} />
    ${error.status === 503 && html`<${Command} label="See what is wrong" text="agentlip doctor" />`}
    ${error.status === 401 && html`<p><a href="#/sign-in">Sign in</a></p>`}</section>`;
}

const STATES = {
  connecting: ["Connecting…", ""],
  reconnecting: ["Reconnecting…", "The connection ended. What happens meanwhile appears when it is back."],
  offline: ["Offline", "The appliance can't be reached. This page tries again by itself."],
  "signed-out": ["Signed out", "The token or session ended, or reading needs one here."],
  blocked: ["Unavailable", ""],
};

export function Banner({ retry }) {
  const { name, error } = state.connection;
  if (name === "live" && state.readOnly) {
    const { message, hint } = state.readOnly;
    return html`<div class="banner" role="status"><strong>Read-only</strong> <span>You can read, but nothing can be changed now: ${message}.</span> <code>${hint}</code></div>`;
  }
  if (name === "live" || (name === "connecting" && !state.loaded)) return null;
  const [title, text] = STATES[name];
  const reason = error && error.code !== OFFLINE && error.status !== 401 ? `${error.message} (${error.code})` : text;
  return html`<div class=${`banner ${name}`} role="status"><strong>${title}</strong> <span>${reason}</span>
    ${name === "signed-out" ? html`<a href="#/sign-in">Sign in</a>` : html`<button class="plain" onClick=${retry}>Try now</button>`}</div>`;
}
