/** What the model saw at each call of a session, and would see at the next. */

import { api } from "../api.js";
import { callStrip, legend, rowsOf, windowBar } from "./context_drawing.js";
import { el } from "../elements.js";
import { to } from "../router.js";
import { sessionHeader, tabTitle } from "../sessions/session_header.js";
import { between, count, counted, duration, exactDate, money } from "../words.js";

const NEXT = "next";
const KNOWN = {
  exact: null,
  ends: "Only the oldest and the newest of these messages are certain; what was sent between them is not recorded.",
  unknown: "Which of the stored messages were sent is not recorded.",
};

export async function contextPage({ session: id, call = "" }, { signal, frame }) {
  const [session, newest] = await Promise.all([api.session(id, signal), api.context(id, "", signal)]);
  const isOther = call && call !== NEXT && call !== newest.call?.call;
  const shown = isOther ? await api.context(id, call, signal) : newest;
  const picture = call === NEXT || !newest.call ? ofPreview(newest.preview) : ofCall(shown.call);
  const calls = [...newest.earlier.toReversed(), ...(newest.call ? [listed(newest.call)] : [])];
  const strip = callStrip(calls, newest.preview, picture.id, (each) => to.context(id, each));
  const node = el("div", { class: "session-page" },
    sessionHeader(session, "context", { frame, signal }),
    el("div", { class: "page" }, strip, drawing(picture, session)));
  return { title: tabTitle(session, "context"), node };
}

/** The newest call in the form of the earlier ones. */
const listed = ({ call, kind, attempt, cut, messages_sent: sent }) => ({
  call,
  kind,
  started: attempt.started,
  estimated: attempt.estimated,
  outcome: attempt.outcome,
  messages_sent: sent,
  left_out: cut.reduce((sum, each) => sum + each.messages, 0),
});

function ofCall(view) {
  return {
    id: view.call,
    heading: `${view.attempt.provider}:${view.attempt.model}`,
    facts: factsOf(view),
    note: KNOWN[view.messages_known],
    sections: view.sections,
    cut: view.cut,
    rest: view.rest,
    budget: view.budget,
    turn: view.turn,
    total: view.attempt.estimated,
  };
}

function ofPreview({ budget, tokens, sections, cut, problem }) {
  return {
    id: NEXT,
    heading: "The next call",
    facts: [["History", `${count(tokens)} tokens`], ["Messages", count(sections.length)]],
    note: problem ? `There would be no call: ${problem}`
      : "A preview, going by the newest call: the next message, another agent or another model can change it.",
    sections,
    cut,
    rest: 0,
    budget,
    total: tokens,
  };
}

const WORDS = { started: "under way", cut_off: "cut off with its worker" };

function factsOf({ attempt, attempts, agent, messages_sent: sent }) {
  const { usage } = attempt;
  return [
    ["Agent", agent],
    ["When", `${exactDate(attempt.started)}, ${duration(between(attempt.started, attempt.ended))}`],
    ["Messages", count(sent)],
    ["Estimated", `${count(attempt.estimated)} tokens`],
    ["Reported", usage ? `${count(usage.input)} in, ${count(usage.output)} out` : "not"],
    ["Cached", usage?.cached ? `${count(usage.cached)} tokens` : ""],
    ["Cost", attempt.cost === null ? "" : money(attempt.cost)],
    ["Outcome", attempt.outcome === "completed" ? "" : `${WORDS[attempt.outcome] ?? attempt.outcome} ${attempt.error}`],
    ["Attempts", attempts.length > 1 ? counted(attempts.length, "attempt") : ""],
  ].filter(([, value]) => value);
}

function drawing(picture, session) {
  const facts = picture.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  return el("section", { class: "context", "aria-label": "The context window" },
    el("header", { class: "row between" },
      el("h2", {}, picture.heading),
      picture.turn && el("a", { class: "muted", href: to.timeline(session.id, picture.turn) }, "Timeline of its turn")),
    el("dl", { class: "facts-list" }, facts),
    picture.note && el("p", { class: "muted" }, picture.note),
    windowBar(picture), legend(), rowsOf(picture));
}
