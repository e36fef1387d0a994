// A table of any rows: sorted, filtered, with a row that is open. Its place is in the address.
import { Actions } from "./actions.js";
import { Failure } from "./parts.js";
import { go, link } from "./router.js";
import { now } from "./store.js";
import { ago, showMoment, showNumber } from "./text.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

const ROWS_MAX = 300;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
const BACKOFF_MAX = 6;

// A column is [title, value of a row, how it is shown]. Values are what is sorted and filtered.
export const number = (value) => (typeof value === "number" ? showNumber(value) : value ?? "–");
export const since = (value) => (value ? html`<time datetime=${value} title=${showMoment(value)}>${ago(value)}</time>` : "–");
export const duration = (seconds) => {
  if (typeof seconds !== "number") return "–";
  const [size, unit] = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]].find(([each]) => seconds >= each) || [0.001, "ms"];
  return `${showNumber(Math.round((seconds / size) * (seconds < 10 * size ? 10 : 1)) / (seconds < 10 * size ? 10 : 1))} ${unit}`;
};
export const bytes = (value) => {
  const power = value > 0 ? Math.min(3, Math.floor(Math.log10(value) / 3)) : 0;
  return `${showNumber(Math.round(value / 1000 ** power))} ${["B", "kB", "MB", "GB"][power]}`;
};
// A state, with a sign for those who don't see colors. `level`: good, warn or bad.
export const mark = (text, level = "good") => html`<span class=${`state ${level}`}><span aria-hidden="true">${{ good: "●", warn: "▲", bad: "✖" }[level]}</span> ${text}</span>`;

export function Table({ label, columns: all, rows, keyOf, place, detail, empty, again }) {
  const { q = "", sort = "", open = "" } = place.query;
  const show = (query) => go(link({ screen: place.screen, query: { ...place.query, ...query } }));
  const columns = all.filter(([, of], index) => index === 0 || rows.some((row) => (of(row) ?? "") !== "")); // those with a value
  const column = columns.find(([title]) => title === sort.replace(/^-/, ""));
  const order = sort.startsWith("-") ? -1 : 1;
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = rows.filter((row) => {
    const text = words.length ? columns.map(([, of]) => of(row) ?? "").join(" ").toLowerCase() : "";
    return words.every((word) => text.includes(word));
  });
  if (column) matching.sort((one, other) => order * compare(column[1](one), column[1](other)));
  const shown = matching.slice(0, ROWS_MAX);
  const chosen = open && rows.find((row) => keyOf(row) === open);
  if (!rows.length) return html`<p class="soft">${empty}</p>`;
  return html`<form class="filters" role="search" onSubmit=${(event) => { event.preventDefault(); show({ q: event.target.elements.q.value.trim() }); }}>
      <label class="wide">Filter<input type="search" name="q" value=${q} maxlength="200" onChange=${(event) => show({ q: event.target.value.trim() })} /></label>
      <p class="soft" role="status">${showNumber(shown.length)} of ${showNumber(rows.length)}</p></form>
    ${open && html`<${Detail} key=${open} name=${open} row=${chosen} detail=${detail} again=${again} close=${() => show({ open: "" })} />`}
    <div class="scroll" tabindex="0" role="region" aria-label=${label}><table><thead><tr>${columns.map(([title, of]) => {
      const current = column?.[0] === title;
      const next = current && order > 0 ? `-${title}` : title;
      return html`<th scope="col" aria-sort=${current ? (order > 0 ? "ascending" : "descending") : undefined} class=${typeof of(rows[0]) === "number" ? "number" : ""}>
        <button class="plain" onClick=${() => show({ sort: next })}>${title}${current ? (order > 0 ? " ▴" : " ▾") : ""}</button></th>`;
    })}</tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${keyOf(row)} class=${keyOf(row) === open ? "chosen" : ""}>${columns.map(([title, of, format = number], index) => {
      const value = of(row);
      const content = format(value, row, again);
      if (index) return html`<td class=${typeof value === "number" ? "number" : String(value ?? "").length > 40 ? "long" : ""}>${content}</td>`;
      return html`<th scope="row"><a href=${link({ screen: place.screen, query: { ...place.query, open: keyOf(row) } })}>${content || "–"}</a></th>`;
    })}</tr>`)}</tbody></table></div>`;
}

// "oldest_ready" and "oldestReady" become "Oldest ready".
const titleOf = (field) => field.replace(/_/g, " ").replace(/([a-z])(?=[A-Z])/g, "$1 ").toLowerCase().replace(/^./, (first) => first.toUpperCase());

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""));
}

// What an open row has: all its fields, and what `detail` of it reads or shows in addition.
function Detail({ name, row, detail, again, close }) {
  const box = useRef(null);
  const [more, setMore] = useState(null);
  const [error, setError] = useState(null);
  useLayoutEffect(() => box.current.focus({ preventScroll: true }), [Boolean(row)]);
  useEffect(() => {
    let current = true;
    if (row && detail?.read) detail.read(row).then((value) => current && setMore(value), (failure) => current && setError(failure));
    return () => { current = false; };
  }, [Boolean(row)]);
  return html`<section class="detail" ref=${box} tabindex="-1" aria-label=${`Details of ${name}`}>
    <header class="bar"><h2>${name}</h2><button class="plain" onClick=${close} aria-label="Close the details">×</button></header>
    ${!row && html`<p class="soft">It is not in this list.</p>`}
    ${row && detail?.actions && html`<${Actions} actions=${detail.actions(row)} again=${again} />`}
    ${row && detail?.show?.(row, again)}
    ${row && html`<dl>${Object.entries(row).filter(([field, value]) => (value ?? "") !== "" && !detail?.hidden?.includes(field)).map(([field, value]) => html`<dt title=${field}>${titleOf(field)}</dt>
      <dd>${typeof value === "object" ? html`<code>${JSON.stringify(value)}</code>` : INSTANT.test(value) ? showMoment(value) : String(value)}</dd>`)}</dl>`}
    ${error && html`<${Failure} error=${error} />`}
    ${more && html`<pre tabindex="0">${JSON.stringify(more, null, 2)}</pre>`}
  </section>`;
}

// Reads again and again while the page is visible and not paused; `seconds` 0: once.
export function usePolled(read, key, seconds, paused) {
  const [result, setResult] = useState({ data: null, error: null, at: 0 });
  const again = useRef(() => {});
  useEffect(() => {
    let [ended, timer, failures, reading] = [false, 0, 0, false];
    const wait = () => {
      clearTimeout(timer);
      if (seconds && !paused && !document.hidden) timer = setTimeout(turn, seconds * 1000 * Math.min(BACKOFF_MAX, 1 + failures));
    };
    const turn = async () => {
      if (ended || reading) return;
      reading = true;
      try {
        const data = await read();
        failures = 0;
        if (!ended) setResult({ data, error: null, at: now(), key });
      } catch (error) {
        failures += 1;
        if (!ended) setResult((old) => ({ ...old, data: old.key === key ? old.data : null, error, key }));
      }
      reading = false;
      if (!ended) wait();
    };
    const onVisible = () => (document.hidden || paused || !seconds ? clearTimeout(timer) : turn());
    again.current = turn;
    document.addEventListener("visibilitychange", onVisible);
    if (!paused || result.key !== key) turn();
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [key, paused]);
  return { ...(result.key === key ? result : { data: null, error: null, at: 0 }), again: () => again.current() };
}
