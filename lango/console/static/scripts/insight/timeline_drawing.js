/** Steps of a turn as bars on an axis. */

import { el } from "../elements.js";
import { to } from "../router.js";
import { between, brief, duration, money, oneLine } from "../words.js";

const NAMES = { queue: "queued", attempt: "attempt", model: "model", retry: "retry", tool: "tool", wait: "approval" };
const IS_WORK = new Set(["model", "tool", "retry", "attempt"]);
const GAP_SHARE = 0.15; // of the busy time: longer idle gaps are drawn at this length
const TICKS = 6;
const LAST_TICK = 0.95; // of the axis: the label of a later one would overflow

/**
 * The position of a time on the axis, 0 to 1. Long idle times, as when a person takes days for an
 * approval, are drawn shorter: otherwise the work would shrink to a point.
 */
export class Axis {
  #pieces = [];

  constructor(from, until, work) {
    this.from = from;
    const busy = united(work, from, until);
    const worked = busy.reduce((sum, [start, end]) => sum + end - start, 0);
    const longest = worked > 0 ? worked * GAP_SHARE : Infinity;
    let at = from;
    for (const [start, end] of [...busy, [until, until]]) {
      if (start > at) this.#add(at, start, Math.min(start - at, longest));
      if (end > start) this.#add(start, end, end - start);
      at = end;
    }
    this.length = this.#pieces.reduce((sum, piece) => sum + piece.drawn, 0) || 1;
  }

  /** The parts that are drawn shortened. */
  get cuts() {
    return this.#pieces.filter(({ start, end, drawn }) => drawn < end - start);
  }

  at(time) {
    let drawn = 0;
    for (const piece of this.#pieces) {
      if (time < piece.end) {
        const share = Math.max(0, time - piece.start) / (piece.end - piece.start);
        return (drawn + share * piece.drawn) / this.length;
      }
      drawn += piece.drawn;
    }
    return drawn / this.length;
  }

  /** Round times since the start, in the parts that are not shortened. */
  get ticks() {
    const step = niceStep(this.length / TICKS);
    const ticks = [];
    for (const { start, end, drawn } of this.#pieces) {
      if (drawn < end - start) continue;
      const first = Math.ceil((start - this.from) / step) * step;
      for (let time = first; time <= end - this.from; time += step) ticks.push(time);
    }
    return [...new Set(ticks)];
  }

  #add(start, end, drawn) {
    this.#pieces.push({ start, end, drawn });
  }
}

function united(spans, from, until) {
  const sorted = spans.map(([start, end]) => [Math.max(start, from), Math.min(end, until)])
    .sort(([one], [other]) => one - other);
  const whole = [];
  for (const [start, end] of sorted) {
    const last = whole.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else whole.push([start, end]);
  }
  return whole;
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((each) => each * power).find((step) => step >= least);
}

export function timelineDrawing(timeline) {
  const now = Date.now();
  const spans = timeline.steps.map((step) => ({ step, start: Date.parse(step.started), end: step.ended ? Date.parse(step.ended) : now }));
  const from = Math.min(Date.parse(timeline.started), ...spans.map(({ start }) => start));
  const until = Math.max(timeline.ended ? Date.parse(timeline.ended) : now, ...spans.map(({ end }) => end));
  const work = spans.filter(({ step }) => IS_WORK.has(step.kind)).map(({ start, end }) => [start, end]);
  const axis = new Axis(from, until, work);
  const columns = ["What", "When", "Took", "Tokens", "Cost"];
  return el("table", { class: "timeline" },
    el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col", class: name === "When" ? "when" : "" },
      name === "When" ? axisOf(axis) : name)))),
    el("tbody", {}, spans.map((span) => row(span, axis, timeline))));
}

function axisOf(axis) {
  const place = (time) => ({ left: `${100 * axis.at(time)}%` });
  return [
    el("span", { class: "visually-hidden" }, "When"),
    el("div", { class: "axis", "aria-hidden": "true" },
      axis.ticks.filter((time) => axis.at(axis.from + time) < LAST_TICK).map((time) => el("span", { class: "tick", style: place(axis.from + time) }, duration(time))),
      axis.cuts.map(({ start, end }) => el("span", { class: "axis-cut", style: place((start + end) / 2),
        title: `${duration(end - start)} in which nothing ran` }, "⋯"))),
  ];
}

function row({ step, start, end }, axis, timeline) {
  const state = step.outcome || "";
  const left = axis.at(start);
  const width = axis.at(end) - left;
  const bar = el("div", { class: "step", data: { kind: step.kind, state }, style: { left: `${100 * left}%`, width: `${100 * width}%` } },
    step.first_byte && waiting(step, start, end));
  return el("tr", { data: { kind: step.kind, state } },
    el("th", { scope: "row" }, nameOf(step, timeline), remark(step)),
    el("td", { class: "when" }, el("div", { class: "step-track" }, bar,
      el("span", { class: "visually-hidden" }, `begins after ${duration(start - axis.from)}`))),
    el("td", { class: "number", data: { label: "Took" } }, duration(between(step.started, step.ended))),
    el("td", { class: "number", data: { label: "Tokens" } }, step.usage ? tokens(step.usage) : ""),
    el("td", { class: "number", data: { label: "Cost" } }, step.cost === null ? "" : money(step.cost)));
}

/** The part of a model call before its first byte. */
function waiting({ first_byte: first }, start, end) {
  const share = end > start ? (Date.parse(first) - start) / (end - start) : 0;
  return el("div", { class: "before-first", style: { width: `${100 * share}%` } });
}

const tokens = ({ input, output }) => `${brief(input)} → ${brief(output)}`;

function nameOf(step, { session }) {
  const kind = el("span", { class: "kind", data: { kind: step.kind } }, NAMES[step.kind] ?? step.kind);
  const name = step.name || (step.kind === "attempt" ? `${step.number}` : "");
  const shown = step.kind === "model" && step.id
    ? el("a", { href: to.context(session, step.id), title: "What it saw" }, name)
    : el("span", {}, name);
  return el("div", { class: "step-name" }, kind, shown, outcome(step));
}

function outcome({ kind, outcome: state, number }) {
  const isPlain = !state || state === "completed";
  const words = [kind === "model" && number > 1 ? `try ${number}` : "", isPlain ? "" : state].filter(Boolean);
  return words.length > 0 && el("span", { class: "outcome", data: { state } }, words.join(", "));
}

/** The error, with its id in the server's log; or the arguments of a tool. */
function remark({ error, arguments: given }) {
  if (error) {
    const message = [error.type, error.message].filter(Boolean).join(": ");
    return el("p", { class: "step-error" }, message, error.error_id && el("code", {}, ` ${error.error_id}`));
  }
  return given && given !== "{}" ? el("p", { class: "step-given" }, oneLine(given, 100)) : null;
}
