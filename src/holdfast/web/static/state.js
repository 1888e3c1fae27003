// What a task knew at a moment, and what differs from the event before, or from a marked moment.

import { h } from "./dom.js";
import { compared, lines, plain } from "./moments.js";
import { number, plural, shown, value } from "./text.js";

const SIGNS = { add: "+", del: "−", chg: "~" };
const ORDER = ["state", "plan", "facts", "questions", "checkpoints", "flags", "notes", "artifacts", "task"];
const NAMES = { task: "task", state: "state", facts: "facts", plan: "plan", questions: "questions", flags: "flags", notes: "notes", artifacts: "artifacts", checkpoints: "checkpoints" };

/** The panel beside the timeline. */
export function panel({ seq, now, before, since, event, whole, toggle, goTo, writers }) {
  const changes = now && before ? compared(before, now, true) : [];
  const count = changes.filter((one) => one.kind).length;
  return h("aside", { class: "panel statep", "aria-label": `State at seq ${seq}` },
    h("header", null, h("h2", null, `State at seq ${seq}`), h("span", { class: "muted sm" }, `${count} since ${since}`), h("span", { class: "grow" }),
      h("button", { class: "btn ghost sm", type: "button", "aria-pressed": String(!whole), onclick: () => toggle(false) }, "Diff"),
      h("button", { class: "btn ghost sm", type: "button", "aria-pressed": String(whole), onclick: () => toggle(true) }, "JSON")),
    !now ? h("p", { class: "plain muted" }, "Reading …") : whole ? h("pre", { class: "code json", "data-doc": "" }, shown(JSON.stringify(plain(now), null, 2))) : differences(changes, event, writers, goTo));
}

function differences(changes, event, writers, goTo) {
  const found = [];
  let section = "";
  if (event) found.push(h("span", { class: "sect", key: "s-event" }, "event"), h("div", { key: "event", class: "ev" }, h("span", { class: "g" }, "·"), h("span", { class: "k" }, shown(event[3])), h("span", { class: "v" }, shown(event[4]), event[5] ? [" ", h("span", { class: "muted" }, shown(event[5]))] : null)));
  for (const one of changes) {
    if (one.section !== section) {
      section = one.section;
      found.push(h("span", { class: "sect", key: `s-${section}` }, NAMES[section] || section));
    }
    found.push(entry(one, writers, goTo));
  }
  return h("div", { class: "kv" }, found.length ? found : h("p", { class: "plain muted" }, "The task knows nothing yet."));
}

function entry(one, writers, goTo, more = null) {
  const wrote = writers && (writers.get(`${one.section}\u0000${one.key}`) || (one.section === "task" ? writers.get(one.key) : undefined));
  const source = wrote && one.section !== "checkpoints" ? h("button", { class: "src", type: "button", title: `written at seq ${wrote}`, onclick: () => goTo(wrote) }, `seq ${wrote}`) : null;
  const sign = one.section === "plan" && !one.kind ? (plain(one.value).done ? "✓" : "○") : SIGNS[one.kind] || "";
  const isMarked = one.section === "plan" && !one.kind; // its sign says whether it is done
  if (["questions", "flags"].includes(one.section)) return h("div", { key: `${one.section}/${one.key}`, class: one.kind }, h("span", { class: "g" }, sign), h("span", { class: "v solo" }, shown(one.key), source ? [" ", source] : null));
  return h("div", { key: `${one.section}/${one.key}`, class: one.kind },
    h("span", { class: "g" }, sign ? [h("span", { class: "vh" }, { add: "added", del: "removed", chg: "changed" }[one.kind] || ""), sign] : ""), h("span", { class: "k", title: one.key }, shown(one.key)),
    h("span", { class: "v" }, one.kind === "chg" ? [h("del", null, told(one.section, one.was)), " "] : null, told(one.section, one.value, isMarked), source ? [" ", source] : null, more ? [" · ", more] : null));
}

function told(section, given, isMarked = false) {
  const one = plain(given);
  if (section === "facts") return [value(one.value, 160), one.source ? h("span", { class: "muted" }, " ", shown(one.source)) : null];
  if (section === "plan") return [shown(one.step), one.done && !isMarked ? " ✓" : ""];
  if (section === "artifacts") return [shown(one.summary || one.type), h("span", { class: "muted" }, ` ${number(one.bytes)} bytes`)];
  if (section === "checkpoints") return [`seq ${one}`];
  if (section === "task" || section === "flags" || section === "questions") return typeof one === "string" ? shown(one) : value(one, 160);
  return value(one, 160);
}

/** The whole of it, on a tab of its own. */
export function sections(now, writers, goTo, rollBackTo) {
  if (!now) return h("p", { class: "plain muted" }, "Reading …");
  const groups = new Map();
  for (const [section, key, one] of lines(now)) {
    if (!groups.has(section)) groups.set(section, []);
    groups.get(section).push({ section, key, value: one, kind: "" });
  }
  const said = (section, found) => (section === "plan" ? `${found.filter((one) => plain(one.value).done).length} of ${found.length} done` : section === "state" ? plural(found.length, "key") : `${found.length}`);
  const back = (one) => (one.section === "checkpoints" && rollBackTo && Number.isInteger(one.value) ? h("button", { class: "link sm", type: "button", onclick: () => rollBackTo(one.value) }, "roll back to it") : null);
  const shownFirst = ([one], [two]) => ORDER.indexOf(one) - ORDER.indexOf(two);
  return h("div", { class: "cols filled" }, [...groups].sort(shownFirst).map(([section, found]) => h("section", { class: "panel", key: section }, h("header", null, h("h2", null, capital(NAMES[section] || section)), h("span", { class: "muted sm" }, said(section, found))), h("div", { class: "kv" }, found.map((one) => entry(one, writers, goTo, back(one)))))));
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
