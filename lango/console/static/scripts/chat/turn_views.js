/** A turn in the conversation: its messages and its state. */

import { button, el, fill } from "../elements.js";
import { ApprovalView, CredentialView } from "./message_views.js";
import { to } from "../router.js";
import { between, brief, counted, duration, exactDate } from "../words.js";

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
  #newest = null; // the newest item read: the next one comes after it

  constructor(id) {
    this.id = id;
    this.node = el("section", { class: "turn", data: { turn: id } }, this.#items, this.#footer);
  }

  /** Read the turn again from its beginning: items that are shown already keep their places. */
  rewind() {
    this.#newest = null;
  }

  /** Add an item after the newest one read. */
  add(node) {
    if (this.#newest) this.#newest.after(node);
    else this.#items.prepend(node);
    this.#newest = node;
  }

  /** Read an item that is shown already. Concurrent messages never move the place back. */
  pass(node) {
    const isLater = !this.#newest
      || this.#newest.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING;
    if (node.parentNode === this.#items && isLater) this.#newest = node;
  }

  /** Remove an item that another one shows too. */
  drop(node, other) {
    this.pass(other);
    if (this.#newest === node) this.#newest = other;
    node.remove();
  }

  /** Add a question to the user below all items, also those to come. */
  ask(node) {
    this.#items.append(node);
  }

  /** A note between messages; a repetition directly after the same note is not shown. */
  note(text) {
    const same = this.#sameNote(text);
    if (same) this.pass(same);
    else this.add(el("p", { class: "note" }, text));
  }

  /** The same note, if it is the newest visible item or one of the notes that follow directly. */
  #sameNote(text) {
    let before = this.#newest;
    while (before?.hidden) before = before.previousElementSibling;
    if (before?.matches(".note") && before.textContent === text) return before;
    let next = this.#newest ? this.#newest.nextElementSibling : this.#items.firstElementChild;
    while (next?.matches(".note") && next.textContent !== text) next = next.nextElementSibling;
    return next?.matches(".note") ? next : null;
  }

  /** Move all items to the beginning of an existing section of the same turn. */
  joinBefore(section) {
    section.querySelector(".items").prepend(...this.#items.childNodes);
    this.node.remove();
  }

  /** Show the turn's state. `cancel` cancels a queued turn; `pending` names tools with a later result. */
  settle(turn, { cancel = null, pending = [] } = {}) {
    this.node.dataset.state = turn.state;
    fill(this.#footer, pending.length ? awaiting(pending) : standing(turn), turn.state === "queued" && cancel
      && button("Cancel", cancel, { class: "link" }), facts(turn));
  }
}

function standing({ state, error, run_at: runAt }) {
  if (!(state in STANDING)) return null;
  const words = state === "scheduled" ? `Scheduled for ${exactDate(runAt)}` : STANDING[state];
  return el("span", { class: "standing", data: { state } }, words, error && `: ${error.message}`,
    error?.error_id && el("code", {}, ` ${error.error_id}`));
}

/** The state of a turn that waits only for tools: no person can answer it here. */
function awaiting(pending) {
  return el("span", { class: "standing", data: { state: "pending" } },
    `Waiting for the ${pending.length === 1 ? "result" : "results"} of ${[...new Set(pending)].join(", ")}`);
}

/** The turn's duration, tokens and attempts, as a link to its timeline. */
function facts({ id, session, started, ended, usage, attempts }) {
  const parts = [
    started && ended && duration(between(started, ended)),
    usage && `${brief(usage.input + usage.output)} tokens`,
    attempts > 1 && counted(attempts, "attempt"),
  ].filter(Boolean);
  return el("a", { href: to.timeline(session, id), class: "facts" }, parts.join(" · ") || "Timeline");
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
    this.#section.rewind();
    this.#announcer = announcer;
    this.#answer = answer;
    if (turn.message !== null) {
      conversation.message(`${turn.id}.user`, this.#section, "user", "user").complete(turn.message);
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
    "thought.delta": ({ message, text, author }) => this.#message(message, author).think(text),
    "message.delta": ({ message, text, author }) => {
      if (this.#message(message, author).add(text)) this.#announcer.hear(message, text);
    },
    "message.completed": ({ message, text, author, event: stored }) => {
      if (stored) this.#conversation.storeAs(message, stored, this.#section);
      if (this.#message(message, author).complete(text)) this.#announcer.complete(message, text);
    },
    "message.part": (part) => this.#conversation.part(part.event ?? part.message, part, this.#section),
    "message.reset": ({ message }) => {
      this.#message(message).reset();
      this.#announcer.drop(message);
    },
    "tool.started": ({ call, name, arguments: given }) =>
      this.#conversation.tool(call, name, this.#section).started(given),
    "tool.progress": (event) =>
      this.#conversation.toolOfResult(event.call, event.name, this.#section).reports(event),
    "tool.finished": (event) => this.#conversation.finish(event, this.#section),
    "approval.required": (event) => this.#ask(event),
    "credential.required": (event) => this.#connect(event),
    completed: () => this.#announcer.finish(),
    input_required: () => this.#announcer.finish(),
    failed: ({ error }) => this.#announcer.finish(`Failed: ${error.message}`),
    cancelled: () => this.#announcer.finish("Stopped."),
  };

  /** The message of an event; older logs name its author only at its end. */
  #message(id, author) {
    const view = this.#conversation.message(id, this.#section, "assistant", this.#turn.app);
    if (author) view.name(author);
    return view;
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
    this.#section.ask(new ApprovalView(event, answer).node);
    this.#announcer.say(`${event.name} waits for your approval.`);
  }

  #connect(event) {
    const isAnswered = this.#turn.state !== "input_required" && this.#turn.ended
      || this.#turn.state === "input_required" && !this.#turn.waits_for.includes(event.credential);
    if (isAnswered) return;
    this.#section.ask(new CredentialView(event).node);
    this.#announcer.say(`${event.name} needs a credential of yours.`);
  }
}
