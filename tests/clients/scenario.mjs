// What a program does with the client, on every platform. `step` tells the test how far it is,
// and waits until the test has done its part: "restart" starts the appliance again.

function equal(found, expected, about) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${about}: ${a} is not ${b}`);
}

async function refused(promise, code) {
  const error = await promise.then(() => ({ code: "none" }), (thrown) => thrown);
  equal(error.code, code, "error code");
  return error;
}

async function take(stream, count) {
  const items = [];
  for await (const item of stream) {
    items.push(item);
    if (items.length === count) return items;
  }
  throw new Error(`the stream ended after ${items.length} items`);
}

export async function scenario({ Agentlip }, url, token, step) {
  const agentlip = new Agentlip({ url, token });
  const parts = { hub, inbox, asks, courier, bus, errors };
  for (const [name, part] of Object.entries(parts)) {
    await part(agentlip, step, { Agentlip, url });
    await step(name);
  }
  return Object.keys(parts);
}

async function hub({ hub }, step) {
  await hub.createChannel("builds", "what the builds say");
  await hub.createTopic("builds", "nightly");
  const { message } = await hub.post("builds/nightly", "ci", "build 1 😀", { key: "build-1" });
  const again = await hub.post("builds/nightly", "ci", "build 1 😀", { key: "build-1" });
  equal(again.message.id, message.id, "a repeated key");
  await hub.edit(message.id, "build one", message.version);
  const kept = [];
  for await (const each of hub.messages("builds/nightly", 1)) kept.push(each.content_raw);
  equal(kept, ["build one"], "messages");
  equal((await hub.search("one")).messages.length, 1, "found");

  const stop = new AbortController();
  const events = hub.events({ after: 0, channels: ["builds"], signal: stop.signal });
  const names = [];
  const seen = (async () => {
    for await (const event of events) names.push(event.name);
  })();
  await until(() => names.length === 4, "the replay");
  await step("restart");
  await hub.post("builds/nightly", "ci", "build 2");
  await until(() => names.length === 5, "the event after the restart");
  stop.abort();
  await seen;
  const expected = ["channel.created", "topic.created", "message.created", "message.edited"];
  equal(names, [...expected, "message.created"], "events");
  await refused(take(hub.events({ after: 0, epoch: "another" }), 1), "EPOCH_CHANGED");
}

async function inbox(agentlip) {
  const ada = agentlip.inbox("ada");
  const { topic } = await agentlip.hub.createTopic("builds", "reviews");
  await ada.follow(topic.id);
  await agentlip.hub.post(topic.id, "ci", "please look");
  const [entry] = await take(ada.entries(), 1);
  equal(entry.message.content_raw, "please look", "entry");
  const waiting = await ada.list({ wait: 5 });
  equal(waiting.entries.map((each) => each.id), [entry.id], "entries");
  await ada.acknowledge(entry.id);
  equal((await ada.list()).entries, [], "entries after the ack");
  const { receipts } = await ada.receipts(entry.message.id);
  equal(receipts[0].state, "acknowledged", "receipt");
}

async function asks({ asks }) {
  const ask = await asks.ask({ text: "Deploy?", sender: "ci", choices: ["yes", "no"] });
  const settled = asks.settled(ask.id);
  await asks.answer(ask.id, "yes");
  equal((await settled).answer, "yes", "answer");
}

async function courier({ courier }) {
  const stream = "durable/work";
  const id = await courier.enqueue(stream, { id: "e-1", from: "ci", type: "job", payload: 1 });
  equal(await courier.enqueue(stream, { id, from: "ci", type: "job", payload: 1 }), id, "again");
  await courier.enqueueMany(stream, [{ from: "ci", type: "job", payload: 2 }]);
  const stop = new AbortController();
  const runs = [];
  const failures = [];
  await courier.work(stream, (envelope, { attempt }) => {
    runs.push([envelope.payload, attempt]);
    if (envelope.payload === 2 && attempt === 1) throw new Error("once");
    if (runs.length === 3) stop.abort();
  }, { signal: stop.signal, failed: (error) => failures.push(error.message) });
  equal(runs.sort(), [[1, 1], [2, 1], [2, 2]], "runs");
  equal(failures, ["once"], "failures");
  equal((await courier.receive({ stream, max: 1, wait: 0 })).length, 0, "left");
}

async function bus(agentlip) {
  const [ada, bert] = [agentlip.bus("ada"), agentlip.bus("bert")];
  await ada.beat();
  await ada.publish({ type: "note", to_agent: "bert", payload: { text: "hello" } });
  const [message] = await bert.poll(5);
  await bert.ack(message.seq);
  equal(await bert.poll(), [], "after the ack");
  const [again] = await take(bert.messages(message.seq - 1), 1);
  equal(again.seq, message.seq, "stream");
  await ada.withClaim("task-1", async (claim) => {
    equal((await refused(bert.claim("task-1"), "BUS_CLAIM_HELD")).status, 409, "status");
    await ada.renew(claim);
  });
  equal(await bert.release(await bert.claim("task-1")), true, "released");
}

async function errors({ hub, http }, _step, { Agentlip, url }) {
  const error = await refused(hub.createTopic("nowhere", "x"), "NOT_FOUND");
  equal([error.status, error.hint !== "", error.requestId !== ""], [404, true, true], "error");
  await refused(new Agentlip({ url, token: "wrong" }).hub.createChannel("x"), "UNAUTHORIZED");
  const nobody = new Agentlip({ url: "http://127.0.0.1:9", attempts: 1 });
  await refused(nobody.hub.health(), "UNREACHABLE");
  const stop = new AbortController();
  const list = http.request("get", "/api/v1/inbox", {
    query: { name: "nobody", wait: 20 }, waitSeconds: 20, signal: stop.signal,
  });
  stop.abort();
  await refused(list, 20); // an AbortError, whose code is 20
}

async function until(reached, about) {
  for (let i = 0; !reached(); i++) {
    if (i === 600) throw new Error(`waited in vain for ${about}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
