/**
 * The messages and calls of a session in order, each identified by its id.
 * History and event logs overlap: a message or call that is already shown is not added again.
 */

import { el } from "./elements.js";
import { MessageView, ToolView } from "./message_views.js";
import { TurnSection } from "./turn_views.js";

/** ADK's internal calls, to ask a person or change agents: only their effects are shown. */
const INTERNAL = /^(adk_request_\w+|transfer_to_agent)$/;
const TRANSFER = "transfer_to_agent";

export class Conversation {
  node = el("div", { class: "conversation", role: "log", "aria-live": "off", "aria-label": "Conversation" });
  #messages = new Map();
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
    let view = this.#messages.get(id);
    if (!view) {
      view = new MessageView(role, author);
      this.#messages.set(id, view);
      section.add(view.node);
    }
    return view;
  }

  /** The call of this id in a turn, created at its first mention. */
  tool(call, name, section) {
    const key = `${section.id} ${call}`;
    let view = this.#tools.get(key);
    if (!view) {
      view = new ToolView(name);
      this.#tools.set(key, view);
      this.#newestTools.set(call, view);
      section.add(view.node);
    }
    return view;
  }

  /** The call of a result; it may belong to the turn that this turn answers. */
  toolOfResult(call, name, section) {
    const known = this.#tools.get(`${section.id} ${call}`) ?? this.#newestTools.get(call);
    return known ?? this.tool(call, name, section);
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
      this.message(message.id, section, message.role, message.author).complete(message.content, message.author);
    }
    for (const call of message.tool_calls) {
      if (call.name === TRANSFER && call.input) section.note(`Handed over to ${call.input.agent_name}`);
      else if (!INTERNAL.test(call.name)) this.#tellCall(call, section);
    }
  }

  #tellCall(call, section) {
    if ("input" in call) this.tool(call.id, call.name, section).started(call.input);
    if ("output" in call) {
      const { error } = call.output ?? {};
      this.toolOfResult(call.id, call.name, section).finished(call.output, error);
    }
  }
}
