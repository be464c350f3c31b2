/** A turn in the conversation: its messages and its state. */

import { button, el, fill } from "./elements.js";
import { ApprovalView } from "./message_views.js";
import { to } from "./router.js";
import { between, brief, counted, duration, exactDate } from "./words.js";

const STANDING = {
  scheduled: "Scheduled",
  queued: "Queued",
  running: "Working",
  failed: "Failed",
  cancelled: "Stopped",
  input_required: "Waiting for an answer",
};

/** The section with the messages of one turn. */
export class TurnSection {
  #items = el("div", { class: "items" });
  #footer = el("footer", { class: "turn-end" });
  #notes = new Set();

  constructor(id) {
    this.id = id;
    this.node = el("section", { class: "turn", data: { turn: id } }, this.#items, this.#footer);
  }

  add(node) {
    this.#items.append(node);
  }

  /** A note between messages, shown once. */
  note(text) {
    if (this.#notes.has(text)) return;
    this.#notes.add(text);
    this.add(el("p", { class: "note" }, text));
  }

  /** Move all items to the beginning of an existing section of the same turn. */
  joinBefore(section) {
    section.querySelector(".items").prepend(...this.#items.childNodes);
    this.node.remove();
  }

  /** Show the turn's state. `cancel` cancels a queued turn. */
  settle(turn, cancel = null) {
    this.node.dataset.state = turn.state;
    fill(this.#footer, standing(turn), turn.state === "queued" && cancel
      && button("Cancel", cancel, { class: "link" }), facts(turn));
  }
}

function standing({ state, error, run_at: runAt }) {
  if (!(state in STANDING)) return null;
  const words = state === "scheduled" ? `Scheduled for ${exactDate(runAt)}` : STANDING[state];
  return el("span", { class: "standing", data: { state } }, words, error && `: ${error.message}`,
    error?.error_id && el("code", {}, ` ${error.error_id}`));
}

/** The turn's duration, tokens and attempts, as a link to its timeline. */
function facts({ id, session, started, ended, usage, attempts }) {
  const told = [
    started && ended && duration(between(started, ended)),
    usage && `${brief(usage.input + usage.output)} tokens`,
    attempts > 1 && counted(attempts, "attempt"),
  ].filter(Boolean);
  return el("a", { href: to.timeline(session, id), class: "facts" }, told.join(" · ") || "Timeline");
}

/** Reads the events of a turn into the conversation. */
export class TurnReader {
  #conversation;
  #section;
  #announcer;
  #answer;
  #turn;

  /** `answer(turn, approval, isApproved)` submits a decision; null if the user may not decide. */
  constructor(conversation, turn, { announcer, answer }) {
    this.#conversation = conversation;
    this.#turn = turn;
    this.#section = conversation.turn(turn.id);
    this.#announcer = announcer;
    this.#answer = answer;
    if (turn.message !== null) {
      conversation.message(`${turn.id}.user`, this.#section, "user").complete(turn.message, "user");
    }
  }

  /** Show one event; unknown types are ignored. */
  read(event) {
    this.#readers[event.type]?.(event);
  }

  #readers = {
    started: () => this.#section.settle({ ...this.#turn, state: "running" }),
    retrying: ({ why }) => this.#section.note(`Trying again: ${why}`),
    "agent.changed": ({ agent }) => this.#section.note(`Handed over to ${agent}`),
    "thought.delta": ({ message, text }) => this.#message(message).think(text),
    "message.delta": ({ message, text }) => {
      if (this.#message(message).add(text)) this.#announcer.hear(text);
    },
    "message.completed": ({ message, text, author }) => {
      this.#message(message, author).complete(text, author);
      this.#announcer.finish();
    },
    "message.reset": ({ message }) => this.#message(message).reset(),
    "tool.started": ({ call, name, arguments: given }) =>
      this.#conversation.tool(call, name, this.#section).started(given),
    "tool.finished": ({ call, name, result, error }) =>
      this.#conversation.toolOfResult(call, name, this.#section).finished(result, error),
    "approval.required": (event) => this.#ask(event),
    failed: ({ error }) => this.#announcer.finish(`Failed: ${error.message}`),
    cancelled: () => this.#announcer.finish("Stopped."),
  };

  #message(id, author) {
    return this.#conversation.message(id, this.#section, "assistant", author ?? this.#turn.app);
  }

  #ask(event) {
    const isAnswered = this.#turn.state === "input_required" && !this.#turn.waits_for.includes(event.approval);
    if (isAnswered) return;
    const tool = this.#conversation.toolOfResult(event.call, event.name, this.#section);
    tool.waits();
    const answer = this.#answer && (async (isApproved) => {
      const isTaken = await this.#answer(this.#turn, event.approval, isApproved);
      if (isTaken) tool.answered(isApproved);
      return isTaken;
    });
    this.#section.add(new ApprovalView(event, answer).node);
    this.#announcer.finish(`${event.name} waits for your approval.`);
  }
}
