// Channels, topics and messages: loaded over HTTP, kept current by events.
//
// Messages are kept only in the logs of their topics, so what leaves a log is forgotten with it. A page
// may be older than an event that was applied while it was on its way: until it is here, changes are
// remembered, and the higher version counts.
import { ApiError, get, patch, post } from "./api.js";
import { dropDraft } from "./drafts.js";
import { changed, fail, now, state } from "./store.js";
import { unread } from "./unread.js";
import { CHANGED, Log, PAGE } from "./window.js";

const LOGS_MAX = 20;
const TOPICS_MAX = 1_000;
const CHANGES_MAX = 20_000; // while pages are on their way
const FETCH_MAX = 20; // moved messages that are fetched one by one
const CONFLICT = "VERSION_CONFLICT";
const HOUR_MS = 3_600_000;

const changes = new Map(); // message id → what events changed while a page was on its way
const arrived = new Map(); // topic id → ids of messages that were moved there
let reads = 0; // pages on their way
let tooMany = 0; // times that the changes were more than are remembered
let lastTs = 0;
let created = []; // channels that were created while their list was on its way

const order = (one, other) =>
  one.created_at < other.created_at ? -1 : one.created_at > other.created_at ? 1 : one.id < other.id ? -1 : Number(one.id > other.id);

// Remembers changes while `work` reads messages and puts them into a log.
async function reading(work) {
  reads += 1;
  const start = tooMany;
  try {
    const found = await work();
    if (start === tooMany) return found;
  } finally {
    reads -= 1;
    if (!reads) changes.clear();
  }
  throw new ApiError(0, { error: "too many messages changed while they were read", code: CHANGED, hint: "try again" });
}

function remember(id, version, fields) {
  if (changes.size >= CHANGES_MAX) {
    changes.clear();
    tooMany += 1;
  }
  const old = changes.get(id);
  if (reads && !(old?.version >= version)) changes.set(id, { ...old, version, ...fields });
}

const held = (topicId, id) => state.logs.get(topicId)?.items.findLast((each) => each.id === id);

// The newest version of a message that a dialog shows.
let conflicting = null; // read after the last conflict
export function newest(message) {
  const known = [message, held(message.topic_id, message.id), conflicting?.id === message.id && conflicting];
  return known.filter(Boolean).sort((one, other) => other.version - one.version)[0];
}

// The newest version of a message that was read; an older one in its log is replaced.
function learn(message) {
  const change = changes.get(message.id);
  const read = change && change.version > message.version ? { ...message, ...change } : message;
  const old = held(message.topic_id, message.id);
  if (old && old.version >= read.version) return old;
  if (old) replace(old, read);
  return read;
}

function replace(old, message) {
  const log = state.logs.get(old.topic_id);
  const index = log.items.findLastIndex((each) => each.id === message.id);
  log.items = log.items.slice();
  if (old.topic_id === message.topic_id) {
    log.items[index] = message;
  } else {
    drop(log.items.splice(index, 1));
    insert(message);
  }
}

// What is known about messages goes with them.
function drop(messages) {
  for (const { id } of messages) state.enrichments.delete(id);
}

const insert = (message) => state.logs.get(message.topic_id)?.insert(message);

const ofMessage = (id) => `/api/v1/messages/${encodeURIComponent(id)}`;

function topicLog(topicId) {
  const page = async (more) => {
    const found = await get("/api/v1/messages", { topic_id: topicId, limit: PAGE, ...more });
    return { items: more.after_id ? found.messages : found.messages.reverse(), more: found.has_more };
  };
  const log = new Log({
    order, drop, whole: reading, keyOf: (message) => message.id,
    read: ({ before, after }) => page({ before_id: before?.id, after_id: after?.id }),
    take: (messages) => messages.map(learn).filter((each) => each.topic_id === topicId),
  });
  log.find = (id) => log.loadAround(async () => {
    const [{ message }, above, below] = await Promise.all([get(ofMessage(id)), page({ before_id: id }), page({ after_id: id })]);
    return { items: [...above.items, message, ...below.items], older: above.more, newer: below.more };
  }).then(() => log.error?.status === 404 && log.loadNewest());
  return log;
}

// The log of a topic, around a message or at its end. A message that was found may leave the window again.
export function openLog(topicId, messageId) {
  let log = state.logs.get(topicId);
  if (!log) {
    log = topicLog(topicId);
    state.logs.set(topicId, log);
    if (state.logs.size > LOGS_MAX) evict(state.logs.keys().next().value);
  }
  if (log.error || log.loading) return log;
  const missing = messageId && log.sought !== messageId && !log.has(messageId);
  log.sought = messageId;
  if (missing) log.find(messageId);
  else if (!log.filled) log.loadNewest();
  return log;
}

function evict(topicId) {
  drop(state.logs.get(topicId).items);
  state.logs.delete(topicId);
  state.attachments.delete(topicId);
}

export async function loadChannels() {
  const channels = new Map();
  created = [];
  for (let after, pages = 0; pages < 10; pages += 1) {
    const found = await get("/api/v1/channels", { after_name: after });
    for (const channel of found.channels) channels.set(channel.id, channel);
    after = found.channels.at(-1)?.name;
    if (!found.has_more) break;
  }
  for (const channel of created) channels.set(channel.id, channel);
  state.channels = channels;
  state.loaded = true;
  changed();
}

// Titles and activity of the topics that were used last, in all channels.
export async function loadAllTopics() {
  const { topics } = await get("/api/v1/topics", { limit: TOPICS_MAX });
  for (const topic of topics) if (!(state.topics.get(topic.id)?.updated_at > topic.updated_at)) state.topics.set(topic.id, topic);
  changed();
}

// The first message of a topic since a time.
export async function firstSince(topicId, since) {
  const { messages } = await get("/api/v1/messages", { topic_id: topicId, since, limit: 1 });
  return messages[0];
}

// Topics of a channel, newest activity first; another page each time, or until `wanted` is there.
export async function loadTopics(channelId, wanted) {
  const list = state.channelTopics.get(channelId) || { ids: new Set(), more: true, loading: false, error: null };
  state.channelTopics.set(channelId, list);
  if (list.loading || (!list.more && !wanted) || list.ids.has(wanted)) return;
  list.loading = true;
  list.error = null;
  try {
    for (let pages = 0; pages < 20; pages += 1) {
      const path = `/api/v1/channels/${encodeURIComponent(channelId)}/topics`;
      const found = await get(path, { limit: wanted ? 1000 : PAGE, before_id: list.last });
      for (const topic of found.topics) {
        list.ids.add(topic.id);
        state.topics.set(topic.id, topic);
      }
      list.last = found.topics.at(-1)?.id ?? list.last; // events add others to the ids
      list.more = found.has_more;
      if (!wanted || list.ids.has(wanted) || !list.more) break;
    }
  } catch (error) {
    list.error = error;
    list.more = false;
  } finally {
    list.loading = false;
    changed();
  }
}

export function topicsOf(channelId) {
  const list = state.channelTopics.get(channelId);
  const topics = list ? [...list.ids].map((id) => state.topics.get(id)) : [];
  return topics.sort((one, other) => (one.updated_at < other.updated_at ? 1 : -1));
}

export async function loadAttachments(topicId, more) {
  const list = state.attachments.get(topicId) || { items: [], more: false };
  const before_id = more ? list.items.at(-1)?.id : undefined;
  const found = await get(`/api/v1/topics/${encodeURIComponent(topicId)}/attachments`, { limit: PAGE, before_id });
  const items = more ? [...list.items, ...found.attachments] : found.attachments;
  state.attachments.set(topicId, { items, more: found.has_more });
  changed();
}

export async function loadEnrichments(messageId) {
  const found = await get(`${ofMessage(messageId)}/enrichments`);
  state.enrichments.set(messageId, { version: found.version, items: found.enrichments });
  changed();
}

// Everything that is known is read again: after a restore, or when the rights changed.
export function forget() {
  changes.clear();
  arrived.clear();
  lastTs = 0;
  for (const name of ["topics", "channelTopics", "logs", "attachments", "enrichments"]) state[name] = new Map();
}

function changeMessage({ scope, data }, fields) {
  const { message_id: id, version } = data;
  remember(id, version, fields);
  const old = held(scope.topic_id, id);
  if (old && old.version < version) replace(old, { ...old, version, ...fields });
  if (conflicting?.id === id && conflicting.version < version) conflicting = { ...conflicting, version, ...fields };
}

const handlers = {
  "channel.created": ({ data: { channel } }) => {
    state.channels.set(channel.id, channel);
    created.push(channel);
  },
  "topic.created": ({ data: { topic } }) => {
    if (!state.topics.has(topic.id)) state.topics.set(topic.id, topic);
    state.channelTopics.get(topic.channel_id)?.ids.add(topic.id);
  },
  "topic.renamed": ({ data }) => {
    const topic = state.topics.get(data.topic_id);
    if (topic) state.topics.set(topic.id, { ...topic, title: data.new_title });
  },
  "message.created": ({ data: { message } }) => {
    insert(message);
    touch(message.topic_id, message.channel_id, message.created_at);
  },
  "message.edited": (event) => changeMessage(event, { content_raw: event.data.new_content, edited_at: event.ts }),
  "message.deleted": (event) => {
    changeMessage(event, { content_raw: "[deleted]", deleted_at: event.ts, deleted_by: event.data.deleted_by });
    dropDraft(event.data.message_id);
  },
  "message.moved_topic": (event) => {
    const { message_id: id, new_topic_id: topicId, channel_id: channelId } = event.data;
    changeMessage(event, { topic_id: topicId });
    if (state.logs.has(topicId) && !held(topicId, id)) fetchMoved(event.data);
    touch(topicId, channelId, event.ts);
  },
  "topic.attachment_added": ({ data: { attachment } }) => {
    const list = state.attachments.get(attachment.topic_id);
    if (list && !list.items.some((each) => each.id === attachment.id)) {
      state.attachments.set(attachment.topic_id, { ...list, items: [attachment, ...list.items] });
    }
  },
  "message.enriched": ({ scope, data }) => {
    if (!held(scope.topic_id, data.message_id)) return;
    const old = state.enrichments.get(data.message_id);
    const others = old && old.version === data.version ? old.items.filter((each) => each.plugin !== data.plugin) : [];
    const items = data.enrichments.map((each) => ({ ...each, plugin: data.plugin }));
    state.enrichments.set(data.message_id, { version: data.version, items: [...others, ...items] });
  },
};

function touch(topicId, channelId, ts) {
  const topic = state.topics.get(topicId);
  const list = state.channelTopics.get(channelId);
  if (topic && topic.updated_at < ts) state.topics.set(topicId, { ...topic, updated_at: ts });
  if (topic) list?.ids.add(topicId);
  else if (list) loadTopics(channelId, topicId);
}

// Texts of messages that were moved here, many of them as pages.
function fetchMoved({ message_id: id, new_topic_id: topicId }) {
  const ids = arrived.get(topicId) || [];
  arrived.set(topicId, [...ids, id]);
  if (ids.length) return;
  setTimeout(async () => {
    const wanted = arrived.get(topicId) || [];
    arrived.delete(topicId);
    const log = state.logs.get(topicId);
    if (!log) return;
    if (wanted.length > FETCH_MAX) return log.loadNewest();
    try {
      for (const each of wanted) await reading(async () => insert(learn((await get(ofMessage(each))).message)));
    } catch (error) {
      log.error = error;
    }
    changed();
  }, 50);
}

export function apply(event, replayed) {
  const ts = Date.parse(event.ts);
  const jumped = (lastTs && ts < lastTs - HOUR_MS) || (!replayed && Math.abs(ts - now()) > HOUR_MS);
  if (jumped) state.clockWarning = event;
  lastTs = ts;
  handlers[event.name]?.(event);
  unread.count(event);
  changed();
}

// -- changes ------------------------------------------------------------------------------

export async function attempt(work) {
  try {
    return (await work()) ?? true;
  } catch (error) {
    fail(error);
    return null;
  }
}

export async function send(topicId, sender, text) {
  await reading(async () => insert(learn((await post("/api/v1/messages", { topic_id: topicId, sender, content_raw: text })).message)));
  changed();
}

// Changes a message as the person saw it. After a conflict, `newest` has what it is now.
async function change(message, body) {
  try {
    return await patch(ofMessage(message.id), { ...body, expected_version: message.version });
  } catch (error) {
    if (error.code !== CONFLICT) throw error;
    await reading(async () => { conflicting = learn((await get(ofMessage(message.id))).message); });
    changed();
    throw new ApiError(error.status, { error: "the message changed meanwhile", code: CONFLICT, hint: "compare with what it is now, then repeat" });
  }
}

export const edit = async (message, text) => learn((await change(message, { op: "edit", content_raw: text })).message);
export const erase = async (message, actor) => learn((await change(message, { op: "delete", actor })).message);
export const move = (message, topicId, mode) => change(message, { op: "move_topic", to_topic_id: topicId, mode });

export async function createChannel(name, description) {
  const { channel } = await post("/api/v1/channels", { name, ...(description && { description }) });
  state.channels.set(channel.id, channel);
  changed();
  return channel;
}

export async function createTopic(channelId, title) {
  const { topic } = await post("/api/v1/topics", { channel_id: channelId, title });
  state.topics.set(topic.id, topic);
  state.channelTopics.get(channelId)?.ids.add(topic.id);
  changed();
  return topic;
}

export async function renameTopic(topicId, title) {
  const { topic } = await patch(`/api/v1/topics/${encodeURIComponent(topicId)}`, { title });
  state.topics.set(topic.id, topic);
  changed();
}

// How many messages a move takes, at most `MOVE_COUNT_MAX` counted, and some of them.
export const MOVE_COUNT_MAX = 1_000;
export async function previewMove(message, mode) {
  if (mode === "one") return { count: 1, more: false, samples: [message] };
  const query = { topic_id: message.topic_id, limit: MOVE_COUNT_MAX };
  if (mode === "later") query.after_id = message.id;
  const found = await get("/api/v1/messages", query);
  const messages = mode === "later" ? [message, ...found.messages] : found.messages.reverse();
  const samples = messages.length > 4 ? [...messages.slice(0, 2), ...messages.slice(-2)] : messages;
  return { count: messages.length, more: found.has_more, samples };
}
