// Failures: the traceback of the last attempt, each attempt, what the task knew then, and other tasks that failed so.

import { h } from "./dom.js";
import { compared, mapped, plain } from "./moments.js";
import { addressOf } from "./route.js";
import { calm, clock, duration, plural, shown, value } from "./text.js";
import { copy } from "./copy.js";
import { asPytest } from "./pytest.js";
import { failing } from "./tally.js";
import { openValue } from "./values.js";

const SAME_ENOUGH = 8;
const SAME_READS = 10;

export function failures(known, reads, goTo, page) {
  const bad = failing([...known.steps.values()]);
  const task = known.header && known.header.failure;
  if (!bad.length && !task) return h("p", { class: "panel plain muted" }, "No try of a step has failed.");
  for (const one of bad) once(known, `${one.key}@${one.last}`, () => reads.step(one.key), page);
  const same1 = `same@${known.header.head}`;
  if (task) once(known, same1, () => alike(reads, null), page);
  const further = () => {
    alike(reads, known.failed.get(same1)).then((found) => { known.failed.set(same1, found); page.draw(); }, page.failed);
  };
  const shownFirst = [...bad].sort((one, two) => (two.status === "failed") - (one.status === "failed") || two.last - one.last);
  return [
    !bad.length ? h("section", { class: "panel failure" }, h("header", null, h("h2", null, "The agent's own code failed")), h("p", { class: "m" }, shown(`${task.type}: ${task.message}`))) : null,
    shownFirst.map((one) => failure(one, known, reads, goTo, page, further)),
  ];
}

function once(known, name, read, page) {
  if (known.failed.has(name)) return;
  known.failed.set(name, null);
  read().then((found) => { known.failed.set(name, found); page.draw(); }, () => undefined);
}

function failure(one, known, reads, goTo, page, further) {
  const found = known.failed.get(`${one.key}@${one.last}`) || { tries: [], input: {} };
  const last = found.failure || found.tries.findLast((each) => each.type);
  const before = found.before > 0 ? reads.moment(found.before) : null;
  const task = known.header && known.header.status === "failed" ? known.header : null;
  return h("div", { class: "work", key: one.key },
    h("section", { class: "panel failure" }, h("header", null, h("h2", null, found.tries.length > 1 ? `Traceback of attempt ${found.tries.findLast((each) => each.type)?.number ?? ""}` : "Traceback", " · ", h("span", { class: "m" }, shown(one.key))), h("span", { class: "muted sm" }, plural(one.attempts, "attempt"), ", ", one.status), h("span", { class: "grow" }),
      last ? [one.status === "failed" && task ? h("button", { class: "btn ghost sm", type: "button", title: "A test that runs the agent with the same input and expects this failure", onclick: (event) => { const button = event.currentTarget; reads.first().then((begun) => copy(asPytest(task, begun, last), button), page.failed); } }, h("span", { class: "w" }, "Copy as pytest")) : null, h("button", { class: "btn ghost sm", type: "button", onclick: (event) => copy(traceback(last), event.currentTarget) }, h("span", { class: "w" }, "Copy"))] : null),
      last ? h("pre", { class: "code" }, calm(traceback(last))) : h("p", { class: "m" }, shown(one.came)),
      h("header", null, h("h2", null, "Attempts")),
      h("div", { class: "scrollx" }, h("table", { class: "cards tries" }, h("thead", null, h("tr", null, ["try", "at", "error", "took", "then waited"].map((name, index) => h("th", { scope: "col", class: index > 2 ? "r" : "" }, name)))), h("tbody", null, attempts(one, found, goTo))))),
    h("aside", { class: "panel", "aria-label": "What it knew then" }, h("header", null, h("h2", null, "What it knew then"), found.before > 0 ? h("button", { class: "link sm", type: "button", onclick: () => goTo(found.before) }, `seq ${found.before}`) : null),
      h("div", { class: "kv" }, Object.keys(found.input || {}).length ? [h("span", { class: "sect" }, `input of ${one.key}`), Object.entries(found.input).map(([key, given]) => line(key, given && given.$blob ? [calm(given.$blob.preview.slice(0, 160)), " … ", openValue(given.$blob, `${one.key} ${key}`)] : value(given, 200)))] : null,
        before ? facts(before) : null, same(known, one, further))));
}

function facts(doc) {
  let section = "";
  return compared(mapped({}), doc, true).filter((one) => ["state", "facts", "flags"].includes(one.section)).flatMap((one) => {
    const head = one.section === section ? null : h("span", { class: "sect", key: `s-${one.section}` }, one.section);
    section = one.section;
    return [head, line(one.key, value(one.section === "facts" ? plain(one.value).value : plain(one.value), 160))];
  });
}

function line(key, content) {
  return h("div", { key: `k-${key}` }, h("span", { class: "g" }), h("span", { class: "k", title: key }, shown(key)), h("span", { class: "v" }, content));
}

/** Look for tasks that failed in the same way, among older and older ones, until there are enough. */
async function alike(reads, before) {
  const found = before ? { ...before } : { tasks: [], looked_at: 0, next: "" };
  const enough = found.tasks.length + SAME_ENOUGH;
  for (let read = 0; read < SAME_READS && found.next !== null && found.tasks.length < enough; read += 1) {
    const part = await reads.same(found.next);
    Object.assign(found, { tasks: [...found.tasks, ...part.tasks], looked_at: found.looked_at + part.looked_at, next: part.next });
  }
  return found;
}

function same(known, one, further) {
  const found = known.header.failure && one.status === "failed" ? known.failed.get(`same@${known.header.head}`) : null;
  if (!found) return null;
  return [h("span", { class: "sect" }, "same failure"), line(plural(found.tasks.length, "other task"), found.tasks.length ? found.tasks.map((id, index) => [index ? ", " : "", h("a", { class: "link", href: addressOf(`/tasks/${encodeURIComponent(id)}?tab=failures`) }, shown(id))]) : h("span", { class: "muted" }, found.looked_at > 1 ? `none of the last ${found.looked_at} that failed` : "no other task of this agent failed")), found.next ? line("older", h("button", { class: "link", type: "button", onclick: further }, `look further than the last ${found.looked_at}`)) : null];
}

function attempts(one, found, goTo) {
  const bars = one.bars.filter(([kind]) => kind === "failed" || kind === "done" || kind === "killed");
  return bars.map(([kind, from, to], index) => {
    const tried = found.tries[index];
    const pause = one.bars.find(([what, start]) => what === "pause" && start === to);
    const told = kind === "done" ? h("span", { class: "completed" }, "done") : kind === "killed" ? h("span", { class: "failed" }, "the process died") : h("span", { class: "failed" }, tried && tried.type ? shown(`${tried.type}: ${tried.message}`) : "failed");
    return h("tr", { key: index }, h("td", { class: "m" }, tried && tried.seq ? h("button", { class: "link", type: "button", onclick: () => goTo(tried.seq) }, String(index + 1)) : String(index + 1)), h("td", { class: "m muted" }, clock(from)), h("td", { class: "m val" }, told), h("td", { class: "m r" }, to === null || to === from ? "–" : duration(to - from)), h("td", { class: "m muted r" }, pause ? duration(pause[2] - pause[1]) : "–"));
  });
}

/** A traceback as Python prints it: the last call last, then what was raised; causes first. */
function traceback(failure1) {
  const one = (each) => [each.frames.length ? "Traceback (most recent call last):" : "", ...each.frames.map(frame), `${each.type}: ${each.message}`].filter(Boolean).join("\n");
  return [...(failure1.causes || []).toReversed().map(one), one(failure1)].join("\n\nwhich led to:\n\n") + (failure1.notes || []).map((note) => `\n${note}`).join("");
}

function frame(text) {
  const found = /^(.*):(\d+) in ([^:]*)(?:: ([\s\S]*))?$/.exec(text);
  return found ? `  File "${found[1]}", line ${found[2]}, in ${found[3]}${found[4] ? `\n    ${found[4]}` : ""}` : `  ${text}`;
}
