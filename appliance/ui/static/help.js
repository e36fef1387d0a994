// The list of keys, shown by `?`.
import { useModal } from "./parts.js";
import { html, useRef } from "./view.js";

const KEYS = [
  ["?", "Show these keys"],
  ["Ctrl K", "Go to anything by its name"],
  ["/", "Search"],
  ["g h", "Go home: what needs you"],
  ["g e", "Go to the events"],
  ["g o", "Go to the operator's views"],
  ["g a", "Go to the questions that wait for you"],
  ["g s", "Go to signing in"],
  ["n", "Next topic with unread messages"],
  ["j", "Next message"],
  ["k", "Previous message"],
  ["t", "Jump to a day in the topic"],
  ["c", "Write a message"],
  ["Shift Enter", "Begin a new line in a message"],
  ["e", "Edit the selected message"],
  ["m", "Move the selected message"],
  ["d", "Delete the selected message"],
  ["l", "Copy a link to the selected message"],
  ["i", "Show the details of the selected message"],
  ["Esc", "Leave a field, close a dialog"],
];

export function Help({ close }) {
  const box = useRef(null);
  useModal(box);
  return html`<dialog ref=${box} onClose=${close} aria-label="Keys"><h2>Keys</h2>
    <dl class="keys">${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <form method="dialog" onSubmit=${(event) => { event.preventDefault(); close(); }}><div class="buttons"><button class="primary" autofocus>Close</button></div></form>
  </dialog>`;
}
