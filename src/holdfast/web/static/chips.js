// A filter bar: what is filtered by stands there as chips that can be removed; the rest is typed.

import { h } from "./dom.js";
import { shown } from "./text.js";

/** A word of a filter that stands as a chip: its name, its sign, its value. */
const SET = /^(\w+)(:|<|>|!=|≠)(.*)$/s;

/** The words of a filter; one in quotes is one word. */
export function words(query) {
  return query.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) || [];
}

/** A word with a value that has spaces is put in quotes. */
export function worded(name, text) {
  return /[\s"']/.test(text) ? `${name}:"${text.replaceAll('"', "")}"` : `${name}:${text}`;
}

/** What of a filter is no chip: it stays where it is typed. */
const unset = (query) => words(query).filter((one) => !SET.test(one)).join(" ");

export function chips({ query, change, placeholder, more = null, list = null }) {
  const all = words(query);
  const set = all.filter((one) => SET.test(one));
  const rest = unset(query);
  const submit = (event) => {
    event.preventDefault();
    const text = [...set, new FormData(event.target).get("q").trim()].filter(Boolean).join(" ");
    event.target.elements.q.value = unset(text); // what has become a chip is not typed any more
    change(text);
  };
  const drop = (one) => () => change(all.filter((other) => other !== one).join(" "));
  return h("form", { class: "filter", role: "search", onsubmit: submit },
    set.map((one) => {
      const [, name, sign, text] = SET.exec(one);
      return h("span", { class: "chip", key: one }, h("b", null, name), sign === ":" ? " " : h("span", null, ` ${sign === "!=" ? "≠" : sign} `), shown(text.replace(/^["']|["']$/g, "")), h("button", { type: "button", "aria-label": `Remove ${one}`, onclick: drop(one) }, "×"));
    }),
    h("input", { name: "q", key: "q", type: "search", value: rest, "aria-label": "Filter", autocomplete: "off", spellcheck: "false", placeholder: set.length ? "" : placeholder, list: list ? "filter-words" : null }),
    list ? h("datalist", { id: "filter-words", key: "list" }, list.map(([name, text]) => h("option", { value: worded(name, text) }))) : null,
    more, all.length ? h("button", { class: "btn ghost sm", type: "button", onclick: () => change("") }, "Clear") : null,
    h("button", { class: "btn ghost sm", type: "submit" }, "Filter"));
}
