// A filter bar: what is filtered by stands there as chips that can be removed; the rest is typed.

import { h } from "./dom.js";
import { shown } from "./text.js";

/** The words of a filter; one in quotes is one word. */
export function words(query) {
  return query.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) || [];
}

/** A word with a value that has spaces is put in quotes. */
export function worded(name, text) {
  return /[\s"']/.test(text) ? `${name}:"${text.replaceAll('"', "")}"` : `${name}:${text}`;
}

export function chips({ query, change, placeholder, more = null, list = null }) {
  const all = words(query);
  const set = all.filter((one) => /^[\w]+[:<>]/.test(one));
  const rest = all.filter((one) => !set.includes(one)).join(" ");
  const submit = (event) => {
    event.preventDefault();
    change([...set, new FormData(event.target).get("q").trim()].filter(Boolean).join(" "));
  };
  const drop = (one) => () => change(all.filter((other) => other !== one).join(" "));
  return h("form", { class: "filter", role: "search", onsubmit: submit },
    set.map((one) => {
      const [, name, sign, text] = /^(\w+)([:<>])(.*)$/s.exec(one);
      return h("span", { class: "chip", key: one }, h("b", null, name), sign === ":" ? " " : ` ${sign} `, shown(text.replace(/^["']|["']$/g, "")), h("button", { type: "button", "aria-label": `Remove ${one}`, onclick: drop(one) }, "×"));
    }),
    h("input", { name: "q", key: "q", type: "search", value: rest, "aria-label": "Filter", autocomplete: "off", spellcheck: "false", placeholder: set.length ? "" : placeholder, list: list ? "filter-words" : null }),
    list ? h("datalist", { id: "filter-words", key: "list" }, list.map(([name, text]) => h("option", { value: worded(name, text) }))) : null,
    more, all.length ? h("button", { class: "btn ghost sm", type: "button", onclick: () => change("") }, "Clear") : null,
    h("button", { class: "btn ghost sm", type: "submit" }, "Filter"));
}
