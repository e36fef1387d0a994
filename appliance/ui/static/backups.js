// Backups: made and verified by a button; a restore is planned here, and done on the appliance's machine.
import { get, post } from "./api.js";
import { Command, Failure } from "./parts.js";
import { may } from "./session.js";
import { bytes, number } from "./table.js";
import { word } from "./text.js";
import { html, useState } from "./view.js";

const PLAN_SECONDS = 70; // the appliance ends a plan after a minute
const path = (name) => `/api/v1/backups/${encodeURIComponent(name)}`;
const KINDS = { lost: "Lost", "lost-delivered": "Lost here, and delivered before", "still-revoked": "Stays revoked", "valid-again": "Valid again", "sent-again": "Delivered again" };

export const backUp = { title: "Back up now", scope: "backup:create", says: "A backup of all stores is made now, and verified afterwards. Writes pause for some milliseconds.",
  command: "agentlip backup create", work: () => post("/api/v1/backups"), done: () => "A backup is being made." };

export const backupActions = (row) => [!row.problem && { title: "Verify now", scope: "backup:create", says: "The backup is restored into a scratch folder, served there and compared. This list shows the result.",
  command: `agentlip backup verify ${word(row.name)}`, work: () => post(`${path(row.name)}/verify`), done: () => "The backup is being verified." }];

// What a restore would lose, and the command that restores.
export function Backup({ row: { name, problem } }) {
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const read = () => {
    setBusy(true);
    setError(null);
    get(`${path(name)}/plan`, {}, PLAN_SECONDS).then(setPlan, setError).then(() => setBusy(false));
  };
  if (problem) return html`<p class="bad">${problem}</p>`;
  return html`${may("admin") ? html`<p><button disabled=${busy} onClick=${read}>${busy ? "Comparing…" : "What would a restore lose?"}</button></p>` : html`<p class="soft">Only the scope admin may see what a restore would lose.</p>`}
    ${error && html`<${Failure} error=${error} />`}
    ${plan && html`<${Plan} plan=${plan} />`}
    <${Command} label="To restore, on the appliance's machine" text=${`agentlipd down && agentlip backup restore ${word(name)} --yes && agentlipd up`} />`;
}

function Plan({ plan: { notices, uncompared, bytes_needed: needed, bytes_free: free } }) {
  return html`<section class="plan" aria-label="What a restore would lose">
    ${!notices.length && html`<p>Nothing is lost: nothing changed since the backup.</p>`}
    <ul>${notices.map(({ store, kind, noun, count, first }) => html`<li key=${`${store} ${kind} ${noun}`}><strong>${KINDS[kind]}: ${number(count)} ${noun} in ${store}</strong>
      <p class="soft">${first.map(([id, text]) => (id === text ? id : `${id} (${text})`)).join(", ")}${count > first.length ? ", …" : ""}</p></li>`)}</ul>
    ${uncompared.length > 0 && html`<p class="bad">Not known for ${uncompared.join(", ")}: the present store can't be read.</p>`}
    <p class="soft">Needs ${bytes(needed)}; ${bytes(free)} are free.</p></section>`;
}
