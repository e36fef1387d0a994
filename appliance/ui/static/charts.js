// Numbers over time, drawn with axes from the samples that the appliance keeps.
import { get } from "./api.js";
import { bytes, duration } from "./table.js";
import { showMoment, showTime } from "./text.js";
import { html } from "./view.js";

const [WIDTH, HEIGHT] = [360, 90];
const DAY_MS = 86_400_000;
const SPANS = { "1h": DAY_MS / 24, "24h": DAY_MS, "7d": 7 * DAY_MS, "14d": 14 * DAY_MS };
const small = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });
const FORMATS = { seconds: duration, bytes, count: (value) => small.format(value), "per second": (value) => `${small.format(value)}/s` };

export const readRates = ({ range }) => get("/api/v1/rates", { range });

export function Charts({ data: { at_ms: times, series, interval_seconds: interval }, place }) {
  if (!times.length) return html`<p class="soft">The first sample comes within 10 seconds of the start.</p>`;
  const { range } = place.query;
  const busy = series.filter(({ values }) => values.some(Boolean));
  const quiet = series.filter((each) => !busy.includes(each));
  const isShort = times.at(-1) - times[0] < SPANS[range] * 0.9;
  return html`<p class="soft">A point every ${duration(interval)}${isShort ? `, since ${showMoment(times[0])}: the appliance keeps samples while it runs` : ""}. The same numbers are in <code>/metrics</code>.</p>
    <div class="charts">${busy.map((each) => html`<${Chart} key=${each.name} ...${each} times=${times} />`)}</div>
    ${quiet.length > 0 && html`<p class="soft">All zero since ${showMoment(times[0])}: ${quiet.map(({ title }) => title).join(", ")}.</p>`}`;
}

// The use of disks and stores, with the trend for disks that fill.
export function Usage({ data: { at_ms: times, usage, disks, stores }, place }) {
  const growth = Object.fromEntries([...disks.map((disk) => [`disk:${disk.of[0]}`, disk.growth_bytes_per_day]), ...stores.map((row) => [row.store, row.growth_bytes_per_day])]);
  const since = (times.at(-1) || 0) - SPANS[place.query.range];
  const charts = usage.map(({ name, bytes: values }) => {
    const points = values.map((value, index) => [times[index], value]).filter(([at, value]) => at >= since && value !== null);
    return { name, title: name, unit: "bytes", times: points.map(([at]) => at), values: points.map(([, value]) => value), growth: growth[name] };
  }).filter(({ values }) => values.length > 1);
  const interval = place.query.range === "1h" ? "5 minutes" : "hour";
  if (!charts.length) return html`<p class="soft">A sample comes every ${interval}. Two draw a line.</p>`;
  return html`<p class="soft">A point every ${interval}. The dashed line is the trend.</p><div class="charts">${charts.map((each) => html`<${Chart} key=${each.name} ...${each} />`)}</div>`;
}

// The next round number, which ends an axis.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((each) => each * power >= value) * power;
}

function Chart({ title, unit, metric, values, times, growth }) {
  const format = FORMATS[unit] || String;
  const [start, last] = [times[0], times.at(-1)];
  const end = growth > 0 ? last + (last - start) / 3 : last;
  const trend = growth > 0 ? values.at(-1) + (growth * (end - last)) / DAY_MS : 0;
  const top = roundUp(Math.max(...values, trend) || 1);
  const point = (at, value) => `${(((at - start) / (end - start || 1)) * WIDTH).toFixed(1)},${(HEIGHT - (value / top) * (HEIGHT - 2)).toFixed(1)}`;
  const points = values.map((value, index) => point(times[index], value)).join(" ");
  const showAt = end - start > 2 * DAY_MS ? (at) => weekday.format(new Date(at)) : showTime;
  const text = `${title}: now ${format(values.at(-1))}, highest ${format(Math.max(...values))} since ${showMoment(start)}`;
  return html`<figure title=${metric}><figcaption>${title} <strong>${format(values.at(-1))}</strong></figcaption>
    <div class="plot" role="img" aria-label=${text}><span class="y" aria-hidden="true">${[top, top / 2, 0].map((each) => html`<span key=${each}>${format(each)}</span>`)}</span>
      <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        ${[1, HEIGHT / 2, HEIGHT - 1].map((y) => html`<line key=${y} x1="0" x2=${WIDTH} y1=${y} y2=${y} vector-effect="non-scaling-stroke" />`)}
        <polygon points=${`${point(start, 0)} ${points} ${point(last, 0)}`} /><polyline points=${points} vector-effect="non-scaling-stroke" />
        ${growth > 0 && html`<polyline class="trend" points=${`${point(last, values.at(-1))} ${point(end, trend)}`} vector-effect="non-scaling-stroke" />`}</svg>
      <span class="x" aria-hidden="true">${[start, (start + end) / 2, end].map((at, index) => html`<span key=${index}>${showAt(at)}</span>`)}</span></div></figure>`;
}
