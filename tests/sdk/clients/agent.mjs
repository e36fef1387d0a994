// One agent of the network, for `test_other_clients.py`: a library of another author, served here.
//
//   node agent.mjs LIBRARY NAME RELAY FOLDER
//
// Each line of standard input is {"call": NAME, "args": [...]}, and gets one line with `result` or
// `error`. Messages received are `messages`, changes of sent ones `statuses`.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [library, username, relayUrl, dataDir] = process.argv.slice(2);
const { CC4MeNetwork, HttpRelayAPI } = await import(pathToFileURL(library));
const keys = generateKeyPairSync('ed25519');
const privateKey = keys.privateKey.export({ format: 'der', type: 'pkcs8' });
const publicKey = keys.publicKey.export({ format: 'der', type: 'spki' }).toString('base64');
const messages = [], statuses = [], envelopes = [];

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    const envelope = JSON.parse(Buffer.concat(chunks).toString());
    envelopes.push(envelope);
    const name = envelope.type === 'group' ? 'receiveGroupMessage' : 'receiveMessage';
    messages.push(await network[name](envelope));
    response.writeHead(200).end('{"ok":true}');
  } catch (error) {
    response.writeHead(400).end(JSON.stringify({ error: error.message }));
  }
});
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const endpoint = `http://127.0.0.1:${server.address().port}/network/inbox`;
const network = new CC4MeNetwork({
  relayUrl, username, privateKey, endpoint, dataDir, retryDelays: [500, 500, 500],
});
network.on('delivery-status', (status) => statuses.push(status));
const relay = new HttpRelayAPI(relayUrl, username, keys.privateKey);

async function post(path, body) {
  const reply = await fetch(relayUrl + path, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  });
  if (!reply.ok) throw new Error(`${reply.status} ${(await reply.json()).error}`);
  return reply.json();
}

const calls = {
  messages: () => messages,
  envelopes: () => envelopes,
  statuses: () => statuses,
  sendCode: (email) => post('/verify/send', { agentName: username, email }),
  register: async (ownerEmail, code) => {
    await post('/verify/confirm', { agentName: username, code });
    return post('/registry/agents', { name: username, publicKey, ownerEmail, endpoint });
  },
  relay: (name, ...args) => relay[name](...args),
  admin: (key, name, ...args) => network.asAdmin(Buffer.from(key, 'base64'))[name](...args),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { call, args } = JSON.parse(line);
  let reply;
  try {
    const result = await (calls[call] ?? network[call].bind(network))(...args);
    reply = { result: result ?? null };
  } catch (error) {
    reply = { error: error.message };
  }
  console.log(JSON.stringify(reply));
}
process.exit(0);
