// Markdown as nodes: the parser's tokens become elements of this list, and its HTML is never used. Addresses
// of others are linked only if they are http or https, and pictures become links, so nothing is loaded.
import { Code } from "./code.js";
import { kindOf } from "./plain_kinds.js";
import { Outside } from "./text.js";
import MarkdownIt from "./vendor/markdown-it.js";
import { html, rarely } from "./view.js";

const SECTION_MAX = 4_000; // characters that are parsed at once
const SECTIONS_MAX = 60; // the rest is one more, as it is
const FOLDED_SIZE = 400;
const TOKENS_MAX = 2_000; // in a section; one with more stays plain text
const NESTING_MAX = 20;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*?)\s*$/;
const TASK = /^\[([ xX])\](?= )/;
const TAGS = {
  paragraph: "p", bullet_list: "ul", ordered_list: "ol", list_item: "li", blockquote: "blockquote", hr: "hr", table: "table", thead: "thead",
  tbody: "tbody", tr: "tr", th: "th", td: "td", em: "em", strong: "strong", s: "s", heading: "h4", hardbreak: "br", softbreak: "br",
};

const parser = new MarkdownIt({ html: false, linkify: true, breaks: true, maxNesting: NESTING_MAX });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
for (const scheme of ["//", "ftp:", "mailto:"]) parser.linkify.add(scheme, null);

// Parts of a long text that are shown one by one, so that none takes long: code, which is not parsed, and
// texts that end at an empty line or, if there is none, at any. `size`: how many characters it looks like.
export function sectionsOf(text) {
  if (text.length <= SECTION_MAX) return [{ text, size: text.length }];
  const sections = [];
  let [lines, size, fence, kind] = [[], 0, null, null];
  const cut = () => {
    if (lines.length) sections.push({ text: lines.join("\n"), size: kind ? FOLDED_SIZE : size, kind });
    [lines, size, fence, kind] = [[], 0, null, null];
  };
  for (const line of text.split("\n")) {
    const [, mark, info = ""] = FENCE.exec(line) || [];
    if (sections.length >= SECTIONS_MAX) {
      [fence, kind] = ["rest", "text"];
      lines.push(line);
    } else if (fence && mark?.startsWith(fence) && !info) {
      cut();
    } else if (fence) {
      lines.push(line);
    } else if (mark) {
      cut();
      [fence, kind] = [mark, languageOf(info)];
    } else {
      if (size > 0 && (size + line.length > SECTION_MAX || (!line.trim() && size > SECTION_MAX / 2))) cut();
      lines.push(line);
      size += line.length + 1;
    }
  }
  cut();
  return sections;
}

const languageOf = (info) => info.split(/\s/)[0].toLowerCase() || "code";

export const Section = rarely(({ text, size, kind }) => {
  if (kind) return html`<${Code} text=${text} kind=${kind} />`;
  const tokens = size > SECTION_MAX ? [] : parser.parse(text, {});
  const count = tokens.reduce((sum, each) => sum + 1 + (each.children?.length || 0), 0);
  return size > SECTION_MAX || count > TOKENS_MAX ? html`<p>${text}</p>` : nodesOf(tokens, text.split("\n"));
});

// The nodes of a list of tokens, in which an opening token ends with the closing one of its level.
function nodesOf(tokens, lines) {
  const stack = [{ nodes: [] }];
  for (const token of tokens) {
    if (token.nesting > 0) {
      stack.push({ token, nodes: [] });
    } else if (token.nesting < 0) {
      const { token: opening, nodes } = stack.pop();
      stack.at(-1).nodes.push(element(opening, nodes, lines));
    } else {
      stack.at(-1).nodes.push(leaf(token, stack, lines));
    }
  }
  return stack[0].nodes;
}

function element(token, nodes, lines) {
  const name = token.type.replace(/_open$/, "");
  if (name === "link") return html`<${Outside} url=${token.attrGet("href")} title>${nodes}<//>`;
  if (name === "paragraph" && token.hidden) return nodes;
  if (name === "paragraph" && token.level === 0) {
    const source = lines.slice(...token.map).join("\n");
    const kind = kindOf(source);
    if (kind) return html`<${Code} text=${source} kind=${kind} />`;
  }
  if (name === "table") return html`<div class="scroll" tabindex="0"><table>${nodes}</table></div>`;
  if (name === "ordered_list") return html`<ol start=${Number(token.attrGet("start") ?? 1)}>${nodes}</ol>`;
  return TAGS[name] ? html`<${TAGS[name]}>${nodes}<//>` : nodes;
}

function leaf(token, stack, lines) {
  const { type, content } = token;
  if (type === "inline") return inline(token, stack, lines);
  if (type === "fence") return html`<${Code} text=${content.replace(/\n$/, "")} kind=${languageOf(token.info.trim())} />`;
  if (type === "code_block") return html`<${Code} text=${content.replace(/\n$/, "")} kind="code" />`;
  if (type === "code_inline") return html`<code>${content}</code>`;
  if (type === "image") return html`<${Outside} url=${token.attrGet("src")} title>${content || token.attrGet("src")}<//>`;
  return TAGS[type] ? html`<${TAGS[type]} />` : content;
}

// The text of a block. In a list item, a leading `[ ]` or `[x]` is a task.
function inline(token, stack, lines) {
  const task = stack.at(-2)?.token?.type === "list_item_open" && !stack.at(-2).nodes.length && TASK.exec(token.content);
  const nodes = nodesOf(task ? withoutTask(token.children) : token.children, lines);
  return task ? html`<input type="checkbox" disabled checked=${task[1] !== " "} aria-label=${task[1] === " " ? "Open task" : "Done task"} />${nodes}` : nodes;
}

function withoutTask([first, ...others]) {
  return first?.type === "text" ? [Object.assign(first, { content: first.content.replace(TASK, "") }), ...others] : [first, ...others];
}
