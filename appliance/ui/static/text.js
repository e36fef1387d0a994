// Text for people: dates and numbers of their locale, addresses that may be linked, matches.
import { now } from "./store.js";
import { html } from "./view.js";

const LINKED = new Set(["http:", "https:"]);
const URL_PATTERN = /https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]}]/g;
const LINKS_MAX = 200; // in one text
const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const number = new Intl.NumberFormat();
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

const date = (text) => {
  const value = new Date(text);
  return Number.isNaN(value.getTime()) ? null : value;
};
const shown = (format) => (text) => {
  const value = date(text);
  return value ? format.format(value) : String(text ?? "");
};
export const showTime = shown(time);
export const showDay = shown(day);
export const showMoment = shown(moment);
export const showNumber = (value) => number.format(value);
export const dayOf = (text) => date(text)?.toDateString() ?? "";

// Midnight at the beginning of a day, or `later` days after it, where the person is.
export function midnight(text, later = 0) {
  const start = date(`${text}T00:00`);
  start?.setDate(start.getDate() + later);
  return start?.toISOString();
}

const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60]];
export function ago(text) {
  const value = date(text);
  if (!value) return "";
  const seconds = (value.getTime() - now()) / 1000;
  if (Math.abs(seconds) > 7 * 86_400) return shown(new Intl.DateTimeFormat(undefined, { dateStyle: "medium" }))(text);
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) || ["second", 1];
  return unit === "second" ? "now" : relative.format(Math.round(seconds / size), unit);
}

// The address if it is one that a browser may open, or null. Others stay text.
export function safeUrl(text) {
  try {
    const url = new URL(String(text).trim());
    return LINKED.has(url.protocol) && url.hostname ? url.href : null;
  } catch {
    return null;
  }
}

// `title`: the address appears when one points at the link.
export function Outside({ url, title, children }) {
  const safe = safeUrl(url);
  if (!safe) return html`<span>${children || String(url)}</span>`;
  return html`<a href=${safe} title=${title && safe} target="_blank" rel="noopener noreferrer nofollow">${children || url}</a>`;
}

// Text with its http and https addresses as links.
export function linked(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(URL_PATTERN)) {
    if (parts.length > 2 * LINKS_MAX) break;
    parts.push(text.slice(end, match.index), html`<${Outside} url=${match[0]}>${match[0]}<//>`);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

const fold = (text) => [...text].map((each) => each.normalize("NFD")[0].toLowerCase()[0]).join("");
const WORDS_MAX = 20;

// Text with the words of a query marked, without case and accents as the search compares.
export function highlighted(text, query) {
  const words = fold(query).match(/[\p{L}\p{N}]+/gu)?.filter((word) => word !== "or").slice(0, WORDS_MAX) || [];
  if (!words.length) return text;
  const characters = [...text];
  const pattern = new RegExp(words.sort((one, other) => other.length - one.length).join("|"), "gu");
  const parts = [];
  let end = 0;
  const folded = fold(text);
  if ([...folded].length !== characters.length) return text;
  for (const match of folded.matchAll(pattern)) {
    const start = [...folded.slice(0, match.index)].length;
    const length = [...match[0]].length;
    parts.push(characters.slice(end, start).join(""));
    parts.push(html`<mark>${characters.slice(start, start + length).join("")}</mark>`);
    end = start + length;
  }
  return [...parts, characters.slice(end).join("")];
}

// A word of a command that people paste: what others wrote must not end the quotes.
export const word = (text) => (/^[\w@%+=:,./#-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

// Bytes of UTF-8, which the limits of the server count.
export const bytesOf = (text) => new TextEncoder().encode(text).length;
export const hue = (text) => ([...text].reduce((sum, each) => (sum * 33 + each.codePointAt(0)) % 9973, 7) * 137) % 360;
