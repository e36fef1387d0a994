// A log that grows at its end, and the window of it that is in memory: pages are added at either end,
// and rows far from the reader are dropped. While the reader is not at the end, nothing that is shown
// moves, and what doesn't fit any more comes as pages later.
import { changed } from "./store.js";

export const PAGE = 100;
const WINDOW_MAX = 2_000;
export const CHANGED = "CHANGED_MEANWHILE"; // the items that were read may be old

export class Log {
  // read({ before, after } or {} for the newest) → { items, more }, order(one, other), keyOf(item), and
  // perhaps take(items) → those that belong here, drop(items that leave), whole(work) around each reading.
  constructor({ read, order, keyOf, take = (items) => items, drop = () => {}, whole = (work) => work() }) {
    Object.assign(this, { read, order, keyOf, take, drop, whole });
    this.items = [];
    this.older = true; // there are items before the window
    this.newer = false; // and behind it
    this.turn = 0; // another window begins with each
    this.loading = null;
    this.error = null;
    this.filled = false;
    this.following = false; // the reader sees the end
    this.unseen = 0; // arrived since the reader left the end
    this.late = []; // arrived while a page was on its way
  }

  has = (key) => this.items.some((each) => this.keyOf(each) === key);

  follow(following) {
    this.following = following;
    if (following) this.unseen = 0;
    changed();
  }

  // What just happened, at the end or, for an item that was moved here, at its place.
  insert(item) {
    if (this.loading) this.defer(item);
    const index = this.items.findLastIndex((each) => this.order(each, item) <= 0) + 1;
    if (index > 0 && this.keyOf(this.items[index - 1]) === this.keyOf(item)) return;
    if (index === 0 && this.older && this.items.length) return; // it comes with a page
    if (index === this.items.length && !this.mayGrow()) return;
    this.items = [...this.items.slice(0, index), item, ...this.items.slice(index)];
    if (this.following && this.items.length > WINDOW_MAX + PAGE) this.shorten(false);
  }

  defer(item) {
    if (this.late.length < WINDOW_MAX) this.late.push(item);
    else this.newer = true;
  }

  mayGrow() {
    if (!this.following && this.items.length >= WINDOW_MAX + PAGE) this.newer = true;
    return !this.newer;
  }

  shorten(atEnd) {
    this.drop(atEnd ? this.items.slice(WINDOW_MAX) : this.items.slice(0, -WINDOW_MAX));
    this.items = atEnd ? this.items.slice(0, WINDOW_MAX) : this.items.slice(-WINDOW_MAX);
    this[atEnd ? "newer" : "older"] = true;
  }

  merge(page, atStart) {
    const fresh = this.take(page);
    const keys = new Set(fresh.map(this.keyOf));
    this.items = [...this.items.filter((each) => !keys.has(this.keyOf(each))), ...fresh].sort(this.order);
    if (this.items.length > WINDOW_MAX) this.shorten(atStart);
  }

  begin() {
    this.items = [];
    this.turn += 1;
  }

  async load(name, work) {
    if (this.loading) return;
    this.loading = name;
    this.error = null;
    changed();
    try {
      await this.whole(async () => {
        await work();
        this.loading = null;
        this.filled = true;
        if (!this.newer) this.take(this.late).forEach((each) => this.insert(each));
      });
    } catch (error) {
      this.error = error;
      if (error.code === CHANGED) this.items = [];
    } finally {
      this.loading = null;
      this.late = [];
      changed();
    }
  }

  loadOlder = () => this.load("older", async () => {
    const { items, more } = await this.read({ before: this.items[0] });
    this.older = more;
    this.merge(items, true);
  });

  loadNewer = () => this.load("newer", async () => {
    const { items, more } = await this.read({ after: this.items.at(-1) });
    this.newer = more;
    this.merge(items, false);
  });

  loadNewest = () => this.load("newest", async () => {
    this.begin();
    this.newer = false;
    const { items, more } = await this.read({});
    this.older = more;
    this.merge(items, false);
  });

  // `read()` → { items, older, newer }: a page around an item.
  loadAround = (read) => this.load("around", async () => {
    const { items, older, newer } = await read();
    this.begin();
    Object.assign(this, { older, newer });
    this.merge(items, true);
  });
}
