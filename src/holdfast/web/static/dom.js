// Elements as plain data, and the little that brings a page from one such description to the next.
// Text is always a text node and attributes are set one by one: nothing that a store holds is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "indeterminate"]);

/** An element: its tag, its attributes, and what it holds. `key` tells it apart among its siblings. */
export function h(tag, attributes, ...kids) {
  const given = attributes || {};
  return { tag, given, kids: drawn(kids), key: given.key };
}

/** What is to be drawn, without what stands for nothing. */
function drawn(kids) {
  return kids.flat(Infinity).filter((kid) => kid !== null && kid !== undefined && kid !== false && kid !== "");
}

/** Make what an element holds equal to these descriptions; what is the same stays, with its focus and its scroll. */
export function render(kids, parent) {
  patchKids(parent, drawn([kids]), parent.namespaceURI === SVG);
}

function patchKids(parent, kids, inSvg) {
  const keyed = new Map();
  for (const node of parent.childNodes) if (node.$key !== undefined) keyed.set(node.$key, node);
  let kept = null;
  let next = parent.firstChild;
  for (const kid of kids) {
    if (next !== null && next.$key !== undefined && next.$key !== kid.key) {
      // What goes is removed first: else what stays is moved, and loses its focus.
      kept = kept || new Set(kids.map((one) => one.key));
      while (next !== null && next.$key !== undefined && !kept.has(next.$key)) next = without(next);
    }
    const wanted = typeof kid === "object" ? kid : String(kid);
    let node = fitting(wanted, next, keyed);
    if (node === null) node = made(wanted, inSvg);
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
    if (typeof wanted === "string") {
      if (node.data !== wanted) node.data = wanted;
    } else patch(node, wanted, inSvg || wanted.tag === "svg");
  }
  while (next !== null) next = without(next);
}

/** Remove a node; gives the one after it. */
function without(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

function fitting(wanted, next, keyed) {
  if (typeof wanted === "string") return next !== null && next.nodeType === 3 ? next : null;
  if (wanted.key !== undefined) {
    const node = keyed.get(wanted.key);
    return node !== undefined && node.$tag === wanted.tag ? node : null;
  }
  return next !== null && next.$tag === wanted.tag && next.$key === undefined ? next : null;
}

function made(wanted, inSvg) {
  if (typeof wanted === "string") return document.createTextNode(wanted);
  const node = inSvg || wanted.tag === "svg" ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
  node.$tag = wanted.tag;
  node.$key = wanted.key;
  node.$given = {};
  return node;
}

function patch(node, wanted, inSvg) {
  const before = node.$given;
  for (const name in before) if (!(name in wanted.given)) set(node, name, null, before[name]);
  if (!(wanted.given.skip)) patchKids(node, wanted.kids, inSvg && wanted.tag !== "foreignObject");
  for (const name in wanted.given) set(node, name, wanted.given[name], before[name]);
  node.$given = wanted.given;
}

function set(node, name, value, before) {
  if (name === "key" || name === "skip") return;
  if (name === "style") {
    for (const one in value || {}) if (!before || before[one] !== value[one]) node.style.setProperty(one, value[one]);
    for (const one in before || {}) if (!value || !(one in value)) node.style.removeProperty(one);
  } else if (name.startsWith("on")) {
    if (!node.$on) node.$on = {};
    const kind = name.slice(2);
    if (!(kind in node.$on)) node.addEventListener(kind, (event) => node.$on[kind] && node.$on[kind](event));
    node.$on[kind] = value;
  } else if (PROPERTIES.has(name) && !(node instanceof SVGElement)) {
    if (value !== before && node[name] !== value) node[name] = value === null ? "" : value;
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else if (value !== before) {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}
