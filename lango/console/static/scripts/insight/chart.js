/** Charts of usage, without a library. */

import { el, svg } from "../elements.js";
import { brief, count, dayName, money } from "../words.js";

const DAY = 24 * 60 * 60 * 1_000;
const HEIGHT = 100;
const BAR = 0.72;
const LABELS = 6;

/** Tokens per day, input below output; also as a table. */
export function dayChart(rows, since, days) {
  const byDay = new Map(rows.map((row) => [row.day, row]));
  const shown = Array.from({ length: days }, (_, index) => {
    const day = new Date(since.getTime() + index * DAY).toISOString().slice(0, 10);
    return byDay.get(day) ?? { day, input: 0, output: 0, calls: 0, cost: null };
  });
  const most = Math.max(1, ...shown.map(({ input, output }) => input + output));
  const bars = shown.map((row, index) => dayBars(row, index, most));
  const label = `Tokens a day, at most ${count(most)}`;
  const drawing = svg("svg", {
    viewBox: `0 0 ${days} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label,
  }, bars);
  return el("figure", { class: "chart" },
    el("figcaption", { class: "row between" }, el("span", {}, "Tokens a day"),
      el("span", { class: "legend" },
        el("span", {}, el("span", { class: "swatch", data: { kind: "input" } }), "in"),
        el("span", {}, el("span", { class: "swatch", data: { kind: "output" } }), "out"))),
    el("div", { class: "chart-area" }, el("span", { class: "chart-most" }, brief(most)), drawing),
    el("div", { class: "chart-days", "aria-hidden": "true" }, dayLabels(shown)),
    asTable(shown.filter(({ calls }) => calls > 0).toReversed()));
}

function dayBars({ day, input, output, calls, cost }, index, most) {
  const tall = (tokens) => (HEIGHT * tokens) / most;
  const rect = (kind, tokens, below) => svg("rect", {
    class: kind, x: index + (1 - BAR) / 2, width: BAR, height: tall(tokens), y: HEIGHT - tall(tokens) - tall(below),
  });
  const label = `${dayName(day)}: ${count(input)} in, ${count(output)} out, ${count(calls)} calls, ${money(cost)}`;
  return svg("g", {}, svg("title", {}, label),
    svg("rect", { class: "hit", x: index, width: 1, height: HEIGHT, y: 0 }),
    rect("input", input, 0), rect("output", output, input));
}

/** At most LABELS day names, always with the last day's. */
function dayLabels(shown) {
  const step = Math.ceil(shown.length / LABELS);
  const isNamed = (index) => (shown.length - 1 - index) % step === 0;
  const place = (index) => ({ left: `${(100 * (index + 0.5)) / shown.length}%` });
  return shown.flatMap(({ day }, index) => (isNamed(index) ? [el("span", { style: place(index) }, dayName(day))] : []));
}

function asTable(rows) {
  const head = ["Day", "Calls", "Turns", "In", "Out", "Cost"];
  const cells = (row) => [count(row.calls), count(row.turns), count(row.input), count(row.output), money(row.cost)];
  return el("details", { class: "as-table" }, el("summary", {}, "As a table"),
    el("table", {},
      el("thead", {}, el("tr", {}, head.map((name, index) => el("th", { scope: "col", class: index ? "number" : "" }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, dayName(row.day)),
        cells(row).map((cell) => el("td", { class: "number" }, cell)))))));
}

/** A table of tokens and cost per row, with bars relative to the largest. */
export function shares(title, by, rows) {
  const tokens = ({ input, output }) => input + output;
  const most = Math.max(1, ...rows.map(tokens));
  const line = (row) => el("tr", {},
    el("th", { scope: "row" }, row[by] || "–"),
    el("td", { class: "share" }, el("div", { class: "share-bar", style: { width: `${(100 * tokens(row)) / most}%` } })),
    el("td", { class: "number" }, brief(tokens(row))),
    el("td", { class: "number" }, money(row.cost)));
  const head = [title, "", "Tokens", "Cost"].map((name, index) =>
    el("th", { scope: "col", class: index > 1 ? "number" : "" }, name || el("span", { class: "visually-hidden" }, "Share")));
  const body = rows.length ? rows.map(line) : el("tr", {}, el("td", { colspan: "4", class: "muted" }, "Nothing yet."));
  return el("table", { class: "shares" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body));
}
