// The shapes of statuses and buttons.

import { h } from "./dom.js";

const line = { fill: "none", stroke: "currentColor", "stroke-width": "1.5", "stroke-linecap": "round", "stroke-linejoin": "round" };
const path = (d, more) => h("path", { d, ...more });
const svg = (...kids) => h("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", ...line }, ...kids);
const circle = (cx, cy, r, more) => h("circle", { cx, cy, r, ...more });

const SHAPES = {
  running: () => svg(circle(8, 8, 6, { opacity: ".35" }), path("M8 2a6 6 0 0 1 6 6", { class: "spin", "stroke-width": "2" })),
  waiting: () => svg(path("M5.5 3.5v9M10.5 3.5v9", { "stroke-width": "2.4" })),
  doubt: () => svg(path("M8 1.6 14.6 8 8 14.4 1.4 8z"), path("M6.4 6.5c.1-1 .8-1.5 1.7-1.5 1 0 1.7.6 1.7 1.4 0 1.2-1.7 1.2-1.7 2.3"), circle(8.1, 10.7, 0.9, { fill: "currentColor", stroke: "none" })),
  interrupted: () => svg(path("M9.2 1.5 4 9h3.6l-1 5.5L12 7H8.3z")),
  pending: () => svg(circle(8, 8, 5.6, { "stroke-dasharray": "2.4 2.2" })),
  failed: () => svg(h("rect", { x: 1.6, y: 1.6, width: 12.8, height: 12.8, rx: 3, fill: "currentColor", opacity: ".16", stroke: "none" }), path("m5 5 6 6M11 5l-6 6", { "stroke-width": "1.9" })),
  completed: () => svg(circle(8, 8, 6.6, { fill: "currentColor", opacity: ".16", stroke: "none" }), path("m4.7 8.3 2.3 2.3 4.4-5", { "stroke-width": "1.9" })),
  cancelled: () => svg(circle(8, 8, 6), path("m3.9 12.1 8.2-8.2")),
  quarantined: () => svg(path("M8 1.5 14.8 14H1.2z"), path("M8 6v4"), circle(8, 12, 0.9, { fill: "currentColor", stroke: "none" })),
  search: () => svg(circle(7, 7, 4.3), path("m10.3 10.3 3.2 3.2")),
  fork: () => svg(circle(4, 3, 1.6), circle(12, 3, 1.6), circle(4, 13, 1.6), path("M4 4.6v6.8M12 4.6c0 3.4-8 2.4-8 5.4")),
  back: () => svg(path("M6 3 2.5 6.5 6 10"), path("M2.5 6.5H10a3.5 3.5 0 0 1 0 7H7")),
  stop: () => svg(h("rect", { x: 3.5, y: 3.5, width: 9, height: 9, rx: 1.5 })),
  play: () => svg(path("M5 3.5v9l7-4.5z")),
  copy: () => svg(h("rect", { x: 5.5, y: 5.5, width: 8, height: 8, rx: 1.5 }), path("M3 10.5v-7A1 1 0 0 1 4 2.5h6.5")),
  tasks: () => svg(path("M2.5 4h11M2.5 8h11M2.5 12h7")),
  inbox: () => svg(path("M2 9.5 4 3h8l2 6.5V13H2z"), path("M2 9.5h3.6c.2 1.2 1.2 2 2.4 2s2.2-.8 2.4-2H14")),
  workers: () => svg(h("rect", { x: 2, y: 3, width: 12, height: 4, rx: 1 }), h("rect", { x: 2, y: 9, width: 12, height: 4, rx: 1 }), path("M4.5 5h.01M4.5 11h.01", { "stroke-width": "2" })),
  audit: () => svg(path("M3 2.5h10v11H3z"), path("M5.5 6h5M5.5 9h5")),
  brand: () => h("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round" }, path("M6 3v18M18 3v18"), path("M6 9c4 0 8 6 12 6"), path("M6 15c1.9 0 3.6-1.2 5-2.6M13.2 10.5C14.7 9.6 16.3 9 18 9")),
};

export function icon(shape) {
  return (SHAPES[shape] || SHAPES.pending)();
}

const WORDS = { doubt: "in doubt" };

/** A status: always a word, a shape and a colour. */
export function status(which, { pill = false, word } = {}) {
  return h("span", { class: `st ${pill ? "pill " : ""}${which}` }, icon(which), word || WORDS[which] || which);
}

/** What a task's row says of it, in one word. */
export function statusOf(row) {
  if (row.interrupted) return "interrupted";
  if (row.status !== "completed" && row.doubts && row.doubts.length) return "doubt";
  if (row.status === "waiting" && row.waiting === "quarantined") return "quarantined";
  return row.status;
}
