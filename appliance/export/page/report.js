"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ALL = -2, OTHERS = -1, ROWS = 20, MATRIX = 10;
  const MINUTE = 60, HOUR = 3600, DAY = 86400;
  const byId = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");
  const state = { channel: ALL, sender: ALL, from: 0, to: 0 };
  const order = {
    days: { column: 0, down: true }, "delay-rows": { column: 0, down: true }, "latency-rows": { column: 0, down: false },
  };
  const expanded = {};

  // -- elements: names are only ever text -----------------------------------------------------

  function element(tag, attributes = {}, ...children) {
    const svg = ["svg", "g", "rect", "line", "path", "circle", "text", "title", "style"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  const isolated = (text) => element("bdi", { title: text.length > 40 ? text : null }, text);
  const nameOf = (names, rank) => (rank === OTHERS ? "all others" : names[rank]);

  function duration(seconds) {
    if (seconds === null) return "";
    const digits = (value) => String(Number(value.toPrecision(3)));
    if (seconds < 1) return `${digits(seconds * 1000)} ms`;
    if (seconds < MINUTE) return `${digits(seconds)} s`;
    if (seconds < HOUR) return `${digits(seconds / MINUTE)} min`;
    return seconds < DAY ? `${digits(seconds / HOUR)} h` : `${digits(seconds / DAY)} d`;
  }

  function share(part, whole) {
    if (!whole) return "";
    const text = `${((part / whole) * 100).toFixed(1)} %`;
    return text === "100.0 %" && part < whole ? "99.9 %" : text;
  }

  // -- sums and quantiles ----------------------------------------------------------------------

  function merge(into, pairs) {
    for (let i = 0; i < pairs.length; i += 2) into.set(pairs[i], (into.get(pairs[i]) || 0) + pairs[i + 1]);
  }

  function quantile(histogram, part) {
    let count = 0;
    for (const value of histogram.values()) count += value;
    if (!count) return null;
    let rank = Math.max(1, Math.ceil(part * count));
    for (const bucket of [...histogram.keys()].sort((a, b) => a - b)) {
      rank -= histogram.get(bucket);
      if (rank <= 0) return (2 * data.gamma ** bucket) / (data.gamma + 1);
    }
    return null;
  }

  /* The sums of rows by a key: `counts` of the columns from `start`, and the merged histogram. */
  function sumBy(rows, key, start, columns) {
    const sums = new Map();
    for (const row of rows) {
      const name = key(row);
      let sum = sums.get(name);
      if (!sum) sums.set(name, (sum = { key: name, counts: Array(columns).fill(0), waits: new Map() }));
      for (let i = 0; i < columns; i += 1) sum.counts[i] += row[start + i];
      merge(sum.waits, row[start + columns]);
    }
    return [...sums.values()];
  }

  // -- days ------------------------------------------------------------------------------------

  function allDays() {
    const seen = new Set();
    for (const table of ["rows", "pairs", "latency", "outcomes", "dead_letters"]) for (const row of data[table]) seen.add(row[0]);
    const sorted = [...seen].sort();
    if (sorted.length < 2) return sorted;
    const days = [];
    const end = Date.parse(sorted[sorted.length - 1]);
    for (let at = Date.parse(sorted[0]); at <= end; at += DAY * 1000) days.push(new Date(at).toISOString().slice(0, 10));
    return days;
  }

  const labels = allDays();
  const indexOf = new Map(labels.map((day, index) => [day, index]));
  const inDays = (row) => indexOf.get(row[0]) >= state.from && indexOf.get(row[0]) <= state.to;
  const inChannel = (row) => state.channel === ALL || row[1] === state.channel;

  // -- tables ----------------------------------------------------------------------------------

  /* columns: {head, value(row) for sorting, cell(row) text or element, text, missed(row)} */
  function table(id, caption, columns, rows) {
    const chosen = order[id] || { column: columns.findIndex((column) => !column.text), down: true };
    const { value } = columns[chosen.column];
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const compared = typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1);
      return chosen.down ? -compared : compared;
    });
    const visible = expanded[id] ? sorted : sorted.slice(0, ROWS);
    const heads = columns.map((column, index) => element("th", {
      scope: "col", class: column.text ? "text" : null,
      "aria-sort": index === chosen.column ? (chosen.down ? "descending" : "ascending") : null,
    }, element("button", { type: "button", id: `${id}-${index}`, onclick: () => {
      order[id] = { column: index, down: index === chosen.column ? !chosen.down : !column.text };
      draw();
      byId(`${id}-${index}`).focus();
    } }, column.head + (index === chosen.column ? (chosen.down ? " ↓" : " ↑") : ""))));
    const body = visible.map((row) => element("tr", {}, ...columns.map((column) => element("td", {
      class: column.text ? "text" : column.missed && column.missed(row) ? "missed" : null,
    }, column.cell(row) ?? ""))));
    const parts = [scroll(caption, element("table", { "aria-label": caption },
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)))];
    if (rows.length > ROWS) {
      const text = expanded[id] ? `Show the first ${ROWS}` : `Show all ${number(rows.length)}`;
      parts.push(element("button", { type: "button", class: "more", id: `${id}-more`, onclick: () => {
        expanded[id] = !expanded[id];
        draw();
        byId(`${id}-more`).focus();
      } }, text));
    }
    if (!rows.length) return [element("p", { class: "soft" }, "Nothing in this selection.")];
    return parts;
  }

  const scroll = (label, child) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, child);
  const counted = (head, index) => ({ head, value: (row) => row.counts[index], cell: (row) => number(row.counts[index]) });
  const waited = (head, part) => ({
    head, value: (row) => quantile(row.waits, part), cell: (row) => duration(quantile(row.waits, part)),
  });
  const named = (head, name) => ({ head, text: true, value: name, cell: (row) => isolated(name(row)) });

  /* A name that selects itself in a filter. */
  function filtering(head, names, filter) {
    return { head, text: true, value: (row) => nameOf(names, row.key), cell: (row) => row.key === OTHERS
      ? element("i", {}, "all others")
      : element("button", { type: "button", "aria-label": `${head} ${names[row.key]}: filter`, onclick: () => {
        state[filter] = row.key;
        draw();
        byId(filter).focus();
      } }, isolated(names[row.key])) };
  }

  // -- charts ----------------------------------------------------------------------------------

  function ticks(low, high, isLog) {
    if (isLog) {
      const inside = (values) => values.filter((value) => value >= low && value <= high);
      const coarse = inside([0.001, 0.01, 0.1, 1, 10, MINUTE, 600, HOUR, DAY, 10 * DAY, 100 * DAY]);
      if (coarse.length > 2) return coarse;
      const fine = [0.001, 0.01, 0.1, 1].flatMap((power) => [1, 2, 5].map((n) => n * power));
      return inside([...fine, ...[10, 20, 30], ...[1, 2, 5, 10, 20, 30].map((n) => n * MINUTE), ...[1, 2, 5, 10].map((n) => n * HOUR), ...[1, 2, 5, 10, 100].map((n) => n * DAY)]);
    }
    const rough = high / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough));
    return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
  }

  /* bars: numbers by day. lines: [{name, style, values}] with null for none, on a log scale. */
  function chart(width, label, from, { bars = null, lines = [], format }) {
    const height = 220, left = 56, right = 8, top = 10, bottom = 28;
    const values = bars || lines.flatMap((line) => line.values.filter((value) => value !== null));
    const isLog = !bars;
    if (!values.some((value) => value > 0)) return element("p", { class: "soft" }, "Nothing in this selection.");
    const low = isLog ? Math.min(...values.filter((v) => v > 0)) / 1.5 : 0;
    const high = isLog ? Math.max(...values) * 1.5 : Math.max(...values);
    const scale = isLog ? (v) => Math.log(Math.max(v, low) / low) / Math.log(high / low) : (v) => v / high;
    const y = (value) => height - bottom - scale(value) * (height - top - bottom);
    const count = (bars || lines[0].values).length, step = (width - left - right) / count;
    const x = (index) => left + (index + 0.5) * step;
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
    let marks = ticks(low, high, isLog);
    if (marks.length < 2 && isLog) marks = [low * 1.5, high / 1.5];
    for (const tick of marks) picture.append(
      element("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      element("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, format(tick)));
    const every = Math.ceil(count / Math.max(2, Math.floor((width - left) / 110)));
    for (let i = 0; i < count; i += every) picture.append(
      element("text", { x: Math.min(Math.max(x(i), left + 30), width - 40), y: height - 8, "text-anchor": "middle" }, labels[from + i]));
    if (bars) bars.forEach((value, i) => value && picture.append(element("rect", {
      class: "bar", x: x(i) - Math.min(step * 0.4, 24), width: Math.min(step * 0.8, 48), y: y(value), height: Math.max(1, height - bottom - y(value)),
    }, element("title", {}, `${labels[from + i]}: ${format(value)}`))));
    for (const line of lines) {
      let path = "";
      line.values.forEach((value, i) => {
        if (value === null) return;
        path += `${path && line.values[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
        if (count <= 120) picture.append(element("circle", { class: `dot ${line.style}`, cx: x(i), cy: y(value), r: 3 },
          element("title", {}, `${labels[from + i]}, ${line.name}: ${format(value)}`)));
      });
      picture.append(element("path", { class: `line ${line.style}`, d: path }));
    }
    return picture;
  }

  /* A chart, and a button that saves it as a file with the styles of the page and a caption. */
  function savable(id, label, drawn) {
    const wide = width(id), picture = chart(wide, label, state.from, drawn);
    if (picture.tagName !== "svg") return [picture];
    const save = () => {
      const copy = picture.cloneNode(true), { theme } = document.documentElement.dataset;
      if (theme) copy.dataset.theme = theme;
      copy.setAttribute("viewBox", `0 -24 ${wide} ${Number(copy.getAttribute("height")) + 24}`);
      copy.removeAttribute("height");
      const caption = [label, ...(drawn.lines || []).map((line) => `${line.name} ${line.style === "first" ? "solid" : "dashed"}`)];
      copy.prepend(element("style", {}, document.querySelector("style").textContent), element("text", { x: 56, y: -8 }, caption.join(", ")));
      const file = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
      const link = element("a", { href: URL.createObjectURL(file), download: `${id}.svg` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), MINUTE * 1000);
    };
    return [picture, element("button", { type: "button", class: "more", "aria-label": `Save as SVG: ${label}`, onclick: save }, "Save as SVG")];
  }

  const key = (lines) => element("p", { class: "key" }, ...lines.map((line) => element("span", {},
    element("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, element("path", { class: `line ${line.style}`, d: "M0 5H26" })), line.name)));

  function asTable(id, caption, columns, rows) {
    const old = document.querySelector(`#${id}-details`);
    return element("details", { id: `${id}-details`, open: Boolean(old && old.open) },
      element("summary", {}, "Show as table"), ...table(id, caption, columns, rows));
  }

  function byDay(rows, start, columns) {
    const sums = new Map(sumBy(rows, (row) => row[0], start, columns).map((sum) => [sum.key, sum]));
    return labels.slice(state.from, state.to + 1).map((day) => sums.get(day) || { key: day, counts: Array(columns).fill(0), waits: new Map() });
  }

  const dayName = named("Day", (row) => row.key);

  // -- sections --------------------------------------------------------------------------------

  function fill(id, ...children) {
    const place = byId(id);
    if (place) place.replaceChildren(...children);
  }

  const width = (id) => Math.max(280, byId(id).clientWidth);
  const card = (value, text) => element("li", {}, element("b", {}, value), element("span", {}, text));

  function drawActivity() {
    if (!byId("messages")) return null;
    const rows = data.rows.filter((row) => inDays(row) && inChannel(row) && (state.sender === ALL || row[3] === state.sender));
    const [total = { counts: [0, 0, 0, 0, 0, 0], waits: new Map() }] = sumBy(rows, () => 0, 4, 6);
    const [messages, edits, deletes, moves, replied] = total.counts;
    const [median, p95] = [quantile(total.waits, 0.5), quantile(total.waits, 0.95)];
    fill("totals", card(number(messages), "messages"), card(number(edits + deletes + moves), "edits, deletes and moves"),
      card(share(replied, messages) || "-", "messages that another sender followed within a day"),
      card(duration(median) || "-", "median time until then"), card(duration(p95) || "-", "95th percentile"));
    const days = byDay(rows, 4, 6);
    const activity = [counted("Messages", 0), counted("Edits", 1), counted("Deletes", 2), counted("Moves", 3),
      counted("Replied", 4), waited("Reply p50", 0.5), waited("Reply p95", 0.95),
      { head: "Active", value: (row) => row.counts[5], cell: (row) => duration(row.counts[5] || null) }];
    fill("messages", ...savable("messages", "Messages by day", { bars: days.map((day) => day.counts[0]), format: number }),
      asTable("days", "Messages by day", [dayName, ...activity], days.filter((day) => day.counts.some(Boolean))));
    const lines = [{ name: "median", style: "first", values: days.map((day) => quantile(day.waits, 0.5)) },
      { name: "95th percentile", style: "second", values: days.map((day) => quantile(day.waits, 0.95)) }];
    fill("replies", key(lines), ...savable("replies", "Reply times by day, log scale", { lines, format: duration }));
    fill("senders", ...table("sender-rows", "Senders", [filtering("Sender", data.senders, "sender"), ...activity], sumBy(rows, (row) => row[3], 4, 6)));
    fill("channels", ...table("channel-rows", "Channels", [filtering("Channel", data.channels, "channel"), ...activity], sumBy(rows, (row) => row[1], 4, 6)));
    fill("topics", ...table("topic-rows", "Topics", [named("Topic", (row) => nameOf(data.topics, row.key)), ...activity], sumBy(rows, (row) => row[2], 4, 6)));
    drawPairs();
    return messages;
  }

  function drawPairs() {
    const rows = data.pairs.filter((row) => inDays(row) && inChannel(row) && (state.sender === ALL || row[2] === state.sender || row[3] === state.sender));
    const pairs = sumBy(rows, (row) => `${row[2]} ${row[3]}`, 4, 1);
    for (const pair of pairs) [pair.sender, pair.answers] = pair.key.split(" ").map(Number);
    const who = (field) => (pair) => nameOf(data.senders, pair[field]);
    fill("pairs", matrix(pairs), asTable("pair-rows", "Replies between senders", [
      named("Sender", who("sender")), named("answers", who("answers")), counted("Replies", 0), waited("p50", 0.5), waited("p95", 0.95)], pairs));
  }

  function matrix(pairs) {
    if (!pairs.length) return element("p", { class: "soft" }, "Nothing in this selection.");
    const totals = new Map(), counts = new Map();
    for (const pair of pairs) {
      counts.set(pair.key, pair.counts[0]);
      for (const rank of [pair.sender, pair.answers]) totals.set(rank, (totals.get(rank) || 0) + pair.counts[0]);
    }
    const ranks = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)).slice(0, MATRIX);
    const high = Math.max(...counts.values());
    const head = (scope, rank) => element("th", { scope, class: scope === "row" ? "text" : null }, isolated(nameOf(data.senders, rank)));
    const body = ranks.map((sender) => element("tr", {}, head("row", sender), ...ranks.map((answers) => {
      const count = counts.get(`${sender} ${answers}`) || 0;
      const cell = element("td", {}, count ? number(count) : "");
      cell.style.setProperty("--heat", Math.sqrt(count / high));
      return cell;
    })));
    const more = totals.size > MATRIX ? element("p", { class: "soft" }, `The ${MATRIX} senders with most replies; the table has all.`) : null;
    return element("div", {}, scroll("Replies between senders", element("table", { class: "matrix", "aria-label": "Replies between senders" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "text" }, "sender ↓ answers →"), ...ranks.map((rank) => head("col", rank)))),
      element("tbody", {}, ...body))), more ?? "");
  }

  function drawDelivery() {
    if (!byId("latency")) return;
    const [log, to] = [0, 1].map((i) => (row) => (row.destination === OTHERS ? ["", "all others"] : data.destinations[row.destination])[i]);
    const places = [named("Log", log), named("Destination", to)];
    const latency = data.latency.filter(inDays), objective = new Map(data.objectives.map(([of, stage, value]) => [`${of} ${stage}`, value]));
    const stages = sumBy(latency, (row) => `${row[1]} ${row[2]}`, 3, 2);
    for (const sum of stages) {
      const [destination, stage] = sum.key.split(" ").map(Number);
      Object.assign(sum, { destination, stage: data.stages[stage] });
      sum.objective = objective.get(`${log(sum)} ${sum.stage}`) ?? null;
    }
    const met = (row) => row.counts[1] / Math.max(1, row.counts[0]);
    fill("latency", ...table("latency-rows", "Durations", [...places, named("Stage", (row) => row.stage.replaceAll("_", " ")), counted("Count", 0),
      waited("p50", 0.5), waited("p95", 0.95), waited("p99", 0.99),
      { head: "Objective", value: (row) => row.objective, cell: (row) => duration(row.objective) },
      { head: "Met", value: met, cell: (row) => share(row.counts[1], row.counts[0]), missed: (row) => met(row) < 0.95 }], stages));
    const days = byDay(latency.filter((row) => data.stages[row[2]] === "accept_to_deliver"), 3, 2);
    const lines = [{ name: "median", style: "first", values: days.map((day) => quantile(day.waits, 0.5)) },
      { name: "95th percentile", style: "second", values: days.map((day) => quantile(day.waits, 0.95)) }];
    fill("delays", key(lines), ...savable("delays", "Time from accept to delivery by day, log scale", { lines, format: duration }),
      asTable("delay-rows", "Time from accept to delivery", [dayName, counted("Count", 0), waited("p50", 0.5), waited("p95", 0.95)], days.filter((day) => day.counts[0])));
    const outcomes = sumBy(data.outcomes.filter(inDays), (row) => row[1], 2, 6);
    for (const sum of outcomes) sum.destination = sum.key;
    fill("outcomes", ...table("outcome-rows", "Outcomes", [...places, ...["Accepted", "Delivered", "Acked", "Attempts", "Failed", "Dead"].map(counted)], outcomes));
    const dead = sumBy(data.dead_letters.filter(inDays), (row) => `${row[1]} ${row[2]}`, 3, 1);
    for (const sum of dead) [sum.destination, sum.cause] = sum.key.split(" ").map(Number);
    fill("dead_letters", ...table("dead-rows", "Dead letters", [...places, named("Cause", (row) => nameOf(data.causes, row.cause)), counted("Dead letters", 0)], dead));
  }

  // -- filters and theme -----------------------------------------------------------------------

  function draw() {
    for (const name of ["channel", "sender", "from", "to"]) byId(name).value = state[name];
    const messages = drawActivity();
    drawDelivery();
    const days = state.from === state.to ? labels[state.from] : `${labels[state.from]} to ${labels[state.to]}`;
    const parts = [days];
    if (state.channel !== ALL) parts.push(`channel ${data.channels[state.channel]}`);
    if (state.sender !== ALL) parts.push(`sender ${data.senders[state.sender]}`);
    byId("status").replaceChildren(isolated(parts.join(", ") + (messages === null ? "" : `: ${number(messages)} messages`)));
  }

  function options(id, entries) {
    byId(id).replaceChildren(...entries.map(([value, text]) => element("option", { value }, text.length > 60 ? `${text.slice(0, 59)}…` : text)));
  }

  function setFilters() {
    const alphabetical = (names) => [...names.entries()].sort((a, b) => a[1].localeCompare(b[1]));
    options("channel", [[ALL, "All channels"], ...alphabetical(data.channels)]);
    options("sender", [[ALL, "All senders"], ...alphabetical(data.senders)]);
    for (const id of ["from", "to"]) options(id, [...labels.entries()]);
    for (const id of ["channel", "sender"]) byId(id).closest("label").hidden = !data.senders.length;
    byId("filters").addEventListener("change", (event) => {
      state[event.target.id] = Number(event.target.value);
      if (state.from > state.to) state[event.target.id === "from" ? "to" : "from"] = Number(event.target.value);
      draw();
    });
    byId("filters").addEventListener("reset", (event) => { event.preventDefault(); reset(); draw(); });
    byId("filters").hidden = false;
  }

  function reset() {
    Object.assign(state, { channel: ALL, sender: ALL, from: 0, to: labels.length - 1 });
  }

  function setTheme() {
    const button = byId("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
    const label = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colors`); };
    button.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; label(); });
    dark.addEventListener("change", label);
    button.hidden = false;
    label();
  }

  setTheme();
  setFilters();
  reset();
  draw();
  let drawnWidth = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== drawnWidth) { drawnWidth = innerWidth; draw(); } });
})();
