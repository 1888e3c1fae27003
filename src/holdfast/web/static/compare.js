// Two tasks side by side: their common past folded, the first difference marked, then events in pairs, state and cost.

import { get } from "./api.js";
import { copyAs, quoted } from "./copy.js";
import { h } from "./dom.js";
import { status } from "./icons.js";
import { legend } from "./keys.js";
import { compared, mapped } from "./moments.js";
import { addressOf, ask, go } from "./route.js";
import { duration, money, number, plural, shown, value } from "./text.js";

const MOST_PAST = 500;

export function compare(page, to) {
  const known = { found: null, at: -1, past: null, open: false };

  const differs = ([one, two]) => !one || !two || one[3] !== two[3] || one[4] !== two[4] || one[5] !== two[5];
  const differences = () => known.found.pairs.map((pair, index) => (differs(pair) ? index : -1)).filter((index) => index >= 0);

  function jump(by) {
    const all = differences();
    if (!all.length) return;
    const next = by > 0 ? all.find((one) => one > known.at) : all.filter((one) => one < known.at).pop();
    ask({ at: String(seqOf(next === undefined ? (by > 0 ? all[0] : all[all.length - 1]) : next)) });
  }

  const seqOf = (index) => (known.found.pairs[index][0] || known.found.pairs[index][1])[0];

  /** Show the pair that the address names by its seq. */
  function goTo(at) {
    known.at = at ? known.found.pairs.findIndex((_, index) => seqOf(index) === Number(at)) : -1;
    page.draw();
    requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(".cmp .on")?.scrollIntoView({ block: "center" })));
  }

  /** Show the common past, or fold it again; of a long one the newest events. */
  async function showPast() {
    known.open = !known.open;
    if (known.open && !known.past) {
      const { common } = known.found;
      known.past = (await get(`/tasks/${encodeURIComponent(to.a)}/rows`, { after: Math.max(0, common - MOST_PAST), upto: common, limit: MOST_PAST })).rows;
    }
    page.draw();
  }

  function past(common) {
    if (!common) return h("div", { class: "band" }, "No event in common");
    const rows = known.open && known.past ? known.past : [];
    return [
      h("div", { class: "band" }, `${plural(common, "event")} in common `, h("button", { class: "link", type: "button", "aria-expanded": String(known.open), onclick: () => showPast().catch(page.failed) }, known.open ? "hide" : "show")),
      rows.length && rows[0][0] > 1 ? h("div", { class: "band" }, `Of them the last ${number(rows.length)} are shown.`) : null,
      rows.map((one) => [cell(one, "same past"), h("div", { class: "mid" }, String(one[0])), cell(one, "same past")]),
    ];
  }

  const swap = () => go(`/compare/${encodeURIComponent(to.b)}/${encodeURIComponent(to.a)}`);

  return {
    title: () => "Compare",
    keys: { n: () => jump(1), p: () => jump(-1), Escape: () => go("/") },
    async start(listen) {
      known.found = await get("/compare", { a: to.a, b: to.b });
      goTo(to.query.get("at"));
      listen("/stream", null, () => undefined);
    },
    moved(next) {
      if (next.screen !== "compare" || next.a !== to.a || next.b !== to.b || !known.found) return false;
      goTo(next.query.get("at"));
      return true;
    },
    draw() {
      if (!known.found) return h("p", { class: "plain muted" }, "Reading both tasks …");
      const { common, pairs, tasks } = known.found;
      const first = pairs.findIndex(differs);
      return [
        h("div", { class: "row" }, h("h1", null, "Compare"), h("span", { class: "muted sm desc" }, "A fork shares its past. What is equal is folded; the first difference is marked."), h("span", { class: "grow" }), copyAs({ command: `holdfast diff ${quoted(to.a)} ${quoted(to.b)}`, path: `/api/v1/compare?${new URLSearchParams({ a: to.a, b: to.b })}` }), h("button", { class: "btn ghost", type: "button", onclick: swap }, "Swap"), h("button", { class: "btn", type: "button", onclick: () => jump(1) }, "Next difference", h("kbd", null, "n"))),
        h("section", { class: "panel three" }, h("div", { class: "cmp" }, head(tasks[0]), h("div", { class: "mid" }), head(tasks[1]),
          past(common),
          pairs.flatMap((pair, index) => [index === first ? h("div", { class: "band first" }, "first difference") : null, side(pair[0], pair, index), h("div", { class: "mid" }, String((pair[0] || pair[1])[0]), differs(pair) ? h("span", { title: "They differ" }, " ≠") : null), side(pair[1], pair, index)]))),
        h("div", { class: "cols" }, states(tasks), costs(tasks), results(tasks)),
        legend([["n p", "next, previous difference"], ["esc", "all tasks"]]),
      ];
    },
  };

  function side(one, pair, index) {
    const on = index === known.at ? " on" : "";
    if (!one) return h("div", { class: `gone${on}` }, h("span", { class: "vh" }, "nothing"));
    return cell(one, `${differs(pair) ? "x" : "same"}${on}`);
  }
}

function cell(one, kind) {
  return h("div", { class: kind }, h("b", null, shown(one[3])), " ", shown(one[4]), one[5] ? [" ", h("span", { class: "ink2" }, shown(one[5]))] : null);
}

function head(task) {
  return h("div", { class: "head" }, h("div", { class: "row" }, h("a", { class: "id", href: addressOf(`/tasks/${encodeURIComponent(task.id)}`) }, shown(task.id)), status(task.interrupted ? "interrupted" : task.status, { pill: true })), h("span", { class: "muted sm" }, forkedFrom(task), `${duration(task.took_ms)}${used(task, "cost") ? ` · ${money(used(task, "cost"))}` : ""} · ${plural(task.steps.known, "step")}${task.turn ? ` · turn ${task.turn}` : ""}`));
}

/** Where a fork began, by whom, what was changed, and how its calls are answered. */
function forkedFrom(task) {
  if (!task.forked) return "";
  const { parent, at, by, effects, patch } = task.forked;
  return ["fork of ", h("span", { class: "m" }, shown(parent)), ` at seq ${at}`, by ? [" by ", shown(by)] : "", patch ? [" · ", shown(patch)] : "", ` · effects ${effects} · `];
}

const used = (task, name) => (task.budget && task.budget.used[name]) || 0;

function states(tasks) {
  const found = compared(mapped(tasks[0].doc), mapped(tasks[1].doc), false).filter((one) => one.section !== "task");
  return h("section", { class: "panel" }, h("header", null, h("h2", null, "State"), h("span", { class: "muted sm" }, found.length ? `${found.length} differ` : "the same")),
    h("div", { class: "kv" }, found.map((one) => h("div", { key: `${one.section}/${one.key}`, class: one.kind }, h("span", { class: "g" }, { add: "+", del: "−", chg: "~" }[one.kind]), h("span", { class: "k" }, shown(one.key)), h("span", { class: "v" }, one.kind === "chg" ? [value(plainOf(one.was), 80), " → "] : null, value(plainOf(one.value), 80))))));
}

function plainOf(given) {
  return given instanceof Map ? Object.fromEntries([...given].map(([key, one]) => [key, plainOf(one)])) : Array.isArray(given) ? given.map(plainOf) : given;
}

function costs(tasks) {
  const rows = [["cost", money], ["tokens", number], ["calls", number]].filter(([name]) => tasks.some((one) => used(one, name)));
  const steps = tasks.map((one) => one.steps.committed); // what has no budget counts no steps
  return h("section", { class: "panel" }, h("header", null, h("h2", null, "Used")), h("div", { class: "kv" }, rows.map(([name, show]) => h("div", { key: name }, h("span", { class: "g" }), h("span", { class: "k" }, name), h("span", { class: "v" }, `${show(used(tasks[0], name))} → ${show(used(tasks[1], name))}`))), h("div", { key: "steps" }, h("span", { class: "g" }), h("span", { class: "k" }, "steps"), h("span", { class: "v" }, `${number(steps[0])} → ${number(steps[1])}`))));
}

function results(tasks) {
  return h("section", { class: "panel" }, h("header", null, h("h2", null, "Result")), h("div", { class: "kv" }, tasks.map((task, index) => h("div", { key: String(index) }, h("span", { class: "g" }), h("span", { class: "k" }, shown(task.id)), h("span", { class: "v" }, task.status === "completed" ? value(task.result, 200) : h("span", { class: "muted" }, task.status))))));
}
