// Rates and lags of the last hour, drawn from the samples that the process keeps.
import { get } from "./api.js";
import { bytes, duration } from "./table.js";
import { showTime } from "./text.js";
import { html } from "./view.js";

const [WIDTH, HEIGHT] = [360, 60];
const small = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const FORMATS = { seconds: duration, bytes, count: (value) => small.format(value), "per second": (value) => `${small.format(value)}/s` };

export const readRates = () => get("/api/v1/rates");

export function Charts({ data: { at_ms: times, series } }) {
  if (!times.length) return html`<p class="soft">The first sample comes within 10 seconds of the start.</p>`;
  const busy = series.filter(({ values }) => values.some(Boolean));
  const quiet = series.filter((each) => !busy.includes(each));
  return html`<div class="charts">${busy.map((each) => html`<${Chart} key=${each.name} ...${each} times=${times} />`)}</div>
    ${quiet.length > 0 && html`<p class="soft">All zero since ${showTime(times[0])}: ${quiet.map(({ title }) => title).join(", ")}.</p>`}`;
}

function Chart({ title, unit, metric, values, times }) {
  const highest = Math.max(...values);
  const format = FORMATS[unit] || String;
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(HEIGHT - 2 - (value / (highest || 1)) * (HEIGHT - 4)).toFixed(1)}`).join(" ");
  const text = `${title}: now ${format(values.at(-1))}, highest ${format(highest)} since ${showTime(times[0])}`;
  return html`<figure title=${metric}><figcaption>${title} <strong>${format(values.at(-1))}</strong></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${text}>
      <polygon points=${`0,${HEIGHT} ${points} ${WIDTH},${HEIGHT}`} /><polyline points=${points} vector-effect="non-scaling-stroke" /></svg>
    <p class="soft"><span>${showTime(times[0])}</span><span>highest ${format(highest)}</span><span>${showTime(times.at(-1))}</span></p></figure>`;
}
