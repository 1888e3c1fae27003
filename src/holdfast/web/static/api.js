// Asking the server: with the session's token, and never anyone else. Errors are what the server says they are.

const base = document.body.dataset.base || "";
const HIDDEN_MS = 60_000;
const WAITS = [1, 2, 4, 8];

let token = null;
const tabs = "BroadcastChannel" in window ? new BroadcastChannel(`holdfast${base}`) : null;

/** An error that the server told, or that there was no answer. */
export class Problem extends Error {
  constructor(told) {
    super(told.detail || "The page did not get an answer.");
    this.code = told.code || "unreachable";
    this.hint = told.hint || "";
    this.status = told.status || 0;
    this.details = told.details || {};
  }
}

// The session

/** Find the session: of the link's code, of this tab before it was loaded anew, or of another tab. */
export async function login() {
  if (document.body.dataset.login === "host") return true;
  const code = /^#code=([\w-]+)$/.exec(location.hash);
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    await exchange(code[1]);
    return true;
  }
  token = sessionStorage.getItem("holdfast-token");
  if (token === null) token = await fromOtherTab();
  if (token !== null) sessionStorage.setItem("holdfast-token", token);
  return token !== null;
}

/** Exchange a code for a session. */
export async function exchange(code) {
  const found = await ask("/api/v1/session", { method: "POST", body: JSON.stringify({ code }), headers: { "content-type": "application/json" } });
  token = found.token;
  sessionStorage.setItem("holdfast-token", token);
}

function fromOtherTab() {
  if (!tabs) return Promise.resolve(null);
  return new Promise((resolve) => {
    const done = setTimeout(() => resolve(null), 150);
    tabs.addEventListener("message", (event) => {
      if (event.data && event.data.token) {
        clearTimeout(done);
        resolve(event.data.token);
      }
    });
    tabs.postMessage({ wanted: true });
  });
}

if (tabs) tabs.addEventListener("message", (event) => event.data && event.data.wanted && token && tabs.postMessage({ token }));

/** Forget a session that has ended. */
export function forget() {
  token = null;
  sessionStorage.removeItem("holdfast-token");
}

// Questions and acts

function headers(more) {
  return token === null ? { ...more } : { authorization: `Bearer ${token}`, ...more };
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(base + path, { ...options, headers: headers(options && options.headers), cache: "no-cache" });
  } catch {
    throw new Problem({});
  }
  noticeVersion(answer);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem({ ...body, status: answer.status });
  return body;
}

/** Read: `get("/tasks", {q: "status:failed"})`. */
export function get(path, query) {
  const given = new URLSearchParams();
  for (const name in query || {}) {
    for (const one of [query[name]].flat()) if (one !== undefined && one !== null && one !== "") given.append(name, one);
  }
  const text = given.toString();
  return ask(`/api/v1${path}${text ? `?${text}` : ""}`);
}

/** Act. Each act has a key of its own, so that one that is sent twice is done once. */
export function post(path, body) {
  const key = crypto.randomUUID();
  return ask(`/api/v1${path}`, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", "idempotency-key": key } });
}

/** Read what the server has as text. */
export async function fetchText(path) {
  const answer = await fetch(`${base}/api/v1${path}`, { headers: headers() });
  if (!answer.ok) throw new Problem({ ...(await answer.json().catch(() => ({}))), status: answer.status });
  return answer.text();
}

/** Save what the server has as a file. */
export async function save(path, as) {
  const answer = await fetch(`${base}/api/v1${path}`, { headers: headers() });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = as;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Do something soon, at most once a second: however often it is asked for meanwhile, it is not put off. */
export function calmly(act, soon = 50, least = 1000) {
  let timer = null;
  let at = 0;
  const asked = () => {
    if (timer !== null) return;
    timer = setTimeout(() => { timer = null; at = Date.now(); act(); }, Math.max(soon, at + least - Date.now()));
  };
  asked.stop = () => { clearTimeout(timer); timer = null; };
  return asked;
}

// Streams

/** What a page knows of its connection: live, paused, or lost and when it tries again. */
export const connection = { state: "paused", at: 0, next: 0, error: null, held: false, outdated: false };

const own = /\/static\/([^/]+)\//.exec(import.meta.url)?.[1];

/** Each answer names the version of the page that its server has: another one than this means that it was updated. */
function noticeVersion(answer) {
  const theirs = answer.headers.get("holdfast-page");
  if (theirs && own && theirs !== own) connection.outdated = true;
}

const held = new Set();

/** Pause, for as long as the person wants, on every screen; or resume from where it was. */
export function hold(on) {
  connection.held = on;
  for (const one of held) one(on);
}

/** Listen to a stream until it is closed. It comes back by itself, from where it was. */
export function stream(path, after, hear, changed) {
  let last = after;
  let closed = false;
  let tries = 0;
  let control = null;
  let timer = null;
  let hiding = null;

  async function listen() {
    clearTimeout(timer);
    if (closed || control || document.hidden || connection.held) return;
    const mine = new AbortController();
    control = mine;
    try {
      await read(mine.signal);
      lost(null);
    } catch (error) {
      if (!closed && control === mine) lost(error); // else it was paused, and perhaps listens again
    }
  }

  async function read(signal) {
    const given = last === null || last === undefined ? {} : { "last-event-id": String(last) };
    const answer = await fetch(`${base}/api/v1${path}`, { headers: headers(given), signal, cache: "no-store" });
    if (!answer.ok) throw new Problem({ ...(await answer.json().catch(() => ({}))), status: answer.status });
    noticeVersion(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      connection.at = Date.now();
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        frame(rest.slice(0, end));
        rest = rest.slice(end + 2);
      }
    }
  }

  function frame(text) {
    let kind = "message";
    let data = "";
    let id = null;
    for (const one of text.split("\n")) {
      if (one.startsWith("event: ")) kind = one.slice(7);
      else if (one.startsWith("data: ")) data += one.slice(6);
      else if (one.startsWith("id: ")) id = one.slice(4);
    }
    if (!data) return;
    const told = JSON.parse(data);
    if (kind === "failed") throw new Problem({ ...told, status: 503 });
    if (connection.state !== "live") tell("live");
    tries = 0;
    hear(kind, told, id);
    if (id !== null) last = id;
  }

  function lost(error) {
    control = null;
    if (closed) return;
    if (document.hidden) return tell("paused");
    const wait = WAITS[Math.min(tries, WAITS.length - 1)] * (0.8 + Math.random() * 0.4);
    tries += 1;
    connection.next = Date.now() + wait * 1000;
    tell("lost", error instanceof Problem ? error : new Problem({}));
    timer = setTimeout(listen, wait * 1000);
  }

  function tell(state, error = null) {
    connection.state = state;
    connection.error = error;
    connection.at = state === "live" ? Date.now() : connection.at;
    changed();
  }

  function seen() {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = setTimeout(() => {
        stop();
      }, HIDDEN_MS);
    } else listen();
  }

  function stop() {
    clearTimeout(timer);
    if (control) control.abort();
    control = null;
    tell("paused");
  }

  const hold = (on) => {
    tries = 0;
    if (on) stop();
    else listen();
  };

  document.addEventListener("visibilitychange", seen);
  held.add(hold);
  listen();
  return {
    close() {
      closed = true;
      held.delete(hold);
      clearTimeout(timer);
      clearTimeout(hiding);
      document.removeEventListener("visibilitychange", seen);
      if (control) control.abort();
    },
    now: () => {
      tries = 0;
      listen();
    },
  };
}
