/** The chat with an agent: a session and its turns, live. */

import { api } from "../api.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { el } from "../elements.js";
import { follow } from "./events.js";
import { Announcer } from "../frame.js";
import { History, PAGE, stickToEnd } from "./history.js";
import { go, to } from "../router.js";
import { sessionHeader, tabTitle } from "../sessions/session_header.js";
import { changed } from "../sessions/session_actions.js";
import { TurnReader } from "./turn_views.js";
import { oneLine } from "../words.js";

const TITLE_ROOM = 60;
const IS_OPEN = new Set(["queued", "running", "input_required"]);

let newTurn = null; // submitted by the page of a new chat: its answer was not announced yet

/** A new chat: the first message creates the session. */
export async function newChatPage(_, { signal, frame }) {
  const agents = await api.agents(signal);
  const choice = el("select", { "aria-label": "Agent" }, agents.map(({ app }) => el("option", {}, app)));
  const onSend = async (text) => {
    try {
      const session = await api.createSession(choice.value, oneLine(text, TITLE_ROOM));
      newTurn = (await api.submit(session.id, text)).id;
      changed();
      go(to.chat(session.id));
      return true;
    } catch (problem) {
      frame.notice(problem.message, "error");
      return false;
    }
  };
  const composer = new Composer({ onSend, onStop: () => undefined, before: choice });
  const hello = el("div", { class: "hello" },
    el("h1", {}, "New chat"),
    el("p", { class: "muted" }, "Whatever happens to this page, the connection or the server: ",
      "an accepted turn continues, and its answer is here when you come back."));
  const page = el("div", { class: "chat new" }, hello, composer.node);
  return { title: "New chat", node: page, ready: () => composer.focus() };
}

export async function chatPage({ session: id }, { signal, me, frame }) {
  // Load turns before messages: the turns' events deliver whatever comes after.
  const [session, turns, { user }] = await Promise.all([
    api.session(id, signal), api.turns(id, {}, signal), me,
  ]);
  const messages = await api.messages(id, { limit: PAGE }, signal);
  const chat = new Chat(session, { signal, frame, isMine: (session.user ?? user) === user });
  chat.show(messages, turns);
  const ready = () => {
    chat.announce(messages.messages.filter(({ turn, role }) => turn === newTurn && role === "assistant"));
    newTurn = null;
    chat.focus();
  };
  return { title: tabTitle(session, "chat"), node: chat.node, ready };
}

class Chat {
  #session;
  #signal;
  #frame;
  #isMine;
  #announcer = new Announcer();
  #conversation = new Conversation();
  #composer = null;
  #history;
  #toEnd;
  #waiting = []; // turns to follow, one stream at a time: browsers limit connections
  #current = null;

  constructor(session, { signal, frame, isMine }) {
    this.#session = session;
    this.#signal = signal;
    this.#frame = frame;
    this.#isMine = isMine;
    const scroller = el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Messages" },
      this.#conversation.node);
    this.#history = new History(session.id, this.#conversation, scroller, signal);
    this.#toEnd = stickToEnd(scroller, this.#conversation.node);
    this.node = el("div", { class: "chat" }, sessionHeader(session, "chat", { frame, signal }), scroller,
      this.#foot(), this.#announcer.node);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.#stop();
    }, { signal });
  }

  /** Show the newest messages, and follow the turns that have not ended. */
  show(messages, turns) {
    const oldestFirst = this.#history.show(messages, turns);
    oldestFirst.filter(({ state }) => IS_OPEN.has(state)).forEach((turn) => this.#watch(turn));
  }

  /** Announce messages of the history: those that came before the page could follow their turn. */
  announce(messages) {
    messages.forEach(({ id, content }) => this.#announcer.complete(id, content));
  }

  focus() {
    this.#composer?.focus();
  }

  #foot() {
    if (!this.#isMine) {
      return el("p", { class: "muted read-only" }, `This conversation is ${this.#session.user}’s: it can be read here.`);
    }
    this.#composer = new Composer({ onSend: (text) => this.#send(text), onStop: () => this.#stop() });
    return this.#composer.node;
  }

  async #send(text) {
    const turn = await this.#attempt(() => api.submit(this.#session.id, text, this.#signal));
    if (turn) {
      this.#watch(turn);
      this.#toEnd();
      if (!this.#session.title) changed();
    }
    return turn !== null;
  }

  async #stop() {
    if (this.#current) await this.#attempt(() => api.cancel(this.#current.id));
  }

  async #answer(turn, approval, isApproved) {
    const goesOn = await this.#attempt(() => api.answer(turn.id, approval, isApproved));
    if (!goesOn) return false;
    this.#watch(goesOn);
    this.#history.settle(await api.turn(turn.id, this.#signal));
    return true;
  }

  /** Run `act`; on an error, show a notice and return null. */
  async #attempt(act) {
    try {
      return await act();
    } catch (problem) {
      if (!this.#signal.aborted) this.#frame.notice(problem.message, "error");
      return null;
    }
  }

  #watch(turn) {
    const answer = this.#isMine ? (...given) => this.#answer(...given) : null;
    const reader = new TurnReader(this.#conversation, turn, { announcer: this.#announcer, answer });
    this.#history.settle(turn, () => this.#cancel(turn));
    this.#waiting.push({ turn, reader });
    if (!this.#current) this.#followAll();
  }

  async #cancel(turn) {
    const cancelled = await this.#attempt(() => api.cancel(turn.id));
    if (cancelled) this.#history.settle(cancelled);
  }

  async #followAll() {
    while (this.#waiting.length) {
      const { turn, reader } = this.#waiting.shift();
      this.#current = turn;
      this.#showRunning(turn.state !== "input_required");
      await this.#attempt(() => this.#follow(turn, reader));
      this.#current = null;
    }
    this.#showRunning(false);
  }

  async #follow(turn, reader) {
    for await (const event of follow(turn.id, this.#signal)) reader.read(event);
    this.#history.settle(await api.turn(turn.id, this.#signal));
    if (turn.state !== "input_required") changed();
  }

  #showRunning(isRunning) {
    if (this.#composer) this.#composer.isRunning = isRunning;
  }
}
