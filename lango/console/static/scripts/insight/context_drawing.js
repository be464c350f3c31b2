/** The context window as bars: length by number of tokens, colour by kind. */

import { el } from "../elements.js";
import { brief, count, counted, exactTime, oneLine } from "../words.js";

const WHY = {
  budget: "over the token budget",
  window: "over the model’s window",
  refused: "refused by the model as too long",
  summarised: "replaced by the summary",
  not_given: "not loaded, or not for this agent",
};
const KINDS = [
  ["system", "Instruction"],
  ["tools", "Tools"],
  ["summary", "Summary"],
  ["history", "Before"],
  ["turn", "This turn"],
  ["rest", "Not itemised"],
  ["cut", "Left out"],
];
const NEXT = "next";

const percent = (part, whole) => `${whole ? (100 * part) / whole : 0}%`;

/** All calls so far, and a preview of the next, as selectable bars. */
export function callStrip(calls, preview, current, address) {
  const most = Math.max(1, preview?.tokens ?? 0, ...calls.map((call) => call.estimated));
  const link = (id, tokens, label, kind) => el("a", {
    href: address(id), class: "call", data: { kind }, title: label, "aria-label": label,
    "aria-current": id === current ? "true" : null, style: { "--size": percent(tokens, most) },
  }, el("span", { class: "call-bar" }));
  const made = calls.map((call, index) => {
    const cut = call.left_out ? `, ${count(call.left_out)} left out` : "";
    const what = call.kind === "summary" ? " for a summary" : "";
    const label = `Call ${index + 1}, ${exactTime(call.started)}: ${count(call.estimated)} tokens${what}${cut}`;
    return link(call.call, call.estimated, label, call.outcome === "completed" ? "call" : "failed");
  });
  const next = preview && link(NEXT, preview.tokens, `The next call: ${count(preview.tokens)} tokens of history`, NEXT);
  return el("nav", { class: "calls", "aria-label": "Model calls" },
    el("p", { class: "muted" }, calls.length ? `${counted(calls.length, "call")}, oldest first` : "No model has been called yet"),
    el("div", { class: "call-list" }, made, next));
}

/** The whole window as one bar, with a line at the token budget. */
export function windowBar({ sections, rest, budget, total }) {
  const sums = new Map(KINDS.map(([kind]) => [kind, 0]));
  for (const { kind, tokens } of sections) sums.set(kind, sums.get(kind) + (tokens ?? 0));
  sums.set("rest", Math.max(0, rest));
  const prompt = sums.get("system") + sums.get("tools");
  const line = budget === null ? null : prompt + budget;
  const scale = Math.max(total, line ?? 0) * (line === null ? 1 : 1.04);
  const parts = KINDS.filter(([kind]) => sums.get(kind) > 0).map(([kind, name]) =>
    el("div", { class: "part", data: { kind }, title: `${name}: ${count(sums.get(kind))} tokens`,
      style: { width: percent(sums.get(kind), scale) } }));
  const around = prompt ? `, and ${count(prompt)} before them` : "";
  const caption = budget === null ? `${count(total)} tokens; no budget is known`
    : `${count(total - prompt)} of ${count(budget)} tokens for messages${around}`;
  return el("figure", { class: "window" },
    el("figcaption", {}, caption),
    el("div", { class: "window-bar", role: "img", "aria-label": caption }, parts,
      line !== null && el("div", { class: "budget-line", style: { left: percent(line, scale) } })),
    line !== null && el("div", { class: "budget-label", "aria-hidden": "true", style: { "--at": percent(line, scale) } },
      `budget ${brief(budget)}`));
}

export function legend() {
  return el("ul", { class: "legend", "aria-label": "Colours" }, KINDS.map(([kind, name]) =>
    el("li", {}, el("span", { class: "swatch", data: { kind } }), name)));
}

/** A line for each part, in the model's order; left-out messages come before the sent ones. */
export function rowsOf({ sections, cut, rest }) {
  const isPrompt = ({ number }) => number === null;
  const rows = [
    ...sections.filter(isPrompt).map(promptRow),
    ...cut.map(cutRow),
    ...sections.filter((section) => !isPrompt(section)).map(messageRow),
    ...(rest > 0 ? [restRow(rest)] : []),
  ];
  // Sent parts set the scale; bars of left-out parts are clipped.
  const most = Math.max(1, ...rows.filter(({ kind }) => kind !== "cut").map(({ tokens }) => tokens ?? 0));
  return el("ol", { class: "sections" }, rows.map((row) => el("li", {}, drawn(row, most))));
}

function promptRow({ kind, text, characters, tokens, tools }) {
  const name = kind === "system" ? "Instruction" : "Tools";
  return { kind, number: "", name, tokens, line: kind === "tools" ? tools.join(", ") : text, text, characters };
}

function messageRow({ kind, role, author, number, text, characters, tokens, tools, shortened, retold, replaces }) {
  const marks = [replaces && `replaces ${replaces[0]}–${replaces[1]}`, shortened && "shortened", retold && "retold as the user’s words",
    role === "tool" && tools.length > 0 && `from ${tools.join(", ")}`].filter(Boolean);
  const name = role === "assistant" ? author || role : role;
  return { kind, number: `${number}`, name, tokens, line: [...marks, text].join(" · "), text, characters };
}

function cutRow({ first, last, messages, tokens, why, counted: isCounted }) {
  const number = first === null ? "?" : first === last ? `${first}` : `${first}–${last}`;
  const begins = isCounted ? " Where they begin was counted, not recorded." : "";
  return { kind: "cut", number, name: "left out", tokens, line: `${counted(messages, "message")}: ${WHY[why]}.${begins}` };
}

function restRow(tokens) {
  return { kind: "rest", number: "", name: "the rest", tokens, line: "shortened outputs, and what ADK added: not itemised" };
}

function drawn({ kind, number, name, tokens, line, text, characters }, most) {
  const cells = [
    el("span", { class: "number" }, number),
    el("span", { class: "name" }, name),
    el("span", { class: "tokens number" }, tokens === null ? "?" : count(tokens)),
    el("span", { class: "track" }, el("span", {
      class: "token-bar", data: { kind }, style: { width: percent(Math.min(tokens ?? 0, most), most) },
    })),
    el("span", { class: "line" }, kind === "cut" ? line : oneLine(line)),
  ];
  if (text === undefined) return el("div", { class: "section", data: { kind } }, cells);
  const left = characters - text.length;
  return el("details", { class: "section", data: { kind } }, el("summary", {}, cells),
    el("pre", { tabindex: "0" }, text),
    left > 0 && el("p", { class: "muted" }, `${count(left)} characters more are stored.`));
}
