/** Tokens and cost by day, app, agent, model and user. */

import { actingAs } from "../access.js";
import { api } from "../api.js";
import { dayChart, shares } from "./chart.js";
import { button, el, fill } from "../elements.js";
import { brief, count, money } from "../words.js";

const DAY = 24 * 60 * 60 * 1_000;
const RANGES = [7, 30, 90];
const BREAKDOWNS = [
  ["app", "By app"],
  ["agent", "By agent"],
  ["model", "By model"],
  ["user", "By user"],
];

export async function usagePage(_, { signal, me }) {
  const { scopes } = await me;
  const seesAll = scopes.includes("admin") && !actingAs();
  const report = el("div", { class: "report", "aria-live": "polite" });
  const choices = RANGES.map((days) => button(`${days} days`, () => show(days), { class: "choice" }));
  const show = async (days) => {
    choices.forEach((each, index) => each.setAttribute("aria-pressed", RANGES[index] === days));
    fill(report, ...(await reportOf(days, seesAll, signal)));
  };
  await show(30);
  const node = el("div", { class: "page" },
    el("header", { class: "row between" }, el("h1", {}, "Usage"),
      el("div", { class: "row", role: "group", "aria-label": "Range" }, choices)),
    report);
  return { title: "Usage", node };
}

async function reportOf(days, everyone, signal) {
  const until = new Date();
  const since = new Date(startOfDay(until).getTime() - (days - 1) * DAY);
  const asked = { since: since.toISOString(), until: until.toISOString(), everyone };
  const dimensions = BREAKDOWNS.filter(([by]) => by !== "user" || everyone);
  const [byDay, ...others] = await Promise.all([
    api.usage({ ...asked, by: "day" }, signal),
    ...dimensions.map(([by]) => api.usage({ ...asked, by }, signal)),
  ]);
  const breakdowns = dimensions.map(([by, name], index) => shares(name, by, others[index].rows));
  return [tiles(byDay.total), dayChart(byDay.rows, since, days), el("div", { class: "breakdowns" }, breakdowns)];
}

/** Days are in UTC, as in the API's answers. */
const startOfDay = (time) => new Date(`${time.toISOString().slice(0, 10)}T00:00:00Z`);

function tiles({ cost, input, output, cached, calls, turns, cut_off: cutOff }) {
  const shown = [
    ["Cost", money(cost)],
    ["Tokens in", brief(input)],
    ["of these cached", brief(cached)],
    ["Tokens out", brief(output)],
    ["Model calls", count(calls)],
    ["Turns", count(turns)],
    ...(cutOff ? [["Cut off, usage unknown", count(cutOff)]] : []),
  ];
  return el("dl", { class: "tiles" }, shown.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
