// Texts that a person has begun to write: one of each topic, and one of each message that is edited.
// They are kept in this browser until they are sent, or until the person signs out.
import { keep, keptNames, recall, remove } from "./store.js";

const PREFIX = "draft.";
const DRAFTS_MAX = 100;

export const draftOf = (id) => recall(PREFIX + id, null);

export function keepDraft(id, draft) {
  const names = keptNames(PREFIX);
  if (names.length >= DRAFTS_MAX && !names.includes(PREFIX + id)) remove(names[0]);
  keep(PREFIX + id, draft);
}

export const dropDraft = (id) => remove(PREFIX + id);
export const dropAllDrafts = () => keptNames(PREFIX).forEach(remove);
