/**
 * The messages and calls of a session in order, each identified by its id.
 * History and event logs overlap: a message or call that is already shown is not added again.
 */

import { el } from "../elements.js";
import { MessageView, PartView, ToolView } from "./message_views.js";
import { TurnSection } from "./turn_views.js";

/** ADK's internal calls, to ask a person or change agents: only their effects are shown. */
const INTERNAL = /^(adk_request_\w+|transfer_to_agent)$/;
const TRANSFER = "transfer_to_agent";

export class Conversation {
  node = el("div", { class: "conversation", role: "log", "aria-live": "off", "aria-label": "Conversation" });
  #messages = new Map();
  #parts = new Map();
  #tools = new Map();
  #newestTools = new Map(); // by call id alone: the turn of an answer refers to it so
  #turns = new Map();

  /** The section of a turn: the newest there is, or a new one at the end. */
  turn(id) {
    return this.#turns.get(id) ?? this.#open(id, (node) => this.node.append(node));
  }

  has(turn) {
    return this.#turns.has(turn);
  }

  /** Add messages of the history after those shown. */
  append(messages) {
    for (const message of messages) this.#tell(message, this.#sectionAtEnd(message.turn));
  }

  /** Add messages of the history before those shown. */
  prepend(messages) {
    const first = this.node.firstElementChild;
    const sections = [];
    for (const message of messages) {
      if (sections.at(-1)?.id !== message.turn) {
        const insert = (node) => this.node.insertBefore(node, first);
        sections.push(this.#open(message.turn, insert, { isOlder: true }));
      }
      this.#tell(message, sections.at(-1));
    }
    const last = sections.at(-1);
    if (last && first?.dataset.turn === last.id) last.joinBefore(first);
  }

  /** The message of this id, created at its first mention. */
  message(id, section, role, author) {
    const known = this.#messages.get(id);
    if (known) {
      section.pass(known.node);
      return known;
    }
    const view = new MessageView(role);
    this.#messages.set(id, view);
    section.add(view.node);
    view.name(author);
    return view;
  }

  /** Let a message be known by the id that the history has of it; the view of its deltas goes if both are shown. */
  storeAs(id, stored, section) {
    const [streamed, known] = [this.#messages.get(id), this.#messages.get(stored)];
    if (known && streamed && known !== streamed) section.drop(streamed.node, known.node);
    const view = known ?? streamed;
    if (view) {
      this.#messages.set(id, view);
      this.#messages.set(stored, view);
    }
  }

  /** The call of this id in a turn, created at its first mention. */
  tool(call, name, section) {
    const key = `${section.id} ${call}`;
    const known = this.#tools.get(key);
    if (known) {
      section.pass(known.node);
      return known;
    }
    const view = new ToolView(name);
    this.#tools.set(key, view);
    this.#newestTools.set(call, view);
    section.add(view.node);
    return view;
  }

  /** Code that a model ran, or its output; created at its first mention. */
  part(message, part, section) {
    const key = `${message} ${part.part} ${part.kind}`;
    const known = this.#parts.get(key);
    if (known) {
      section.pass(known.node);
      return;
    }
    const view = new PartView(part);
    this.#parts.set(key, view);
    section.add(view.node);
  }

  /** Show the result of a call. One that was delivered, or comes in a later turn than the call, is final. */
  finish({ call, name, result, error }, section, isDelivered = false) {
    const view = this.toolOfResult(call, name, section);
    const isLater = view !== this.#tools.get(`${section.id} ${call}`);
    view.finished(result, error, isDelivered || isLater);
  }

  /** The call of a result; it may belong to the turn that this turn answers. */
  toolOfResult(call, name, section) {
    return this.#knownTool(call, section.id) ?? this.tool(call, name, section);
  }

  /** Show a turn's state, and the calls whose results it waits for. */
  settle(turn, cancel = null) {
    const waitsFor = turn.state === "input_required" ? turn.waits_for : [];
    const tools = waitsFor.map((call) => this.#knownTool(call, turn.id)); // a person's question is none
    tools.forEach((tool) => tool?.works());
    const pending = tools.every(Boolean) ? tools.filter(({ state }) => state === "pending") : [];
    this.turn(turn.id).settle(turn, { cancel, pending: pending.map(({ name }) => name) });
  }

  #knownTool(call, turn) {
    return this.#tools.get(`${turn} ${call}`) ?? this.#newestTools.get(call);
  }

  #sectionAtEnd(turn) {
    const last = this.node.lastElementChild;
    if (last?.dataset.turn === turn) return this.#turns.get(turn);
    return this.#open(turn, (node) => this.node.append(node));
  }

  #open(id, insert, { isOlder = false } = {}) {
    const section = new TurnSection(id);
    if (!isOlder || !this.#turns.has(id)) this.#turns.set(id, section);
    insert(section.node);
    return section;
  }

  /** Show a row of the history. */
  #tell(message, section) {
    if (message.content) {
      this.message(message.id, section, message.role, message.author).complete(message.content);
    }
    for (const part of message.parts ?? []) this.part(message.id, part, section);
    for (const call of message.tool_calls) {
      if (call.name === TRANSFER && call.input) section.note(`Handed over to ${call.input.agent_name}`);
      else if (!INTERNAL.test(call.name)) this.#tellCall(call, section, message.author === "user");
    }
  }

  /** Show a call or its result; a user's message holds results that were delivered. */
  #tellCall(call, section, isDelivered) {
    if ("input" in call) this.tool(call.id, call.name, section).started(call.input);
    if ("output" in call) {
      const { error } = call.output ?? {};
      this.finish({ call: call.id, name: call.name, result: call.output, error }, section, isDelivered);
    }
  }
}
