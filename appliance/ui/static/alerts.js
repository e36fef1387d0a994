// Desktop notifications and a sound for new questions, off until the person asks for them.
import { go } from "./router.js";
import { changed, keep, notify, recall } from "./store.js";
import { html } from "./view.js";

const KEY = "alerts";
const ALERTED = "alerted"; // the newest ask that some tab has announced
const TEXT_MAX = 200;
const NOTES_HZ = [660, 880];
const NOTE_SECONDS = 0.12;
const VOLUME = 0.1;

const wanted = () => recall(KEY, {});
const mayNotify = () => globalThis.Notification?.permission === "granted";

// Announces the questions that are newer than all before. `loaded`: they arrived while the page was open.
export function alertPerson(waiting, loaded) {
  const last = recall(ALERTED, "");
  const fresh = waiting.filter(({ id }) => id > last);
  if (!fresh.length) return;
  keep(ALERTED, fresh.map(({ id }) => id).sort().at(-1));
  if (!loaded) return;
  if (wanted().notification && mayNotify()) fresh.forEach(showNotification);
  if (wanted().sound) playSound();
}

function showNotification({ id, asker, text }) {
  const shown = new Notification(`Question of ${asker}`, { body: text.slice(0, TEXT_MAX), tag: id });
  shown.onclick = () => {
    focus();
    go("#/asks");
  };
}

function playSound() {
  const context = new AudioContext();
  NOTES_HZ.forEach((pitch, index) => {
    const [tone, volume] = [context.createOscillator(), context.createGain()];
    const start = context.currentTime + index * NOTE_SECONDS;
    tone.frequency.value = pitch;
    volume.gain.value = VOLUME;
    tone.connect(volume).connect(context.destination);
    tone.start(start);
    tone.stop(start + NOTE_SECONDS);
    tone.onended = () => index && context.close();
  });
}

async function choose(name, isWanted) {
  if (name === "notification" && isWanted && (await globalThis.Notification?.requestPermission()) !== "granted") {
    notify("The browser allows no notifications from this page: see the settings of this address.", true);
    return;
  }
  keep(KEY, { ...wanted(), [name]: isWanted });
  if (name === "sound" && isWanted) playSound();
  changed();
}

export function AlertChoices() {
  const box = (name, label) => html`<label class="choice"><input type="checkbox" checked=${Boolean(wanted()[name])}
    onChange=${(event) => choose(name, event.target.checked)} />${label}</label>`;
  return html`<fieldset class="bar"><legend>When an agent asks</legend>
    ${box("notification", "Show a desktop notification")}${box("sound", "Play a sound")}</fieldset>`;
}
