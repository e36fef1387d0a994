// Small parts that several screens use: dialogs, errors, commands to copy.
import { ApiError } from "./api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./view.js";
import { notify } from "./store.js";

// Shows a dialog while it is drawn, and at once: the next key is meant for it. Afterwards the focus is
// where it was, or on the main part if that has gone.
export function useModal(box) {
  useLayoutEffect(() => {
    const [dialog, before] = [box.current, document.activeElement];
    dialog.showModal();
    return () => {
      dialog.addEventListener("close", (event) => event.stopImmediatePropagation(), true); // only the person closes it
      dialog.close();
      const target = before?.isConnected && before !== document.body ? before : document.querySelector(".message.selected, #content");
      target?.focus({ preventScroll: true });
    };
  }, []);
}

// A modal dialog with a form. `work()` runs on submit, and closes it when it succeeds, unless `keep`.
export function Dialog({ title, action, danger, close, work, children, disabled, wide, keep }) {
  const box = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useModal(box);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await work();
      if (!keep) close();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
      setBusy(false);
    }
  };
  return html`<dialog ref=${box} onClose=${close} aria-label=${title} class=${wide ? "wide" : ""}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      ${error && html`<${Failure} error=${error} />`}
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button class=${danger ? "danger" : "primary"} disabled=${busy || disabled}>${action}</button>
      </div>
    </form>
  </dialog>`;
}

export function Failure({ error, retry }) {
  return html`<div class="failure" role="alert">
    <p>${sentence(error.message)}</p>
    ${error.hint && html`<p class="soft">${error.hint.startsWith("agentlip") ? html`<code>${error.hint}</code>` : sentence(error.hint)}</p>`}
    <p class="soft">Code <code>${error.code}</code>${retry && html` · <button class="plain" onClick=${retry}>Try again</button>`}</p>
  </div>`;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function Command({ label, text }) {
  const [copied, setCopied] = useState(false);
  const block = useRef(null);
  const copy = async () => {
    if (!(await copyText(text))) return select(block.current);
    setCopied(true);
    return setTimeout(() => setCopied(false), 2_000);
  };
  return html`<figure class="command">
    <figcaption>${label}<button class="plain" onClick=${copy} aria-label=${`Copy: ${label}`}>${copied ? "Copied" : "Copy"}</button></figcaption>
    <pre tabindex="0" ref=${block}>${text}</pre>
  </figure>`;
}

// Whether the text is in the clipboard, which browsers lend only on https and on loopback.
// Scrolls a row of links so that the current one is in view, again for each `current`.
export function useCurrentInView(row, current) {
  useEffect(() => row.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [current]);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// Selects a text that can't be copied otherwise.
export function select(element) {
  element.focus();
  getSelection().selectAllChildren(element);
  notify("The browser allows no copying here. The text is selected: copy it with the keyboard.");
}

// An address to copy by hand.
export function AddressDialog({ address, close }) {
  const field = useRef(null);
  useLayoutEffect(() => field.current.select(), []);
  return html`<${Dialog} title="Link to the message" action="Done" close=${close} work=${async () => {}}>
    <label>The browser allows no copying here. Copy the selected address.<input ref=${field} readonly value=${address} autofocus /></label>
  <//>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

export function Badge({ count }) {
  if (!count) return null;
  return html`<span class="badge" aria-label=${`${count} unread`}>${count > 999 ? "999+" : count}</span>`;
}
