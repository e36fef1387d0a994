/** Client for the Agentlip Appliance. */
import { Asks } from "./asks.js";
import { Bus } from "./bus.js";
import { Courier } from "./courier.js";
import { type ClientOptions, Http } from "./http.js";
import { Hub } from "./hub.js";
import { Inbox } from "./inbox.js";

export { type Ask, Asks } from "./asks.js";
export { Bus, type BusClaim, type BusMessage } from "./bus.js";
export { Courier, type Delivery, type Envelope, type NewEnvelope, type WorkOptions } from "./courier.js";
export { AgentlipError } from "./errors.js";
export { type Body, type Call, type ClientOptions, Http, type Query, type Reply } from "./http.js";
export { type EventsOptions, Hub, type HubEvent, type Message, type PostOptions } from "./hub.js";
export { type Entry, Inbox } from "./inbox.js";
export type { components, paths } from "./schema.js";

/** An appliance. */
export class Agentlip {
  /** Any route, with its types: `http.request("get", "/api/v1/channels")`. */
  readonly http: Http;
  readonly hub: Hub;
  readonly asks: Asks;
  readonly courier: Courier;

  constructor(options: ClientOptions) {
    this.http = new Http(options);
    this.hub = new Hub(this.http);
    this.asks = new Asks(this.http);
    this.courier = new Courier(this.http);
  }

  /** Return a name's inbox; without a name, the token's own. */
  inbox(name?: string): Inbox {
    return new Inbox(this.http, name);
  }

  /** Return an agent on the worker bus. */
  bus(agent: string): Bus {
    return new Bus(this.http, agent);
  }
}
