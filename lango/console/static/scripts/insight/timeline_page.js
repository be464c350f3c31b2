/** A turn on a time axis: model calls, tool calls, retries and waits. */

import { api, pause } from "../api.js";
import { el, fill } from "../elements.js";
import { go, to } from "../router.js";
import { sessionHeader, tabTitle } from "../sessions/session_header.js";
import { statusMark } from "../sessions/sessions_page.js";
import { timelineDrawing } from "./timeline_drawing.js";
import { between, count, duration, exactDate, money, oneLine } from "../words.js";

const LOOK_AGAIN = 1_500;
const IS_MOVING = new Set(["queued", "running"]);

export async function timelinePage({ session: id, turn: asked }, { signal, frame }) {
  const [session, { turns }] = await Promise.all([api.session(id, signal), api.turns(id, {}, signal)]);
  const turn = asked ?? turns[0]?.id;
  const body = el("div", { class: "page" });
  const node = el("div", { class: "session-page" }, sessionHeader(session, "timeline", { frame, signal }), body);
  const title = tabTitle(session, "timeline");
  if (!turn) {
    body.append(el("p", { class: "muted empty" }, "This session has no turns yet."));
    return { title, node };
  }
  const figure = el("section", { "aria-label": "The timeline" });
  const show = (timeline) => fill(figure, summary(timeline), timelineDrawing(timeline));
  const first = await api.timeline(turn, signal);
  body.append(turnChoice(session, turns, turn), figure);
  show(first);
  if (IS_MOVING.has(first.state)) lookAgain(turn, show, signal);
  return { title, node };
}

async function lookAgain(turn, show, signal) {
  try {
    for (let timeline = null; !timeline || IS_MOVING.has(timeline.state);) {
      await pause(LOOK_AGAIN, signal);
      timeline = await api.timeline(turn, signal);
      show(timeline);
    }
  } catch {
    // The user left the page, or the server does not answer: keep what is shown.
  }
}

function turnChoice(session, turns, current) {
  const option = ({ id, number, message, state }) => el("option", { value: id, selected: id === current },
    `${number}. ${oneLine(message ?? "An answer to an approval", 60)} (${state})`);
  const known = turns.some(({ id }) => id === current);
  const choice = el("select", { on: { change: () => go(to.timeline(session.id, choice.value)) } },
    !known && el("option", { value: current, selected: true }, current), turns.map(option));
  return el("label", { class: "turn-choice" }, el("span", {}, "Turn"), choice);
}

function summary({ state, started, ended, usage, cost, steps, trace_id: trace, log_kept: isLogKept }) {
  const calls = steps.filter(({ kind }) => kind === "model").length;
  const tools = steps.filter(({ kind }) => kind === "tool").length;
  const facts = [
    ["State", statusMark(state)],
    ["Began", exactDate(started)],
    ["Took", duration(between(started, ended))],
    ["Model calls", count(calls)],
    ["Tool calls", count(tools)],
    ["Tokens", usage && `${count(usage.input)} in, ${count(usage.output)} out`],
    ["Cost", money(cost)],
    ["Trace", trace && el("code", {}, trace)],
  ];
  return [
    el("dl", { class: "facts-list" }, facts.filter(([, value]) => value)
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    !isLogKept && el("p", { class: "muted" }, "The log of this turn was dropped: tool calls are from the ledger alone."),
  ];
}
