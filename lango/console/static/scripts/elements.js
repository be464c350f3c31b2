/** Elements made by name. Text is only ever text: nothing here reads markup. */

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `el("a", { href: "#/", class: "tab" }, "Chat")`. */
export function el(name, properties = {}, ...children) {
  return furnish(document.createElement(name), properties, children);
}

/** An SVG element, by the same rules. */
export function svg(name, properties = {}, ...children) {
  return furnish(document.createElementNS(SVG, name), properties, children);
}

/** Put other children into an element. */
export function fill(node, ...children) {
  node.replaceChildren(...present(children));
  return node;
}

/** A button that does something; `label` is read out where the face is a symbol. */
export function button(face, act, properties = {}) {
  return el("button", { type: "button", on: { click: act }, ...properties }, face);
}

/** A symbol beside words that say the same. */
export function symbol(face) {
  return el("span", { "aria-hidden": "true", class: "symbol" }, face);
}

function furnish(node, { on = {}, style = {}, data = {}, ...attributes }, children) {
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  // One by one, which the page's policy allows; a style attribute it does not.
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
