// A message's text: plain until the parser is here, then formatted, in parts if it is long.
import { Code } from "./code.js";
import { kindOf } from "./plain_kinds.js";
import { changed } from "./store.js";
import { linked, showNumber } from "./text.js";
import { html, useEffect, useRef, useState } from "./view.js";

const LONG = 4_000; // characters outside code that are shown before "Show all"

let markdown = null; // the module with the parser, once it is loaded
let loading = null;
async function load() {
  try {
    markdown = await (loading ??= import("./markdown.js"));
  } catch {
    loading = null; // the next text tries again
  }
  return markdown;
}

function useMarkdown() {
  const [module, setModule] = useState(markdown);
  useEffect(() => {
    let current = true;
    if (!module) load().then((loaded) => current && setModule(loaded));
    return () => { current = false; };
  }, []);
  return module;
}

// Lets the list measure a row anew after these values changed. At first it has done so already.
export function useMeasured(values) {
  const isDrawn = useRef(false);
  useEffect(() => {
    if (isDrawn.current) changed();
    isDrawn.current = true;
  }, values);
}

export function Content({ text, children }) {
  const module = useMarkdown();
  const kind = kindOf(text);
  useMeasured([module]);
  if (kind) return html`<div class="text"><${Code} text=${text} kind=${kind} />${children}</div>`;
  if (!module) return html`<div class="text" dir="auto"><p>${linked(text.slice(0, LONG))}</p>${children}</div>`;
  return html`<${Sections} key=${text} text=${text} module=${module}>${children}<//>`;
}

function Sections({ text, module, children }) {
  const [sections] = useState(module.sectionsOf(text));
  const [count, setCount] = useState(firstOf(sections));
  const [all, setAll] = useState(false);
  const left = sections.length - count;
  useMeasured([all, count]);
  useEffect(() => {
    const timer = all && left > 0 ? setTimeout(() => setCount(count + 1)) : 0; // one part a task
    return () => clearTimeout(timer);
  }, [all, count]);
  return html`<div class="text" dir="auto">${sections.slice(0, count).map((each, index) => html`<${module.Section} key=${index} ...${each} />`)}
    ${!all && left > 0 && html`<button class="plain" onClick=${(event) => { event.stopPropagation(); setAll(true); }}>Show all ${showNumber(text.length)} characters</button>`}
    ${children}</div>`;
}

// How many parts are shown at first: those that begin before `LONG` characters.
function firstOf(sections) {
  let size = 0;
  const index = sections.findIndex((each) => (size += each.size) > LONG);
  return index < 0 ? sections.length : Math.max(1, index);
}
