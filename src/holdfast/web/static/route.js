// Addresses: the whole view is in the URL, so that any screen can be sent to another person.

const base = document.body.dataset.base || "";
const listeners = [];

/** The address of a path of this page. */
export function addressOf(path) {
  return base + path;
}

/** A path on the page of a namespace, from the page of all; without a namespace it is one of this page. */
export function within(namespace, path) {
  return namespace ? `/ns/${encodeURIComponent(namespace)}${path}` : path;
}

/** Go there: the page of a namespace is another one, which is loaded. */
export function goWithin(namespace, path) {
  if (namespace) location.assign(addressOf(within(namespace, path)));
  else go(path);
}

/** The namespace of a row, as people read it. */
export const namespaceOf = (row) => (row.namespace === "-" ? "no namespace" : row.namespace || "");

/** Which screen the address names, and what it asks for. An id is one part of the path, decoded once. */
export function route() {
  const parts = location.pathname.slice(base.length).split("/").filter((part, index) => index > 0).map(decodeURIComponent);
  const query = new URLSearchParams(location.search);
  if (parts[0] === "tasks" && parts.length === 2) return { screen: "task", id: parts[1], query };
  if (parts[0] === "inbox") return { screen: "inbox", task: parts[1], kind: parts[2], key: parts[3], query };
  if (parts[0] === "compare" && parts.length === 3) return { screen: "compare", a: parts[1], b: parts[2], query };
  if (parts[0] === "users" || parts[0] === "threads") return { screen: parts[1] === undefined || parts[1] === "" ? parts[0] : parts[0].slice(0, -1), id: parts[1], query };
  if (parts[0] === "workers") return { screen: "workers", query };
  if (parts[0] === "audit") return { screen: "audit", query };
  return { screen: "tasks", query };
}

/** Go to a path of this page. */
export function go(path) {
  history.pushState(null, "", base + path);
  tell();
}

/** Change what the address asks for, and stay. What is null is left out. */
export function ask(changes) {
  const query = new URLSearchParams(location.search);
  for (const name in changes) {
    if (changes[name] === null || changes[name] === "") query.delete(name);
    else query.set(name, changes[name]);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  tell();
}

/** Be told when the address changes. */
export function onMove(listener) {
  listeners.push(listener);
}

function tell() {
  for (const one of listeners) one();
}

window.addEventListener("popstate", tell);

// Links of this page move within it; with a modifier, or elsewhere, the browser does what it always does.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.hasAttribute("download") || link.hasAttribute("data-whole") || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  tell();
});
