/** The work of the tenant now: queues, running turns, workers, failed turns, calls that wait. */

import { api, pause } from "../api.js";
import { confirmed } from "../dialogs.js";
import { button, el, fill } from "../elements.js";
import { to } from "../router.js";
import { attempt } from "../sessions/session_actions.js";
import { statusMark } from "../sessions/sessions_page.js";
import { between, count, counted, duration, exactDate, oneLine, UNKNOWN } from "../words.js";

const LOOK_AGAIN = 5_000;
const SECOND = 1_000;
const VERSION = 8; // characters of a fingerprint
const ARGUMENTS = 240;
const AGES = new Set(["queued_for", "seen", "silence"]); // differ in each answer

export async function operationsPage(_, { signal, me, frame }) {
  const { tenant } = await me;
  const board = new Board(frame, signal);
  await board.look();
  board.watch();
  const node = el("div", { class: "page operations" },
    el("header", { class: "row between" }, el("h1", {}, "Operations"), board.freshness),
    tenant && el("p", { class: "muted" }, "Tenant ", el("code", {}, tenant)),
    board.nodes);
  return { title: "Operations", node };
}

/** The parts of the page, each drawn again when its data changes. */
class Board {
  freshness = el("p", { class: "muted", role: "status" });
  #frame;
  #signal;
  #parts;

  constructor(frame, signal) {
    [this.#frame, this.#signal] = [frame, signal];
    this.#parts = [
      new Part("Now", api.workload, tiles),
      new Part("Waiting for an answer", api.approvals, waitingList),
      new Part("Failed in the last 24 hours", api.failures, (page) => failedList(page, (turn) => this.#retry(turn))),
      new Part("Open turns by agent", api.workload, queueTable),
      new Part("Running turns", api.workload, runningTable),
      new Part("Workers", api.workers, workerTable),
    ];
  }

  get nodes() {
    return this.#parts.map((part) => part.node);
  }

  /** Request all data once, each operation once. */
  async look() {
    const requests = new Map();
    for (const { read } of this.#parts) {
      if (!requests.has(read)) requests.set(read, read(this.#signal));
    }
    const answers = await Promise.all(requests.values());
    const byRequest = new Map([...requests.keys()].map((read, index) => [read, answers[index]]));
    for (const part of this.#parts) part.show(byRequest.get(part.read));
    this.freshness.textContent = "";
  }

  /** Look again while the page is visible; a passing problem keeps what was drawn. */
  async watch() {
    while (!this.#signal.aborted) {
      try {
        await pause(LOOK_AGAIN, this.#signal);
        if (!document.hidden) await this.look();
      } catch (problem) {
        if (this.#signal.aborted) return;
        this.freshness.textContent = `Not up to date: ${problem.message}`;
        if (!problem.isPassing) return;
      }
    }
  }

  async #retry(turn) {
    const what = `The agent ${turn.app} runs again, with its tools, as a new turn of ${turn.user}.`;
    if (!(await confirmed("Submit the message again?", what, "Retry"))) return;
    await attempt(this.#frame, async () => {
      const submitted = await api.retry(turn.turn);
      this.#frame.notice(`Submitted again: it is ${submitted.state}.`);
      await this.look();
      this.#frame.focus(); // the button is gone
    });
  }
}

/** A section. It is drawn again when its data has changed, and for its times unless its reader is in it. */
class Part {
  node;
  read;
  #body = el("div", {});
  #draw;
  #shown = "";

  constructor(name, read, draw) {
    [this.read, this.#draw] = [read, draw];
    this.node = el("section", { "aria-label": name }, el("h2", {}, name), this.#body);
  }

  show(data) {
    const text = JSON.stringify(data, (key, value) => (AGES.has(key) ? undefined : value));
    const isRead = this.#body.contains(document.activeElement) || !getSelection().isCollapsed;
    if (text === this.#shown && isRead) return;
    this.#shown = text;
    fill(this.#body, this.#draw(data));
  }
}

function tiles({ turns, oldest_queued: oldest, workers, held }) {
  const shown = [
    ["Queued", count(turns.queued), oldest && `the first for ${duration(between(oldest))}`],
    ["Running", count(turns.running)],
    ["Waiting for an answer", count(turns.input_required)],
    ["Scheduled", count(turns.scheduled)],
    ["Workers alive", count(workers.length)],
  ];
  return [
    held && el("p", { class: "problem" }, "The database is held: no turn runs until lango db release."),
    el("dl", { class: "tiles" }, shown.map(([name, value, more]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value, more && el("small", {}, more))))),
  ];
}

function queueTable({ apps }) {
  if (apps.length === 0) return nothing("No turn is open.");
  return table(["Agent", "Queued", "Oldest", "Running", "Waiting", "Scheduled"], apps.map((app) => [
    app.app, count(app.queued), app.queued_for === null ? UNKNOWN : duration(app.queued_for * SECOND),
    count(app.running), count(app.input_required), count(app.scheduled),
  ]));
}

function runningTable({ running }) {
  if (running.length === 0) return nothing("No turn runs.");
  return table(["Turn", "Agent", "User", "For"], running.map((turn) => [
    el("a", { href: to.timeline(turn.session, turn.turn) }, turn.turn), turn.app, turn.user,
    duration(between(turn.started)) + (turn.attempts > 1 ? `, ${counted(turn.attempts, "attempt")}` : ""),
  ]));
}

function workerTable({ workers }) {
  if (workers.length === 0) return nothing("No worker is registered: turns wait until one starts.");
  return table(["Worker", "State", "Heartbeat", "Turns", "Up for", "Agents and their versions"], workers.map((worker) => [
    worker.id, statusMark(worker.state), `${duration(worker.silence * SECOND)} ago`, count(worker.running),
    duration(between(worker.started)),
    Object.entries(worker.versions).map(([app, mark]) => `${app} ${mark.slice(0, VERSION)}`).join(", "),
  ]));
}

function failedList({ failures, more }, retry) {
  if (failures.length === 0) return nothing("No turn has failed.");
  return [
    el("ul", { class: "cases" }, failures.map((turn) => el("li", {},
      el("p", { class: "case-text" }, el("strong", {}, turn.error), " ", whyOf(turn)),
      el("p", { class: "row muted" }, facts(turn, turn.ended),
        turn.attempts > 1 && el("span", {}, counted(turn.attempts, "attempt")),
        el("a", { href: to.timeline(turn.session, turn.turn) }, "Timeline"), again(turn, retry))))),
    more && nothing("There are more: lango turns list --status failed"),
  ];
}

/** The cause for developers; of an error of lango, its message. */
function whyOf({ cause, message }) {
  if (!cause) return message;
  return [`${cause.type}: ${cause.message} `, cause.place && el("code", {}, cause.place)];
}

function again(turn, retry) {
  if (turn.retry) return el("a", { href: to.timeline(turn.session, turn.retry) }, "Retried");
  if (turn.is_answer) return el("span", {}, "An answer: its call waits again");
  return button("Retry", () => retry(turn), { "aria-label": `Retry the turn of ${turn.user} in ${turn.app}` });
}

function waitingList({ turns, more }) {
  if (turns.length === 0) return nothing("Nothing waits.");
  return [
    el("ul", { class: "cases" }, turns.map((turn) => el("li", {},
      turn.calls.map((call) => el("p", { class: "case-text" }, el("strong", {}, call.tool || "A call"), " ",
        call.arguments && el("code", {}, oneLine(call.arguments, ARGUMENTS)), " ", el("span", { class: "chip" }, kindOf(call)))),
      el("p", { class: "row muted" }, facts(turn, turn.since),
        el("a", { href: to.chat(turn.session) }, "Session"),
        el("a", { href: to.timeline(turn.session, turn.turn) }, "Timeline"))))),
    more && nothing("There are more: lango turns list --status input_required"),
  ];
}

function kindOf({ kind, credential }) {
  const names = { approval: "approval", credential: `credential: ${credential}`, result: "a later result" };
  return names[kind] ?? "its log was deleted";
}

function facts({ app, user }, time) {
  return [el("span", {}, app), el("span", {}, user),
    el("time", { datetime: time, title: exactDate(time) }, `${duration(between(time))} ago`)];
}

const nothing = (text) => el("p", { class: "muted" }, text);

function table(head, rows) {
  return el("div", { class: "wide-table", tabindex: "0", role: "group", "aria-label": head[0] }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first),
      rest.map((cell) => el("td", {}, cell)))))));
}
