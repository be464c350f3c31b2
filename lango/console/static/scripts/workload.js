/** The current workload: waiting and running turns, and live workers. */

import { api, pause } from "./api.js";
import { el, fill } from "./elements.js";
import { to } from "./router.js";
import { between, count, counted, duration } from "./words.js";

const LOOK_AGAIN = 5_000;

/** A section that polls the workload while the page is visible. */
export function workload(signal) {
  const body = el("div", {});
  watch(body, signal);
  return el("section", { class: "workload", "aria-label": "Now" }, el("h2", {}, "Now"), body);
}

async function watch(body, signal) {
  while (!signal.aborted) {
    try {
      if (!document.hidden) fill(body, ...drawn(await api.workload(signal)));
      await pause(LOOK_AGAIN, signal);
    } catch (problem) {
      if (signal.aborted) return;
      fill(body, el("p", { class: "muted" }, problem.message));
      if (!problem.isPassing) return;
      await pause(LOOK_AGAIN, signal).catch(() => undefined);
    }
  }
}

function drawn({ turns, oldest_queued: oldest, running, workers }) {
  const tiles = [
    ["Queued", count(turns.queued), oldest && `the first for ${duration(between(oldest))}`],
    ["Running", count(turns.running)],
    ["Waiting for a person", count(turns.input_required)],
    ["Scheduled", count(turns.scheduled)],
    ["Workers alive", count(workers.length)],
  ];
  return [
    el("dl", { class: "tiles" }, tiles.map(([name, value, more]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value, more && el("small", {}, more))))),
    running.length > 0 && runningTable(running),
    workers.length > 0 && workerTable(workers),
  ];
}

function runningTable(running) {
  return listed(["Running turn", "Agent", "User", "For"], running.map((turn) => [
    el("a", { href: to.timeline(turn.session, turn.turn) }, turn.turn), turn.app, turn.user,
    duration(between(turn.started)) + (turn.attempts > 1 ? `, ${counted(turn.attempts, "attempt")}` : ""),
  ]));
}

function workerTable(workers) {
  return listed(["Worker", "Apps", "Turns", "Up for"], workers.map((worker) => [
    worker.id, worker.apps.join(", "), count(worker.running), duration(between(worker.started)),
  ]));
}

function listed(head, rows) {
  return el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first),
      rest.map((cell) => el("td", {}, cell))))));
}
