// A client made from the description of the protocol alone, with the cryptography of Node.js. It has
// the names of the original client, so that `agent.mjs` can drive both.

import {
  createCipheriv, createDecipheriv, createHash, createPrivateKey, createPublicKey, diffieHellman,
  hkdfSync, randomBytes, randomUUID, sign, verify,
} from 'node:crypto';
import { EventEmitter } from 'node:events';

const P = 2n ** 255n - 19n;
const X25519_PRIVATE = Buffer.from('302e020100300506032b656e04220420', 'hex');
const X25519_PUBLIC = Buffer.from('302a300506032b656e032100', 'hex');
const SKEW_MS = 300_000;

export const canonical = (value) => {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  const fields = Object.keys(value).sort().map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`);
  return `{${fields.join(',')}}`;
};

function power(base, exponent) {
  let result = 1n;
  for (base %= P; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % P;
    base = (base * base) % P;
  }
  return result;
}

const toNumber = (bytes) => BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`);

function publicX25519(spki) {
  const raw = Buffer.from(spki.subarray(12));
  raw[31] &= 0x7f;
  const y = toNumber(raw);
  if (y === 1n) throw new Error('a key without an image');
  const u = (((1n + y) % P) * power((1n - y + P) % P, P - 2n)) % P;
  const bytes = Buffer.from(u.toString(16).padStart(64, '0'), 'hex').reverse();
  const key = Buffer.concat([X25519_PUBLIC, bytes]);
  return createPublicKey({ key, format: 'der', type: 'spki' });
}

function privateX25519(pkcs8) {
  const scalar = createHash('sha512').update(pkcs8.subarray(16)).digest().subarray(0, 32);
  scalar[0] &= 248;
  scalar[31] = (scalar[31] & 127) | 64;
  const key = Buffer.concat([X25519_PRIVATE, scalar]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
}

export function messageKey(pkcs8, spkiBase64, names) {
  const secret = diffieHellman({
    privateKey: privateX25519(pkcs8), publicKey: publicX25519(Buffer.from(spkiBase64, 'base64')),
  });
  const info = [...names].sort().join(':');
  return Buffer.from(hkdfSync('sha256', secret, 'cc4me-e2e-v1', info, 32));
}

const boundFields = ({ payload, signature, ...fields }) => Buffer.from(canonical(fields));
const signedFields = ({ signature, ...fields }) => Buffer.from(canonical(fields));

export class HttpRelayAPI {
  constructor(url, name, key) {
    Object.assign(this, { url, name, key });
  }

  async request(method, path, body) {
    const text = body === undefined ? '' : JSON.stringify(body);
    const time = new Date().toISOString();
    const hash = createHash('sha256').update(text).digest('hex');
    const signature = sign(null, Buffer.from(`${method} ${path}\n${time}\n${hash}`), this.key);
    const headers = {
      Authorization: `Signature ${this.name}:${signature.toString('base64')}`, 'X-Timestamp': time,
    };
    if (text) headers['Content-Type'] = 'application/json';
    const reply = await fetch(this.url + path, { method, headers, body: text || undefined });
    const data = await reply.json();
    return reply.ok
      ? { ok: true, status: reply.status, data }
      : { ok: false, status: reply.status, error: data.error };
  }

  getPendingRequests() { return this.request('GET', '/contacts/pending'); }
  batchPresence(names) { return this.request('GET', `/presence/batch?agents=${names.join(',')}`); }
  listBroadcasts(type) {
    return this.request('GET', `/admin/broadcasts${type ? `?type=${type}` : ''}`);
  }
}

export class CC4MeNetwork extends EventEmitter {
  constructor({ relayUrl, username, privateKey, endpoint, retryDelays }) {
    super();
    const key = createPrivateKey({ key: privateKey, format: 'der', type: 'pkcs8' });
    Object.assign(this, { privateKey, key, username, endpoint, retryDelays, contacts: new Map() });
    this.relay = new HttpRelayAPI(relayUrl, username, key);
    this.reports = new Map();
  }

  async must(method, path, body) {
    const reply = await this.relay.request(method, path, body);
    if (!reply.ok) throw new Error(reply.error);
    return reply.data;
  }

  start() { return this.must('PUT', '/presence', { endpoint: this.endpoint, version: '2.1' }); }
  requestContact(to, greeting) { return this.must('POST', '/contacts/request', { to, greeting }); }
  getPendingRequests() { return this.must('GET', '/contacts/pending'); }
  checkContactRequests() { return this.getPendingRequests(); }
  async acceptContact(name) {
    await this.must('POST', `/contacts/${name}/accept`);
    await this.getContacts();
  }
  denyContact(name) { return this.must('POST', `/contacts/${name}/deny`); }
  async removeContact(name) {
    await this.must('DELETE', `/contacts/${name}`);
    this.contacts.delete(name);
  }

  async getContacts() {
    const rows = await this.must('GET', '/contacts');
    this.contacts = new Map(rows.map((row) => [row.agent, row]));
    return rows.map((row) => ({ username: row.agent, ...row }));
  }

  async checkPresence(name) {
    const reply = await this.relay.request('GET', `/presence/${name}`);
    return reply.ok ? reply.data : { online: false };
  }

  seal(contact, payload, messageId, kind) {
    const envelope = {
      version: '2.1', messageId, sender: this.username, recipient: contact.agent,
      timestamp: new Date().toISOString(), ...kind,
    };
    const key = messageKey(this.privateKey, contact.publicKey, [this.username, contact.agent]);
    const nonce = randomBytes(12);
    const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(boundFields(envelope));
    const parts = [cipher.update(JSON.stringify(payload)), cipher.final(), cipher.getAuthTag()];
    const ciphertext = Buffer.concat(parts).toString('base64');
    envelope.payload = { ciphertext, nonce: nonce.toString('base64') };
    envelope.signature = sign(null, signedFields(envelope), this.key).toString('base64');
    return envelope;
  }

  async attempt(contact, payload, messageId, kind = { type: 'direct' }) {
    const presence = await this.checkPresence(contact.agent);
    if (!presence.online) return false;
    const body = JSON.stringify(this.seal(contact, payload, messageId, kind));
    const headers = { 'Content-Type': 'application/json' };
    const reply = await fetch(presence.endpoint, { method: 'POST', headers, body });
    this.reports.set(messageId, {
      finalStatus: reply.ok ? 'delivered' : 'failed', attempts: [{ httpStatus: reply.status }],
    });
    return reply.ok;
  }

  async send(to, payload) {
    if (!this.contacts.has(to)) await this.getContacts();
    const contact = this.contacts.get(to);
    if (!contact) return { status: 'failed', messageId: '', error: 'Not a contact' };
    const messageId = randomUUID();
    if (await this.attempt(contact, payload, messageId)) return { status: 'delivered', messageId };
    this.retry(contact, payload, messageId);
    return { status: 'queued', messageId };
  }

  async retry(contact, payload, messageId) {
    for (const delay of this.retryDelays) {
      await new Promise((passed) => setTimeout(passed, delay));
      const status = (await this.attempt(contact, payload, messageId)) ? 'delivered' : 'pending';
      this.emit('delivery-status', { messageId, status });
      if (status === 'delivered') return;
    }
  }

  getDeliveryReport(messageId) { return this.reports.get(messageId); }

  receiveMessage(envelope) {
    if (envelope.recipient !== this.username) throw new Error('for another agent');
    const contact = this.contacts.get(envelope.sender);
    if (!contact) throw new Error('not a contact');
    if (!/^2\.\d+$/.test(envelope.version)) throw new Error('another version');
    if (Math.abs(Date.now() - Date.parse(envelope.timestamp)) > SKEW_MS) throw new Error('too old');
    const publicKey = createPublicKey({
      key: Buffer.from(contact.publicKey, 'base64'), format: 'der', type: 'spki',
    });
    const signature = Buffer.from(envelope.signature, 'base64');
    if (!verify(null, signedFields(envelope), publicKey, signature)) throw new Error('not signed');
    const key = messageKey(this.privateKey, contact.publicKey, [this.username, envelope.sender]);
    const bytes = Buffer.from(envelope.payload.ciphertext, 'base64');
    const nonce = Buffer.from(envelope.payload.nonce, 'base64');
    const cipher = createDecipheriv('aes-256-gcm', key, nonce).setAuthTag(bytes.subarray(-16));
    cipher.setAAD(
      envelope.version === '2.0' ? Buffer.from(envelope.messageId) : boundFields(envelope),
    );
    const plaintext = Buffer.concat([cipher.update(bytes.subarray(0, -16)), cipher.final()]);
    return { sender: envelope.sender, payload: JSON.parse(plaintext.toString()) };
  }

  receiveGroupMessage(envelope) {
    return { ...this.receiveMessage(envelope), groupId: envelope.groupId };
  }

  createGroup(name) { return this.must('POST', '/groups', { name }); }
  getGroupInvitations() { return this.must('GET', '/groups/invitations'); }
  getGroupMembers(group) { return this.must('GET', `/groups/${group}/members`); }
  inviteToGroup(group, agent, greeting) {
    return this.must('POST', `/groups/${group}/invite`, { agent, greeting });
  }
  acceptGroupInvitation(group) { return this.must('POST', `/groups/${group}/accept`); }
  removeFromGroup(group, agent) { return this.must('DELETE', `/groups/${group}/members/${agent}`); }
  async sendToGroup(groupId, payload) {
    const messageId = randomUUID();
    const delivered = [];
    for (const { agent } of await this.getGroupMembers(groupId)) {
      const contact = this.contacts.get(agent);
      const kind = { type: 'group', groupId };
      if (contact && await this.attempt(contact, payload, messageId, kind)) delivered.push(agent);
    }
    return { messageId, delivered };
  }

  async checkBroadcasts() {
    const { data } = await this.relay.listBroadcasts();
    const admins = await this.must('GET', '/admin/keys');
    return data.filter((row) => {
      const admin = admins.find(({ agent }) => agent === row.sender);
      const key = Buffer.from(admin.adminPublicKey, 'base64');
      const publicKey = createPublicKey({ key, format: 'der', type: 'spki' });
      const signature = Buffer.from(row.signature, 'base64');
      return verify(null, Buffer.from(row.payload), publicKey, signature);
    }).map((row) => ({ ...row, payload: JSON.parse(row.payload) }));
  }

  asAdmin(pkcs8) {
    const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' });
    const decide = (verb) => (name) => this.must('POST', `/registry/agents/${name}/${verb}`);
    return {
      approveAgent: decide('approve'),
      revokeAgent: decide('revoke'),
      broadcast: (type, content) => {
        const payload = JSON.stringify(content);
        const signature = sign(null, Buffer.from(payload), key).toString('base64');
        return this.must('POST', '/admin/broadcast', { type, payload, signature });
      },
    };
  }
}
