// The appliance's agents on the agent network: contacts, requests that wait, broadcasts and deliveries.
import { get, post } from "./api.js";
import { Command } from "./parts.js";
import { mark, since } from "./table.js";
import { showNumber, word } from "./text.js";
import { html, useEffect, useState } from "./view.js";

const AGENTS_MAX = 10;
const PATH = "/api/v1/network";
const instant = (milliseconds) => (milliseconds ? new Date(milliseconds).toISOString() : null);
const key = (row) => `${row.kind} ${row.own} ${row.agent}`;

// For each of the appliance's agents, the rows that `read` gets for it.
async function ofEach(read) {
  const { agents } = await get(`${PATH}/agents`);
  const lists = await Promise.all(agents.slice(0, AGENTS_MAX).map(async ({ name }) => (await read(name)).map((row) => ({ own: name, ...row }))));
  return { agents, rows: lists.flat() };
}

const contactsOf = async (own) => {
  const [{ contacts, pins }, { requests }] = await Promise.all([get(`${PATH}/contacts`, { own }), get(`${PATH}/requests`, { own })]);
  const pinOf = new Map(pins.map((pin) => [pin.agent, pin]));
  const keyState = ({ agent }) => (pinOf.get(agent)?.offered ? "changed" : pinOf.get(agent)?.verified ? "verified" : "new");
  return [...requests.map((row) => ({ kind: "request", ...row })), ...contacts.map((row) => ({ kind: "contact", key: keyState(row), ...row }))];
};

const act = (verb, row, more) => () => post(`${PATH}/${verb}`, { name: row.agent, own: row.own, ...more });

export const contacts = {
  title: "Network", group: "Links", what: "network role", read: () => ofEach(contactsOf),
  facts: ({ agents }) => agents.map(({ name, relay, problem }) => [name, html`${mark(problem ? "not connected" : "connected", problem ? "bad" : "good")} <span class="soft">${problem || relay}</span>`]),
  rows: (data) => data.rows, key, empty: "No contacts, and no requests. An agent begins with agentlip network init.",
  columns: [["Agent", (row) => row.agent], ["Kind", (row) => row.kind, (value) => (value === "request" ? mark("request", "warn") : value)], ["With", (row) => row.own], ["Owner", (row) => row.email],
    ["Key", (row) => row.key, (value) => value && mark(value, { changed: "bad", new: "warn" }[value] || "good")], ["Online", (row) => (row.online === null || row.online === undefined ? "" : row.online ? "yes" : "no")],
    ["Since", (row) => row.createdAt, since], ["Greeting", (row) => row.greeting]],
  detail: {
    hidden: ["key", "kind", "publicKey"],
    show: (row) => html`<${SafetyNumber} row=${row} />`,
    actions: (row) => (row.kind === "request" ? [
      { title: "Accept", scope: "network:write", says: `${row.agent} becomes a contact of ${row.own}: both can send messages. Compare the safety number with the owner first.`,
        command: `agentlip network accept ${word(row.agent)}`, work: act("answer", row, { answer: "accept" }), done: () => `${row.agent} is a contact.` },
      { title: "Deny", scope: "network:write", says: `The request ends. ${row.agent} may request again.`, command: `agentlip network deny ${word(row.agent)}`,
        work: act("answer", row, { answer: "deny" }), done: () => "The request is denied." },
      { title: "Block", danger: true, scope: "network:write", says: `The request ends, and each later one by ${row.agent} is denied.`, command: `agentlip network block ${word(row.agent)}`,
        work: act("answer", row, { answer: "block" }), done: () => `${row.agent} is blocked.` },
    ] : [
      { title: "Remove", danger: true, scope: "network:write", says: `Neither side can send to the other any more, and the key of ${row.agent} is forgotten.`, command: `agentlip network remove ${word(row.agent)}`,
        work: act("remove", row), done: () => `${row.agent} is removed.` },
    ]),
  },
};

// Sixty digits that both owners compare by telephone.
function SafetyNumber({ row }) {
  const [shown, setShown] = useState(null);
  useEffect(() => void get(`${PATH}/contacts/${encodeURIComponent(row.agent)}`, { own: row.own }).then(setShown, () => {}), []);
  return shown && html`<${Command} label="Safety number: compare it with the owner by telephone" text=${shown.safetyNumber} />`;
}

export const groups = {
  title: "Groups", group: "Links", what: "network role", seconds: 60, read: () => ofEach(async (own) => (await get(`${PATH}/groups`, { own })).groups),
  rows: (data) => data.rows, key: (row) => `${row.own} ${row.groupId}`, empty: "No groups.",
  columns: [["Group", (row) => row.name], ["Role", (row) => row.role], ["Owner", (row) => row.owner], ["Members", (row) => row.memberCount], ["Agent", (row) => row.own], ["Created", (row) => row.createdAt, since]],
  detail: { read: async ({ own, groupId }) => ({ members: (await get(`${PATH}/group-members`, { own, group: groupId })).members.map(({ agent, role }) => `${agent} (${role})`).join(", ") }) },
};

export const broadcasts = {
  title: "Broadcasts", group: "Links", what: "network role", read: () => ofEach(async (own) => (await get(`${PATH}/broadcasts`, { own })).broadcasts),
  rows: (data) => data.rows, key: (row) => `${row.own} ${row.id}`, empty: "No broadcasts by relay admins.",
  columns: [["Text", (row) => row.text], ["Type", (row) => row.type, (value) => mark(value, { "security-alert": "bad", revocation: "warn" }[value] || "good")], ["Admin", (row) => row.sender],
    ["Signed", (row) => row.time, since], ["To", (row) => row.own]],
  detail: { hidden: ["payload"] },
};

export const deliveries = {
  title: "Deliveries", group: "Links", what: "network role", read: () => ofEach(async (own) => (await get(`${PATH}/reports`, { own, limit: 100 })).reports),
  rows: (data) => data.rows.map((row) => ({ ...row, last: row.attempts.at(-1) })), key: (row) => `${row.own} ${row.messageId}`, empty: "Nothing was sent.",
  columns: [["Message", (row) => row.messageId], ["To", (row) => row.recipient], ["Status", (row) => row.status, (value) => mark(value, { failed: "bad", expired: "bad", pending: "warn", sending: "warn" }[value] || "good")],
    ["Sent", (row) => instant(row.createdMs), since], ["Attempts", (row) => row.attempts.length], ["TLS", (row) => row.last?.tlsMs, (value) => (value ? `${showNumber(value)} ms` : "")], ["Problem", (row) => row.last?.problem]],
  detail: { hidden: ["last"] },
};
