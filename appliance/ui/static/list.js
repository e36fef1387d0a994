// A list that keeps only the rows near the window in the document, whatever their heights.
//
// Heights are measured once a row is shown. The row at the top of the window keeps its place when
// rows are added or measured above it; at the end the list follows new rows.
import { showNumber } from "./text.js";
import { Component, createRef, html } from "./view.js";

const OVERSCAN_PX = 300;
const ROW_PX = 60; // until it is measured
const END_PX = 48; // that close to the end counts as the end
const KEPT = 1_000; // heights of rows that have gone
const MORE_PX = 800; // that close to an end, more rows are loaded

export class VirtualList extends Component {
  // items, keyOf(item), row(item, index, items), follow (stay at the end), focus (a key to show),
  // place ({ key, delta } to begin at), onTop(), onEnd(), onPlace(place or null at the end),
  // onFollow(whether it stays at the end), self (a ref that gets this list). `wantsFocus`: the row
  // `focus` gets the keyboard's focus as soon as it is drawn.
  constructor(props) {
    super(props);
    this.box = createRef();
    this.heights = new Map();
    this.anchor = props.place || null;
    this.atEnd = Boolean(props.follow) && !props.place && !props.focus;
    this.wanted = props.focus || null;
    this.width = 0;
    this.top = 0; // where the window was last put or seen
    this.laid = { items: [], offsets: [0] }; // what it showed then
    this.state = { top: 0, height: 800 };
    this.onScroll = this.onScroll.bind(this);
  }

  componentDidMount() {
    this.observer = new ResizeObserver(() => {
      const { clientWidth, clientHeight } = this.box.current;
      if (this.width && this.width !== clientWidth) this.heights.clear();
      this.width = clientWidth;
      if (this.state.height !== clientHeight) this.setState({ height: clientHeight });
    });
    this.observer.observe(this.box.current);
    if (this.props.self) this.props.self.current = this;
    this.settle();
  }

  componentWillUnmount() {
    this.observer.disconnect();
    clearTimeout(this.placing);
  }

  componentDidUpdate(before) {
    if (before.focus !== this.props.focus && this.props.focus) this.wanted = this.props.focus;
    this.settle();
  }

  offsets() {
    const { items, keyOf } = this.props;
    const offsets = new Array(items.length + 1);
    offsets[0] = 0;
    for (let i = 0; i < items.length; i += 1) offsets[i + 1] = offsets[i] + (this.heights.get(keyOf(items[i])) ?? ROW_PX);
    return offsets;
  }

  // Measures the shown rows and puts the window where it belongs; draws again if rows are missing.
  settle() {
    const box = this.box.current;
    const { items, keyOf } = this.props;
    if (Math.abs(box.scrollTop - this.top) > 1) this.noteScroll(); // its event is still to come
    let resized = false;
    for (const row of box.querySelectorAll(":scope > .rows > [data-key]")) {
      const height = row.getBoundingClientRect().height;
      if (Math.abs((this.heights.get(row.dataset.key) ?? -1) - height) > 0.5) {
        this.heights.set(row.dataset.key, height);
        resized = true;
      }
    }
    const offsets = this.offsets();
    const indexOf = (key) => items.findIndex((each) => keyOf(each) === key);
    let top = box.scrollTop;
    let focus = this.wanted === null ? -1 : indexOf(this.wanted);
    const measured = this.heights.get(this.wanted) !== undefined;
    if (focus >= 0 && measured && offsets[focus] >= top - 1 && offsets[focus + 1] <= top + box.clientHeight + 1) {
      focus = -1; // it is seen already, so the window stays where it is
      this.wanted = null;
    }
    if (focus >= 0) {
      const height = offsets[focus + 1] - offsets[focus];
      top = Math.max(0, offsets[focus] - Math.max(0, (box.clientHeight - height) / 3));
      if (measured && !resized) this.wanted = null;
      this.atEnd = false;
      this.anchor = null;
    } else if (this.atEnd) {
      top = offsets.at(-1);
    } else if (this.anchor) {
      const index = indexOf(this.anchor.key);
      if (index >= 0) top = offsets[index] - this.anchor.delta;
    }
    if (resized || Math.abs(top - box.scrollTop) > 1) {
      // The spacer must have its new height before the window can move there.
      box.querySelector(":scope > .rows").style.height = `${offsets.at(-1)}px`;
      box.scrollTop = top;
      if (resized || Math.abs(box.scrollTop - this.state.top) > 1) this.setState({ top: box.scrollTop });
    }
    this.top = box.scrollTop;
    this.laid = { items, offsets };
    if (this.heights.size > 2 * items.length + KEPT) this.heights = new Map(items.map((each) => [keyOf(each), this.heights.get(keyOf(each)) ?? ROW_PX]));
    this.tell();
    this.giveFocus();
    this.fill(offsets);
  }

  // Shows the end, and stays there.
  toEnd() {
    this.wanted = null;
    this.atEnd = true;
    this.settle();
  }

  giveFocus() {
    const row = this.wantsFocus && this.box.current.querySelector(`:scope > .rows > [data-key="${CSS.escape(this.props.focus)}"] > *`);
    if (!row || this.wanted !== null) return;
    this.wantsFocus = false;
    row.focus({ preventScroll: true });
  }

  tell() {
    if (this.told === this.atEnd) return;
    this.told = this.atEnd;
    this.props.onFollow?.(this.atEnd);
  }

  fill(offsets) {
    const box = this.box.current;
    const { items, onTop, onEnd } = this.props;
    if (!items.length) return;
    if (box.scrollTop < MORE_PX) onTop?.();
    if (offsets.at(-1) - box.scrollTop - box.clientHeight < MORE_PX) onEnd?.();
  }

  onScroll() {
    if (!this.box.current) return; // an event of a list that has gone
    this.noteScroll();
    this.tell();
    this.setState({ top: this.top });
    clearTimeout(this.placing);
    this.placing = setTimeout(() => this.props.onPlace?.(this.atEnd ? null : this.anchor), 200);
  }

  // Where the user moved the window, in the rows that it showed.
  noteScroll() {
    const box = this.box.current;
    const { items, offsets } = this.laid;
    this.top = box.scrollTop;
    // Where rows above went away, the browser has put the window at the new end.
    const below = Math.min(offsets.at(-1), box.scrollHeight) - this.top - box.clientHeight;
    this.atEnd = Boolean(this.props.follow) && below < END_PX;
    const index = Math.max(0, find(offsets, this.top));
    this.anchor = items[index] ? { key: this.props.keyOf(items[index]), delta: offsets[index] - this.top } : null;
  }

  render({ items, keyOf, row, label, role = "feed", busy }, { top, height }) {
    const offsets = this.offsets();
    const first = Math.max(0, find(offsets, top - OVERSCAN_PX));
    const last = Math.min(items.length, find(offsets, top + height + OVERSCAN_PX) + 1);
    const shown = [];
    for (let i = first; i < last; i += 1) {
      const key = keyOf(items[i]);
      shown.push(html`<div key=${key} data-key=${key} class="row" style=${{ transform: `translateY(${offsets[i]}px)` }}>
        ${row(items[i], i, items)}
      </div>`);
    }
    return html`<div class="list" ref=${this.box} onScroll=${this.onScroll} tabindex="0" role=${role}
      aria-label=${label} aria-busy=${busy ? "true" : "false"}>
      <div class="rows" style=${{ height: `${offsets.at(-1)}px` }}>${shown}</div>
    </div>`;
  }
}

// The way back to the end of a log, for a reader who left it.
export function Newer({ log, count, show }) {
  if (!log.filled || !log.items.length || (log.following && !log.newer) || !(count || log.newer)) return null;
  return html`<div class="newer"><button onClick=${show}>${count ? html`<span aria-hidden="true">↓ </span>${showNumber(count)} new` : "Jump to the newest"}</button></div>`;
}

// The row at a height: the last whose offset is not below it.
function find(offsets, height) {
  let low = 0;
  let high = offsets.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= height) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}
