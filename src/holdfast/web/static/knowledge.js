// Decisions with the options not taken, facts with their sources, open questions; and what the task made.

import { save } from "./api.js";
import { h } from "./dom.js";
import { plain } from "./moments.js";
import { bytes, number, shown, value } from "./text.js";
import { fileName, open } from "./values.js";

export function knowledge(found, doc, writers, goTo) {
  const facts = doc ? [...(doc.get("facts") || new Map())] : [];
  const questions = doc ? doc.get("questions") || [] : [];
  return h("div", { class: "work" },
    h("section", { class: "panel decided" }, h("header", null, h("h2", null, "Decisions"), h("span", { class: "muted sm" }, "with the options not taken")),
      !found ? h("p", { class: "plain muted" }, "Reading …") : found.decisions.length ? found.decisions.map((one) => decision(one, goTo)) : h("p", { class: "plain muted" }, "No decision is recorded up to here.")),
    h("div", { class: "side" },
      h("section", { class: "panel" }, h("header", null, h("h2", null, "Facts"), h("span", { class: "muted sm" }, number(facts.length))), h("div", { class: "kv" }, facts.length ? facts.map(([key, one]) => fact(key, plain(one), writers, goTo)) : h("p", { class: "plain muted" }, "No fact is recorded up to here.")),
        questions.length ? [h("header", null, h("h2", null, "Open questions")), h("ul", { class: "open-questions" }, questions.map((one, index) => h("li", { key: index }, h("span", { "aria-hidden": "true" }, "? "), shown(one))))] : null)));
}

function decision(one, goTo) {
  const against = one.options.map(reasoned);
  const same = (option) => JSON.stringify(option) === JSON.stringify(one.choice);
  const options = [{ option: one.choice, why: "" }, ...against.filter(({ option }) => !same(option))];
  return h("article", { key: one.seq, class: "decision" }, h("h3", null, shown(one.question)),
    h("dl", { class: "args" }, options.map(({ option, why }, index) => h("div", { key: index }, h("dt", null, index ? "" : h("span", { class: "completed" }, "✓ "), told(option)), h("dd", { class: index ? "muted" : "" }, index ? ["not taken", why ? [" · ", shown(why)] : ""] : one.why ? shown(one.why) : "taken")))),
    h("p", { class: "muted sm" }, one.step ? ["after ", h("span", { class: "m" }, shown(one.step)), " · "] : null, h("button", { class: "link", type: "button", onclick: () => goTo(one.seq) }, `seq ${one.seq}`)));
}

/** An option and what speaks against it: `decide(…, options={"DY641": "arrives at 23:10"})` keeps both. */
function reasoned(given) {
  const both = given && typeof given === "object" && !Array.isArray(given) && Object.keys(given).sort().join() === "option,why" && typeof given.why === "string";
  return both ? given : { option: given, why: "" };
}

const told = (option) => (typeof option === "string" ? shown(option) : value(option, 300));

function fact(key, one, writers, goTo) {
  const wrote = writers && writers.get(`facts\u0000${key}`);
  return h("div", { key }, h("span", { class: "g" }), h("span", { class: "k", title: key }, shown(key)), h("span", { class: "v" }, value(one.value, 300), h("span", { class: "sub" }, one.source ? [shown(one.source), " · "] : null, wrote ? h("button", { class: "src", type: "button", onclick: () => goTo(wrote) }, `seq ${wrote}`) : null)));
}

export function artifacts(found, path, goTo, page) {
  if (!found) return h("p", { class: "plain muted" }, "Reading …");
  if (!found.artifacts.length) return h("p", { class: "panel plain muted" }, "This task has made nothing up to here.");
  const href = (one) => `/blobs/${path.slice("/tasks/".length)}/${one.seq}/data`;
  return h("div", { class: "panel scrollx" }, h("table", { class: "cards artifacts" }, h("thead", null, h("tr", null, ["Artifact", "Type", "Summary", "Made by", "Bytes", ""].map((one) => h("th", { scope: "col", class: one === "Bytes" ? "r" : "" }, one || h("span", { class: "vh" }, "Open or save"))))),
    h("tbody", null, found.artifacts.map((one) => h("tr", { key: one.id }, h("td", { class: "m b" }, shown(one.id)), h("td", { class: "m ink2" }, shown(one.type)), h("td", { class: "val" }, shown(one.summary)),
      h("td", { class: "m" }, shown(one.step), one.step ? " · " : "", h("button", { class: "link", type: "button", onclick: () => goTo(one.seq) }, `seq ${one.seq}`)), h("td", { class: "r m", title: bytes(one.bytes) }, number(one.bytes)),
      h("td", { class: "r" }, h("button", { class: "btn sm", type: "button", onclick: () => open(href(one), one.id) }, "Open as text"), " ", h("button", { class: "btn sm", type: "button", onclick: () => save(href(one), fileName(one.id)).catch(page.failed) }, "Save")))))));
}
