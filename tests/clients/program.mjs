// Runs the scenario in a process: program.mjs URL TOKEN. Prints each step, and waits for a line.
import process from "node:process";
import { createInterface } from "node:readline";

import { Agentlip } from "agentlip-appliance";
import { fromWorkspace } from "agentlip-appliance/workspace";

import { scenario } from "./scenario.mjs";

const [url, token] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function step(name) {
  console.log(name);
  await lines.next();
}

await scenario({ Agentlip }, url, token, step);
const found = await fromWorkspace();
await found.hub.createChannel("found");
await step("workspace");
process.exit(0);
