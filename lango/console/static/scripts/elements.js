/** Creates elements. Strings become text nodes, never markup. */

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `el("a", { href: "#/", class: "tab" }, "Chat")`. */
export function el(name, properties = {}, ...children) {
  return furnish(document.createElement(name), properties, children);
}

/** An SVG element, by the same rules. */
export function svg(name, properties = {}, ...children) {
  return furnish(document.createElementNS(SVG, name), properties, children);
}

/** Replace the children of an element. */
export function fill(node, ...children) {
  node.replaceChildren(...present(children));
  return node;
}

/** A button that calls `act`; for a symbol as its face, pass an `aria-label`. */
export function button(face, act, properties = {}) {
  return el("button", { type: "button", on: { click: act }, ...properties }, face);
}

/** A symbol that screen readers skip: its meaning is also in words. */
export function symbol(face) {
  return el("span", { "aria-hidden": "true", class: "symbol" }, face);
}

function furnish(node, { on = {}, style = {}, data = {}, ...attributes }, children) {
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  // Property by property: the page's policy forbids style attributes.
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, value);
  Object.assign(node.dataset, data);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...present(children));
  return node;
}

function setAttribute(node, name, value) {
  if (value === true) node.setAttribute(name, "");
  else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
}

function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}
