// Starts the page: takes a one-time link, connects, and shows the screen of the address.
import { Account } from "./account.js";
import { get } from "./api.js";
import { asks, AsksBadge, AsksScreen, loadAsks, noteAsk } from "./asks.js";
import { EventsScreen } from "./events.js";
import { Help } from "./help.js";
import { Home } from "./home.js";
import { apply, attempt, forget, loadAllTopics, loadChannels } from "./hub.js";
import { Live } from "./live.js";
import { OperateScreen } from "./operate.js";
import { noteVisit, Palette } from "./palette.js";
import { Badge, useCurrentInView } from "./parts.js";
import { go, goQuietly, here, link } from "./router.js";
import { SearchScreen } from "./search.js";
import { refreshSession, signInWithAnswer, signInWithInvite, takeAnswer, takeInvite } from "./session.js";
import { ChannelScreen, NewChannel, Sidebar } from "./sidebar.js";
import { Banner, Blocked, SignIn, Start } from "./start.js";
import { changed, keep, notify, onChange, recall, SECRET_KEY, state, watchers } from "./store.js";
import { duration } from "./table.js";
import { showMoment } from "./text.js";
import { TopicScreen } from "./topic.js";
import { unread } from "./unread.js";
import { Component, html, render, useRef } from "./view.js";

const REPLAY_MAX = 2_000; // events since the last visit that are read for the unread counts
const HOUR_MS = 3_600_000;

// A link to a message, wherever it is by now.
class FindMessage extends Component {
  componentDidMount() {
    get(`/api/v1/messages/${encodeURIComponent(this.props.place.message)}`).then(
      ({ message }) => goQuietly(link({ channel: message.channel_id, topic: message.topic_id, message: message.id })),
      (error) => this.setState({ error }),
    );
  }

  render() {
    if (this.state.error) return html`<${Blocked} error=${this.state.error} />`;
    return html`<section class="page"><p class="soft">Looking for the message…</p></section>`;
  }
}

// Another screen is a row here: its name in the address, its view, and its title in the menu.
// `alone`: it needs no hub.
const SCREENS = {
  "": { view: Home, title: "Home" },
  asks: { view: AsksScreen, title: "Waiting for you", badge: AsksBadge },
  search: { view: SearchScreen, title: "Search" },
  events: { view: EventsScreen, title: "Events" },
  operate: { view: OperateScreen, title: "Operate", alone: true },
  start: { view: Start, title: "Connect" },
  "sign-in": { view: SignIn },
  topic: { view: TopicScreen },
  channel: { view: ChannelScreen },
  message: { view: FindMessage },
};

let inviteFailure = null; // why a link or an issuer did not sign the person in

const live = new Live({
  async start(head) {
    const health = await get("/health");
    live.epoch = health.epoch;
    unread.use(health.db_id, health.epoch);
    if (unread.cursor === null || head - unread.cursor > REPLAY_MAX || unread.cursor > head) unread.cursor = head;
    return unread.cursor;
  },
  onEvent(event, replayed) {
    apply(event, replayed);
    noteAsk(event);
    for (const watch of watchers) watch(event);
  },
  onReady() {
    attempt(loadChannels);
    attempt(loadAllTopics);
    attempt(noteHealth);
    loadAsks();
  },
  onEpoch() {
    forget();
    state.loaded = false;
    notify("The workspace was restored from a backup. Everything was read again.");
  },
});

// Whether changes are refused is known before somebody tries one.
async function noteHealth() {
  const { read_only: readOnly } = await get("/health");
  if (readOnly) state.readOnly = { message: "the appliance was started read-only", hint: "agentlipd restart" };
  changed();
}

class App extends Component {
  constructor() {
    super();
    this.state = { place: here(), help: false, palette: false, newChannel: false, menu: false };
    this.prefix = "";
  }

  componentDidMount() {
    onChange(() => this.setState({}));
    addEventListener("hashchange", () => this.arrive());
    addEventListener("storage", (event) => event.key === SECRET_KEY && followOtherTabs());
    addEventListener("keydown", (event) => this.onKey(event));
    this.arrive();
  }

  arrive() {
    const invite = takeInvite();
    inviteFailure = null;
    if (invite) enter(() => signInWithInvite(invite)).then((isIn) => isIn && startAgain());
    const place = here();
    noteVisit(place);
    this.setState({ place, menu: false, palette: false });
  }

  onKey(event) {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      this.setState({ palette: true });
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, dialog")) return;
    const pressed = `${this.prefix}${event.key}`;
    this.prefix = event.key === "g" && !this.prefix ? "g" : "";
    const target = { "/": "#/search", gh: "#/", ga: "#/asks", ge: "#/events", go: "#/operate", gs: "#/sign-in" }[pressed];
    if (pressed === "?") this.setState({ help: true });
    else if (pressed === "n") this.nextUnread();
    else if (target) go(target);
    else return;
    event.preventDefault();
    if (target === "#/search") setTimeout(() => document.getElementById("query")?.focus(), 50);
  }

  nextUnread() {
    const [next] = Object.entries(unread.topics).filter(([topic]) => topic !== this.state.place.topic);
    if (next) go({ channel: next[1].channel, topic: next[0] });
    else notify("No unread messages.");
  }

  screen(place) {
    const { name, error } = state.connection;
    const done = () => {
      inviteFailure = null;
      live.now();
    };
    if (place.screen === "sign-in" || inviteFailure) return html`<${SignIn} invited=${inviteFailure?.code === "INVITE_REFUSED"} failed=${inviteFailure} done=${done} />`;
    if (name === "signed-out" && !state.loaded) return html`<${SignIn} failed=${state.session.signedIn ? error : null} done=${done} />`;
    if (place.screen === "start" || (place.screen === "" && state.loaded && !state.channels.size)) return html`<${Start} />`;
    const { view: View, alone } = SCREENS[place.screen] || {};
    if (alone) return html`<${View} key=${place.screen} place=${place} />`;
    if (name === "blocked" && !state.loaded) return html`<${Blocked} error=${error} />`;
    if (!state.loaded) return html`<section class="page"><p class="soft" role="status">${name === "offline" ? "The appliance can't be reached." : "Connecting…"}</p></section>`;
    const key = place.screen === "events" ? `events ${JSON.stringify(place.query)}` : place.screen;
    return View ? html`<${View} key=${key} place=${place} />` : html`<${Home} />`;
  }

  render(_, { place, help, palette, newChannel, menu }) {
    document.title = titleOf(place);
    const { notice, clockWarning, skewMs, skewSeen } = state;
    return html`<a class="skip" href="#content" onClick=${skip}>${place.topic ? "Skip to messages" : "Skip to content"}</a>
      <header class="top">
        <button class="plain menu" aria-expanded=${menu ? "true" : "false"} onClick=${() => this.setState({ menu: !menu })}><span aria-hidden="true">☰ </span>Channels</button>
        <a class="brand" href="#/">Agentlip</a><${Badge} count=${unread.total} />
        <${Screens} current=${place.screen} />
        <button class="plain" aria-keyshortcuts="Control+K" onClick=${() => this.setState({ palette: true })}>Go to… <kbd>Ctrl K</kbd></button>
        <span class="dot ${state.connection.name}" title=${state.connection.name} role="img" aria-label=${`Connection: ${state.connection.name}`}></span>
        <${Account} otherTheme=${otherTheme} help=${() => this.setState({ help: true })} done=${() => live.now()} />
      </header>
      <${Banner} retry=${() => live.now()} />
      ${Math.abs(skewMs) > HOUR_MS && !skewSeen && html`<div class="banner" role="status"><strong>This computer's clock is wrong</strong>
        <span>It is ${duration(Math.abs(skewMs) / 1000)} ${skewMs < 0 ? "ahead of" : "behind"} the appliance's clock, which all times here follow.</span>
        <button class="plain" onClick=${() => { state.skewSeen = true; changed(); }}>Dismiss</button></div>`}
      ${clockWarning && html`<div class="banner" role="status"><strong>The clock jumped</strong>
        <span>Event ${clockWarning.event_id} is dated ${showMoment(clockWarning.ts)}, more than an hour off. The numbers of events give their order.</span>
        <button class="plain" onClick=${() => { state.clockWarning = null; changed(); }}>Dismiss</button></div>`}
      <div class=${`frame ${menu ? "with-menu" : SCREENS[place.screen]?.alone ? "alone" : ""}`}>
        ${(state.loaded || state.connection.name === "connecting") && html`<${Sidebar} place=${place} menu=${menu} onNewChannel=${() => this.setState({ newChannel: true })} />`}
        <main id="content" tabindex="-1">${this.screen(place)}</main>
      </div>
      <div class="notice-place" role="status" aria-live="polite">${notice && html`<p class=${`notice ${notice.bad ? "bad" : ""}`}>${notice.text}</p>`}</div>
      ${help && html`<${Help} close=${() => this.setState({ help: false })} />`}
      ${palette && html`<${Palette} close=${() => this.setState({ palette: false })} />`}
      ${newChannel && html`<${NewChannel} close=${() => this.setState({ newChannel: false })} />`}`;
  }
}

function skip(event) {
  event.preventDefault();
  (document.querySelector(".list") || document.getElementById("content")).focus();
}

function Screens({ current }) {
  const row = useRef(null);
  useCurrentInView(row, current);
  return html`<nav aria-label="Screens" ref=${row}>${Object.entries(SCREENS).filter(([, each]) => each.title).map(([name, each]) => html`<a key=${name} href=${link({ screen: name })}
    aria-current=${current === name ? "page" : undefined}>${each.title}${each.badge && html`<${each.badge} />`}</a>`)}</nav>`;
}

function titleOf(place) {
  const name = place.topic ? state.topics.get(place.topic)?.title : state.channels.get(place.channel)?.name;
  const words = [name || SCREENS[place.screen]?.title, "Agentlip"].filter(Boolean).join(" – ");
  const count = unread.total + asks.waiting.length;
  return count ? `(${count}) ${words}` : words;
}

function otherTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  const theme = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  keep("theme", theme);
}

// Signs in, also if another person is signed in.
async function enter(signIn) {
  try {
    await signIn();
    return true;
  } catch (error) {
    inviteFailure = error;
    changed();
    return false;
  }
}

// Loads the page anew, so that nothing stays that only the former person may see.
function startAgain() {
  history.replaceState({ signedInAs: state.session.name }, "");
  location.reload();
}

// Another tab signed somebody in or out.
async function followOtherTabs() {
  const before = JSON.stringify(state.session);
  await attempt(refreshSession);
  if (JSON.stringify(state.session) !== before) location.reload();
}

async function begin() {
  const theme = recall("theme", "");
  if (theme) document.documentElement.dataset.theme = theme;
  const invite = takeInvite();
  const answer = takeAnswer();
  if (history.state?.signedInAs) {
    notify(`Signed in as ${history.state.signedInAs}.`);
    history.replaceState(null, "");
  }
  render(html`<${App} />`, document.getElementById("app"));
  if (invite) await enter(() => signInWithInvite(invite));
  if (answer) await enter(() => signInWithAnswer(answer));
  if (!state.session.known) await attempt(refreshSession);
  live.connect();
}

begin();
