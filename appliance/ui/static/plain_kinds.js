// What a text without marks is: JSON, a diff, a log or a traceback, which are shown in fixed width.

const DIFF = /^(diff --git |--- \S.*\n\+\+\+ \S|@@ -\d)/;
const TRACEBACK = /^(Traceback \(most recent call last\):|Exception in thread |panic: |thread '.*' panicked at |goroutine \d+ \[)/;
const FRAME = /^\s+at \S.*[:(]/;
const LOGGED = /^\s*(\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d[\s.,\]]|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d |\[?(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b[\]: ])/;
const LINES_READ = 200;
const JSON_MIN = 20;

export function kindOf(text) {
  if (DIFF.test(text)) return "diff";
  if (isJson(text)) return "json";
  const lines = text.slice(0, 100 * LINES_READ).split("\n", LINES_READ).filter((line) => line.trim());
  if (TRACEBACK.test(text) || (lines.length > 2 && lines.filter((line) => FRAME.test(line)).length > 1)) return "traceback";
  const logged = lines.filter((line) => LOGGED.test(line)).length;
  return lines.length > 1 && logged > 0.6 * lines.length ? "log" : null;
}

function isJson(text) {
  return text.length >= JSON_MIN && /^\s*[[{]/.test(text) && parsed(text) !== undefined;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// JSON with one value a line, unless that would change a number.
export function indented(text) {
  const value = text.includes("\n") ? undefined : parsed(text);
  return value !== undefined && JSON.stringify(value) === text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1") ? JSON.stringify(value, null, 2) : text;
}
