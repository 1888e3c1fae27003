// A task at any seq, without asking the server each time: documents at every 500th seq, and what each event changed.
// Only the server knows what state is; here patches (RFC 6902) are applied, and documents compared.

import { get } from "./api.js";

const BLOCK = 500;
const FRAME = 25;

/** Apply a JSON Patch; gives a new document and leaves the old one as it is. Keys are plain keys, whatever they are called. */
export function applied(document, ops) {
  let root = document;
  for (const op of ops) {
    const path = pointer(op.path);
    if (op.op === "add" || op.op === "replace") root = put(root, path, op.value, op.op === "add");
    else if (op.op === "remove") root = put(root, path, undefined, false, true);
    else if (op.op === "move" || op.op === "copy") {
      const value = at(root, pointer(op.from));
      if (op.op === "move") root = put(root, pointer(op.from), undefined, false, true);
      root = put(root, path, value, true);
    }
  }
  return root;
}

function pointer(text) {
  return text === "" ? [] : text.slice(1).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function at(value, path) {
  return path.reduce((found, part) => (Array.isArray(found) ? found[Number(part)] : found.get(part)), value);
}

function put(value, path, given, inserts, removes = false) {
  if (!path.length) return given;
  const [part, ...rest] = path;
  if (Array.isArray(value)) {
    const copy = [...value];
    const index = part === "-" ? copy.length : Number(part);
    if (rest.length) copy[index] = put(copy[index], rest, given, inserts, removes);
    else if (removes) copy.splice(index, 1);
    else if (inserts) copy.splice(index, 0, mapped(given));
    else copy[index] = mapped(given);
    return copy;
  }
  const copy = new Map(value);
  if (rest.length) copy.set(part, put(copy.get(part), rest, given, inserts, removes));
  else if (removes) copy.delete(part);
  else copy.set(part, mapped(given));
  return copy;
}

/** JSON with Maps for objects, so that `__proto__` is a key like any other. */
export function mapped(value) {
  if (value instanceof Map || value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(mapped);
  return new Map(Object.entries(value).map(([key, one]) => [key, mapped(one)]));
}

/** Maps as plain JSON again, to be shown. */
export function plain(value) {
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, one]) => [key, plain(one)]));
  return Array.isArray(value) ? value.map(plain) : value;
}

export class Moments {
  constructor(id) {
    this.path = `/tasks/${encodeURIComponent(id)}`;
    this.blocks = new Map();
    this.last = [0, mapped({})];
  }

  /** The document at a seq. Asks the server at most once in 500 seqs. */
  async at(seq) {
    const block = await this.block(seq);
    return this.folded(block, seq);
  }

  /** The same, if it needs no question; else null. */
  ready(seq) {
    const block = this.blocks.get(Math.floor((seq - 1) / BLOCK));
    return block && block.start && block.upto >= seq ? this.folded(block, seq) : null;
  }

  async block(seq) {
    const number = Math.floor((seq - 1) / BLOCK);
    let block = this.blocks.get(number);
    if (!block) {
      block = { from: number * BLOCK, start: null, deltas: [], upto: 0, kept: new Map(), frames: new Map(), asking: null };
      this.blocks.set(number, block);
    }
    if (!block.start || block.upto < seq) {
      block.asking = block.asking || this.fill(block);
      try {
        await block.asking;
      } finally {
        block.asking = null;
      }
    }
    return block;
  }

  async fill(block) {
    const [start, found] = await Promise.all([
      block.start ? null : block.from ? get(`${this.path}/state`, { at: block.from }) : { doc: {} },
      get(`${this.path}/deltas`, { after: Math.max(block.from, block.upto), limit: block.from + BLOCK - Math.max(block.from, block.upto) }),
    ]);
    if (start) block.start = mapped(start.doc);
    this.grow(block, found.deltas, found.upto);
  }

  grow(block, deltas, upto) {
    const known = block.deltas.length ? block.deltas[block.deltas.length - 1][0] : 0;
    block.deltas.push(...deltas.filter(([seq]) => seq > known));
    block.upto = Math.max(block.upto, upto);
  }

  /** What came live. It only helps where the block is known up to there. */
  heard(deltas, after, upto) {
    const block = this.blocks.get(Math.floor(after / BLOCK));
    if (block && block.start && block.upto === after && upto <= block.from + BLOCK) this.grow(block, deltas, upto);
  }

  folded(block, seq) {
    if (block.kept.has(seq)) return block.kept.get(seq);
    let from = block.from;
    let document = block.start;
    for (const known of [block.frames, block.kept]) for (const [one, kept] of known) if (one <= seq && one > from) [from, document] = [one, kept];
    let done = 0;
    for (const [one, ops] of block.deltas) {
      if (one <= from) continue;
      if (one > seq) break;
      document = applied(document, ops);
      done += 1;
      if (done % FRAME === 0) block.frames.set(one, document); // so that the next move has little to apply
    }
    if (block.kept.size > 64) block.kept.delete(block.kept.keys().next().value);
    block.kept.set(seq, document);
    return document;
  }

  /** The seq that last wrote each value, as far as its block knows. */
  writers(seq) {
    const block = this.blocks.get(Math.floor((seq - 1) / BLOCK));
    const found = new Map();
    if (!block) return found;
    let plan = block.start && block.start.get("plan") ? block.start.get("plan").map(() => undefined) : [];
    for (const [one, ops] of block.deltas) {
      if (one > seq) break;
      for (const op of ops) {
        const [section, key] = pointer(op.path);
        if (section === undefined) continue;
        if (section === "plan") plan = stepsWritten(plan, op, one);
        else if (LISTED.has(section)) for (const value of [op.value].flat()) found.set(`${section}\u0000${value}`, one);
        else found.set(key === undefined ? section : `${section}\u0000${key}`, one);
        if (key === undefined && op.value && typeof op.value === "object") for (const inner of Object.keys(op.value)) found.set(`${section}\u0000${inner}`, one);
      }
    }
    plan.forEach((one, index) => one && found.set(`plan\u0000${index + 1}`, one));
    return found;
  }
}

/** Sections that are lists of texts: a text is found by what it says, whatever its place. */
const LISTED = new Set(["questions", "flags"]);

/** Who wrote each step of a plan, after one more operation: steps move when others are added or removed before them. */
function stepsWritten(plan, op, seq) {
  const [, place, ...rest] = pointer(op.path);
  if (place === undefined) return (op.value || []).map(() => seq);
  const found = [...plan];
  if (op.op === "move") found.splice(Number(pointer(op.from)[1]), 1);
  const index = place === "-" ? found.length : Number(place);
  if (op.op === "remove" && !rest.length) found.splice(index, 1);
  else if (op.op === "replace" || rest.length) found[index] = seq;
  else found.splice(index, 0, seq);
  return found;
}

const SECTIONS = ["status", "stage", "phase", "turn", "goal", "waiting", "state", "facts", "plan", "questions", "flags", "notes", "artifacts", "checkpoints"];

/** A document as lines: section, key, value. */
export function lines(document) {
  const found = [];
  for (const section of SECTIONS) {
    const value = document.get(section);
    if (value === undefined || value === null || value === "" || (section === "turn" && value === 0)) continue;
    if (value instanceof Map) for (const [key, one] of value) found.push([section, key, one]);
    else if (section === "plan") value.forEach((step, index) => found.push([section, String(index + 1), step]));
    else if (Array.isArray(value)) value.forEach((one) => found.push([section, String(one), one]));
    else found.push(["task", section, value]);
  }
  return found;
}

/** What differs between two documents, line by line, in the order of the later one; with `all` also what is the same. */
export function compared(before, now, all) {
  const name = ([section, key]) => `${section}\u0000${key}`;
  const old = new Map(lines(before).map((line) => [name(line), line]));
  const found = [];
  for (const line of lines(now)) {
    const was = old.get(name(line));
    old.delete(name(line));
    const same = was !== undefined && JSON.stringify(plain(was[2])) === JSON.stringify(plain(line[2]));
    if (!same || all) found.push({ section: line[0], key: line[1], value: line[2], was: was ? was[2] : undefined, kind: same ? "" : was ? "chg" : "add" });
  }
  for (const [section, key, value] of old.values()) found.push({ section, key, value, kind: "del" });
  const order = (one) => ["task", ...SECTIONS].indexOf(one.section);
  return found.sort((one, two) => order(one) - order(two));
}
