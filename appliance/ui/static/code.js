// Text in fixed width: folded if long, with line numbers on demand, and diffs in colors.
import { copyText, select } from "./parts.js";
import { indented } from "./plain_kinds.js";
import { changed } from "./store.js";
import { showNumber } from "./text.js";
import { html, useEffect, useRef, useState } from "./view.js";

const LINES_MAX = 20; // shown at first
const RUNS_MAX = 2_000; // parts with a color
const DIFFS = new Set(["diff", "patch"]);
const COPIED_MS = 2_000;

export function Code({ text, kind }) {
  const [all, setAll] = useState(false);
  const [numbered, setNumbered] = useState(false);
  const [copied, setCopied] = useState(false);
  const block = useRef(null);
  useEffect(changed, [all, numbered]); // the list measures the row anew
  const whole = kind === "json" ? indented(text) : text;
  const lines = whole.split("\n");
  const shown = all ? lines : lines.slice(0, LINES_MAX);
  const copy = async () => {
    if (!(await copyText(text))) return select(block.current);
    setCopied(true);
    return setTimeout(() => setCopied(false), COPIED_MS);
  };
  const buttons = [[copied ? "Copied" : "Copy", copy]];
  if (lines.length > 1) buttons.unshift(["Numbers", () => setNumbered(!numbered), numbered]);
  return html`<figure class="code">
    <figcaption><span>${kind}</span>${buttons.map(([name, press, pressed]) => html`<button key=${name} class="plain" aria-pressed=${pressed === undefined ? undefined : String(pressed)}
      onClick=${(event) => { event.stopPropagation(); press(); }}>${name}</button>`)}</figcaption>
    <div class="code-lines" tabindex="0">${numbered && html`<pre class="numbers" aria-hidden="true">${shown.map((_, index) => index + 1).join("\n")}</pre>`}
      <pre ref=${block} tabindex="-1">${DIFFS.has(kind) ? colored(shown) : shown.join("\n")}</pre></div>
    ${lines.length > LINES_MAX && html`<button class="plain more" aria-expanded=${String(all)} onClick=${(event) => { event.stopPropagation(); setAll(!all); }}>
      ${all ? "Show less" : `Show ${showNumber(lines.length - LINES_MAX)} more`}</button>`}
  </figure>`;
}

const COLORS = { "+": "added", "-": "removed", "@": "place" };
const colorOf = (line) => (/^(\+\+\+|---) /.test(line) ? "" : COLORS[line[0]] || "");

// Lines that follow each other with one color are one element.
function colored(lines) {
  const runs = [];
  for (const line of lines) {
    const color = colorOf(line);
    if (runs.at(-1)?.color === color) runs.at(-1).lines.push(line);
    else runs.push({ color, lines: [line] });
  }
  if (runs.length > RUNS_MAX) return lines.join("\n");
  return runs.map(({ color, lines: own }) => html`<span class=${color}>${own.join("\n")}\n</span>`);
}
