// Markdown as elements: headings, lists, code, quotes, emphasis. No images and no HTML: what is not known is text.
// A link is its text with its address beside it, so that nothing leads where it does not say.

import { h } from "./dom.js";
import { calm } from "./text.js";

const MOST_DEPTH = 6;

/** A text in Markdown, as elements. */
export function markdown(text) {
  const lines = String(text).split("\n");
  const found = [];
  for (let at = 0; at < lines.length;) [at] = block(lines, at, found);
  return found;
}

function block(lines, at, found) {
  const line = lines[at];
  if (!line.trim()) return [at + 1];
  const fence = /^\s*(```+|~~~+)/.exec(line);
  if (fence) return code(lines, at, fence[1], found);
  const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
  if (heading) {
    found.push(h("p", { class: `mh mh${Math.min(heading[1].length, 3)}`, role: "heading", "aria-level": String(Math.min(6, heading[1].length + 2)) }, inline(heading[2])));
    return [at + 1];
  }
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
    found.push(h("hr"));
    return [at + 1];
  }
  if (/^\s*>/.test(line)) return quote(lines, at, found);
  if (ITEM.test(line)) return list(lines, at, found);
  return paragraph(lines, at, found);
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

function code(lines, at, fence, found) {
  const kept = [];
  let next = at + 1;
  while (next < lines.length && !lines[next].trim().startsWith(fence)) kept.push(lines[next++]);
  found.push(h("pre", { class: "code" }, calm(kept.join("\n"))));
  return [next + 1];
}

function quote(lines, at, found) {
  const kept = [];
  let next = at;
  while (next < lines.length && /^\s*>/.test(lines[next])) kept.push(lines[next++].replace(/^\s*> ?/, ""));
  found.push(h("blockquote", null, kept.map((one) => h("p", null, inline(one)))));
  return [next];
}

function list(lines, at, found) {
  const ordered = /^\s*\d/.test(lines[at]);
  const items = [];
  let next = at;
  for (; next < lines.length; next += 1) {
    const item = ITEM.exec(lines[next]);
    if (item) items.push({ deep: Math.min(MOST_DEPTH, Math.floor(item[1].length / 2)), text: item[3] });
    else if (items.length && /^\s{2,}\S/.test(lines[next])) items[items.length - 1].text += `\n${lines[next].trim()}`;
    else break;
  }
  found.push(h(ordered ? "ol" : "ul", { class: "md" }, items.map((one) => h("li", { class: `deep${one.deep}` }, inline(one.text)))));
  return [next];
}

function paragraph(lines, at, found) {
  const kept = [];
  let next = at;
  while (next < lines.length && lines[next].trim() && !/^\s*(```|~~~|>|#{1,6}\s)/.test(lines[next]) && !(kept.length && ITEM.test(lines[next]))) kept.push(lines[next++]);
  found.push(h("p", null, inline(kept.join("\n"))));
  return [Math.max(next, at + 1)];
}

// What stands inside a line. Each pattern begins with a sign that text seldom has, so that a long text is read once.
const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*([^*]+)\*\*|__([^_]+)__|\*([^*\s][^*]*)\*|(?<![\w])_([^_\s][^_]*)_(?![\w])|~~([^~]+)~~|!?\[([^\]]*)\]\(([^)\s]*)[^)]*\)/g;

function inline(text) {
  const parts = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > last) parts.push(calm(text.slice(last, found.index)));
    parts.push(piece(found));
    last = found.index + found[0].length;
  }
  if (last < text.length) parts.push(calm(text.slice(last)));
  return parts;
}

function piece([whole, tick, code1, strong, strong2, em, em2, struck, label, address]) {
  if (tick) return h("code", null, calm(code1));
  if (strong || strong2) return h("strong", null, calm(strong || strong2));
  if (em || em2) return h("em", null, calm(em || em2));
  if (struck) return h("s", null, calm(struck));
  if (address !== undefined) return [calm(label), h("span", { class: "muted m" }, " (", calm(address), ")")];
  return calm(whole);
}
