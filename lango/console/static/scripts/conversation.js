/**
 * The messages and calls of a session in order, each known by its id.
 * History and event logs tell the same things, in part both: whoever comes second changes nothing.
 */

import { el } from "./elements.js";
import { MessageView, ToolView } from "./message_views.js";
import { TurnSection } from "./turn_views.js";

/** Calls by which ADK asks a person or changes agents: shown by what they lead to. */
const INTERNAL = /^(adk_request_\w+|transfer_to_agent)$/;
const TRANSFER = "transfer_to_agent";

export class Conversation {
  node = el("div", { class: "conversation", role: "log", "aria-live": "off", "aria-label": "Conversation" });
  #messages = new Map();
  #tools = new Map();
  #newestTools = new Map(); // by the id of the call alone, which an answer's turn knows it by
  #turns = new Map();

  /** The section of a turn: the newest there is, or a new one at the end. */
  turn(id) {
    return this.#turns.get(id) ?? this.#open(id, (node) => this.node.append(node));
  }

  has(turn) {
    return this.#turns.has(turn);
  }

  /** Messages of the history that follow what is shown. */
  append(messages) {
    for (const message of messages) this.#tell(message, this.#sectionAtEnd(message.turn));
  }

  /** Messages of the history that come before what is shown. */
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

  /** The message of this id; made where it is told first. */
  message(id, section, role, author) {
    let view = this.#messages.get(id);
    if (!view) {
      view = new MessageView(role, author);
      this.#messages.set(id, view);
      section.add(view.node);
    }
    return view;
  }

  /** The call of this id in a turn; made where it is told first. */
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

  /** The call that a result belongs to, which may be of the turn that this one answers. */
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

  /** A row of the history. */
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
