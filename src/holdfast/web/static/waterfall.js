// The waterfall: a row for each step with its bars, on one scale of time in which long silences are folded.
// Places are shares of the width, so that it fits every screen without being measured.

import { h } from "./dom.js";
import { clock, duration, shown } from "./text.js";

const SILENCE_MS = 20_000;
const FOLD = 0.04;
const MOST_FOLDED = 0.45;
const LABEL = 0.12;
const WORK = new Set(["run", "done", "failed", "killed", "child"]);

/** A scale of time: `at(ms)` is a share of the width. Silences over 20 s are folded, unless real time is wanted. */
export function scale(steps, rows, lanes, start, end, folds) {
  const spans = [];
  for (const step of steps) for (const [kind, from, to] of step.bars) {
    if (WORK.has(kind)) spans.push([from, to === null ? end : to]);
    else spans.push([from, from], [to === null ? end : to, to === null ? end : to]);
  }
  for (const row of rows) spans.push([row[1], row[1]]);
  for (const lane of lanes) spans.push([lane.start, lane.start]);
  spans.push([start, start], [end, end]);
  spans.sort((one, two) => one[0] - two[0]);
  const silences = [];
  let until = start;
  for (const [from, to] of spans) {
    if (folds && from - until > SILENCE_MS) silences.push([until, from]);
    until = Math.max(until, to);
  }
  const silent = silences.reduce((sum, [from, to]) => sum + to - from, 0);
  const working = Math.max(1, end - start - silent);
  const each = silences.length ? Math.min(FOLD, MOST_FOLDED / silences.length) : 0;
  const room = 1 - each * silences.length;
  const at = (ms) => {
    let share = 0;
    let from = start;
    for (const [begin, stop] of silences) {
      if (ms <= begin) break;
      share += ((begin - from) / working) * room;
      if (ms < stop) return share + ((ms - begin) / (stop - begin)) * each;
      share += each;
      from = stop;
    }
    return Math.max(0, Math.min(1, share + ((Math.min(ms, end) - from) / working) * room));
  };
  return { at, silences, start, end, working, ticks: ticks(at, silences, start, end, working) };
}

function ticks(at, silences, start, end, working) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 43_200_000, 86_400_000, 604_800_000];
  const step = steps.find((one) => working / one <= 7) || steps[steps.length - 1];
  const found = [];
  let last = -1;
  for (let ms = 0, count = 0; start + ms <= end && count < 400; ms += step, count += 1) {
    const share = at(start + ms);
    const hidden = silences.some(([from, to]) => start + ms > from && start + ms < to);
    if (hidden || share - last < 0.085 || share > (step < 10 ? 0.9 : 0.96)) continue;
    last = share;
    found.push([share, label(ms, step)]);
  }
  return found;
}

function label(ms, step) {
  if (ms === 0) return "0 s";
  if (step < 10) return `${ms} ms`;
  if (step < 1000) return `${(ms / 1000).toFixed(step < 100 ? 2 : 1)}`;
  if (ms < 60_000) return `${ms / 1000}`;
  const s = Math.floor(ms / 1000);
  return s < 3600 ? `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}` : `${Math.floor(s / 3600)}:${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} h`;
}

const share = (value) => `${(value * 100).toFixed(3)}%`;

function span(time, from, to) {
  const left = time.at(from);
  return { left: share(left), width: share(Math.max(0.004, time.at(to) - left)) };
}

/** Who held the task: a lane with a block for each process, and a line where one died. */
export function lane(time, lanes, dead, upto) {
  return h("div", { class: "wrow lanes" }, h("div", { class: "label muted s" }, "worker"), h("div", { class: "track" }, lanes.map((one, index) => {
    const last = index === lanes.length - 1;
    const open = one.until === null;
    const gone = one.end === "killed" || one.end === "lost" || (open && last && dead);
    const kind = gone ? "gone" : open ? "held" : "freed";
    const later = upto && one.seq > upto ? " later" : "";
    return h("span", { key: one.seq, class: `lane ${kind}${later}`, style: span(time, one.start, open ? (dead && last ? dead.since : time.end) : one.until), title: `${nameOf(one)}, from ${clock(one.start)}` }, named(one));
  })));
}

/** What stands on a lane: of a narrow one the number, or nothing. */
function named(one) {
  const text = nameOf(one);
  const [word, ...more] = text.split(" ");
  return h("span", null, h("span", { class: "w" }, `${word} `), shown(more.join(" ")));
}

/** A process as people know it: its number, and its machine if a worker announced it. */
export function nameOf({ holder }) {
  return `process ${holder ? holder.pid : "?"}${holder && holder.machine ? ` on ${holder.machine}` : ""}`;
}

/** Which of places in order are far enough from the one before: the words of others would cover each other. */
function apart(places) {
  let last = -1;
  return places.map((one) => {
    const far = one - last >= LABEL;
    if (far) last = one;
    return far;
  });
}

/** The lines across all rows: seconds, folded silences, kills, the moment that is shown, now. */
export function overlay(time, lanes, dead, moment, running) {
  const kills = lanes.filter((one) => one.end === "killed" || one.end === "lost").map((one) => [one.until, one.end]);
  if (dead) kills.push([dead.since, "killed"]);
  const worded = apart(kills.map(([at]) => time.at(at)));
  return h("div", { class: "over", "aria-hidden": "true" },
    time.ticks.map(([at, text]) => h("i", { class: "tick", style: { left: share(at) } }, h("span", null, text))),
    time.silences.map(([from, to]) => h("i", { class: "fold", style: span(time, from, to) }, h("span", null, duration(to - from)))),
    kills.map(([at, how], index) => h("i", { class: "killed", style: { left: share(time.at(at)) } }, !worded[index] ? null : h("span", { class: time.at(at) > 0.2 ? "left" : "", title: how === "lost" ? "It was silent for too long, and may still be at work" : "It ended without releasing the task. The log holds when it last wrote, and not which signal ended it or when" }, how === "lost" ? "lost" : "killed"))),
    moment !== null ? h("i", { class: "moment", style: { left: share(time.at(moment)) } }) : null,
    running && moment === null ? h("i", { class: "now", style: { left: share(time.at(time.end)) } }, h("span", null, "now")) : null);
}

const SAID = { run: "running", done: "done", failed: "failed try", killed: "its process died", pause: "pause before the next try", wait: "wait", child: "child task", doubt: "in doubt" };

/** A child by the end of its id, which tells it apart from the others; the beginning is its parent's, and is only read aloud. */
function childOf(id) {
  const end = id.lastIndexOf("/") + 1;
  return ["↳ ", end ? h("span", { class: "vh" }, shown(id.slice(0, end))) : null, shown(id.slice(end))];
}

/** A row: the call as code, and its bars. */
export function row(time, step, { on, later, choose, firstOfTurn, deep = 0, task = "", flip = null, isOpen = false }) {
  const text = step.child ? childOf(step.child) : shown(`${step.name}(${step.given})`);
  const ends = (kind, to) => (to !== null ? to : kind === "run" ? time.open : time.end); // what runs ends with its process
  const said = step.bars.map(([kind, from, to]) => `${SAID[kind]} ${duration(ends(kind, to) - from)}`).join(", ");
  return h("li", { key: task ? `${task}\n${step.key}` : step.key, class: `wrow${on ? " on" : ""}${later ? " later" : ""}${deep ? ` in in${deep}` : step.turn && !firstOfTurn ? " within" : ""}${step.child ? " has" : ""}` },
    step.child && flip ? h("button", { type: "button", class: "opens", "aria-expanded": String(isOpen), "aria-label": `Steps of ${step.child}`, onclick: () => flip(step.child) }, isOpen ? "▾" : "▸") : null,
    h("button", { type: "button", class: "label", "aria-pressed": String(on), title: step.child || null, onclick: () => choose(step) },
      firstOfTurn ? h("span", { class: "turn" }, `turn ${step.turn}`) : null,
      h("span", { class: "code1" }, text), step.came ? h("span", { class: "came" }, "→ ", shown(step.came)) : null,
      h("span", { class: "vh" }, `, ${step.status}: ${said}`)),
    h("div", { class: "track", "aria-hidden": "true" }, step.bars.map(([kind, from, to], index) => h("span", { key: index, class: `bar ${kind}${to === null ? " open" : ""}`, style: span(time, from, ends(kind, to)), title: `${SAID[kind]}, ${duration(ends(kind, to) - from)}` }))));
}

/** Turns that are folded into one row, and open by a press; their bar is from the first to the last. */
export function foldRow(time, { fold, isOpen, label: turns, told }, flip) {
  const bars = fold.flatMap((step) => step.bars);
  const from = bars.reduce((least, [, start]) => Math.min(least, start), time.end);
  const to = bars.reduce((most, [, , end]) => Math.max(most, end === null ? time.end : end), from);
  return h("li", { key: "\nturns", class: "wrow folded" },
    h("button", { type: "button", class: "label s", "aria-expanded": String(isOpen), onclick: () => flip("turns") }, isOpen ? "▾ " : "▸ ", turns, h("span", { class: "muted" }, ` · ${told}, ${duration(to - from)}`)),
    h("div", { class: "track", "aria-hidden": "true" }, bars.length ? h("span", { class: "bar turns", style: span(time, from, to) }) : null));
}

/** A row of plain text among the steps of a child. */
export function noteRow({ note, key, deep }) {
  return h("li", { key: `${key}\nnote`, class: `wrow in in${deep}` }, h("span", { class: "label s muted" }, shown(note)), h("div", { class: "track" }));
}

/** Where to draw ticks of the slider: a mark for each event in its colour, or of many events the most telling. */
export function marks(rows, head) {
  const most = Math.min(head, 240);
  const weight = { bad: 5, doubt: 4, warn: 3, good: 2, plain: 1, dim: 0 };
  const found = new Array(most).fill("dim");
  for (const one of rows) {
    const index = Math.min(most - 1, Math.floor(((one[0] - 1) / head) * most));
    const tone = one[2] === "step_doubted" ? "doubt" : one[2] === "task_claimed" && one[0] > 3 ? "bad" : one[6];
    if (weight[tone] > weight[found[index]]) found[index] = tone;
  }
  return h("svg", { class: "marks", viewBox: `0 0 ${most * 10} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, found.map((tone, index) => h("rect", { x: index * 10 + 0.8, y: tone === "dim" || tone === "plain" ? 4 : 1, width: 8.4, height: tone === "dim" || tone === "plain" ? 4 : 8, rx: 1, class: `k-${tone}` })));
}
