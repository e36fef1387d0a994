/** Finds the appliance as the command line does. Not for browsers. */
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";

import { AgentlipError } from "./errors.js";
import { Agentlip } from "./index.js";

interface ServerFile {
  host: string;
  port: number;
  db_id: string;
}

/**
 * Connect to AGENTLIP_URL with AGENTLIP_TOKEN, or to the workspace around a folder.
 *
 * The token is sent only after the program at that address has named the workspace's database.
 * Throws HUB_NOT_RUNNING or STALE_SERVER_FILE.
 */
export async function fromWorkspace(folder = process.cwd()): Promise<Agentlip> {
  const { AGENTLIP_URL: url, AGENTLIP_TOKEN: token } = process.env;
  if (url) return new Agentlip({ url, token });
  const data = await findData(folder);
  const server = JSON.parse(await readFile(join(data, "server.json"), "utf8")) as ServerFile;
  const address = `http://${server.host.includes(":") ? `[${server.host}]` : server.host}:${server.port}`;
  const found = await new Agentlip({ url: address, attempts: 1 }).hub.health();
  if (found.db_id !== server.db_id) {
    const problem = "another program uses the hub's address";
    throw new AgentlipError(problem, "STALE_SERVER_FILE", 0, "agentlipd up");
  }
  const secret = token ?? (await readFile(join(data, "token"), "utf8")).trim();
  return new Agentlip({ url: address, token: secret });
}

/** Return the data directory of the nearest workspace above a folder with a running hub. */
async function findData(folder: string): Promise<string> {
  for (let at = folder; ; at = dirname(at)) {
    const data = join(at, ".agentlip");
    if (await readFile(join(data, "server.json")).catch(() => undefined)) return data;
    if (at === dirname(at)) break;
  }
  throw new AgentlipError("no hub is running", "HUB_NOT_RUNNING", 0, "agentlipd up");
}
