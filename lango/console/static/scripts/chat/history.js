/** The history in pages: the newest first, older ones as the user scrolls up. */

import { api } from "../api.js";
import { el } from "../elements.js";

export const PAGE = 40;

/** Keep the end of a growing conversation visible while the user is at its end. */
export function stickToEnd(scroller, content) {
  const near = 80;
  let isAtEnd = true;
  const toEnd = () => { scroller.scrollTop = scroller.scrollHeight; };
  scroller.addEventListener("scroll", () => {
    isAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < near;
  }, { passive: true });
  const observer = new ResizeObserver(() => { if (isAtEnd) toEnd(); });
  observer.observe(content);
  observer.observe(scroller);
  return () => {
    isAtEnd = true;
    toEnd();
  };
}

export class History {
  #session;
  #conversation;
  #scroller;
  #signal;
  #before = null;
  #turnsBefore = null;
  #turns = new Map();
  #observer;
  #top = el("div", { class: "history-top" });

  constructor(session, conversation, scroller, signal) {
    this.#session = session;
    this.#conversation = conversation;
    this.#scroller = scroller;
    this.#signal = signal;
  }

  /** Show the newest page and the states of its turns; returns these turns, oldest first. */
  show(messages, turns) {
    this.#scroller.prepend(this.#top);
    this.#before = messages.before;
    this.#conversation.append(messages.messages);
    this.#know(turns);
    this.#observer = new IntersectionObserver(([top]) => top.isIntersecting && this.#showOlder(),
      { root: this.#scroller, rootMargin: "600px 0px 0px" });
    this.#observer.observe(this.#top);
    this.#signal.addEventListener("abort", () => this.#observer.disconnect());
    return turns.turns.toReversed();
  }

  /** Record and show a turn's state. */
  settle(turn, cancel) {
    this.#turns.set(turn.id, turn);
    if (this.#conversation.has(turn.id)) this.#conversation.settle(turn, cancel);
  }

  #know(page) {
    this.#turnsBefore = page.before;
    page.turns.forEach((turn) => this.settle(turn));
  }

  #isLoading = false;

  async #showOlder() {
    if (this.#isLoading || this.#before === null) return;
    this.#isLoading = true;
    this.#top.textContent = "Loading older messages…";
    try {
      const page = await api.messages(this.#session, { before: this.#before, limit: PAGE }, this.#signal);
      this.#before = page.before;
      this.#keepingPlace(() => this.#conversation.prepend(page.messages));
      await this.#settleOlder(page.messages);
      this.#top.textContent = "";
      this.#lookAgain();
    } catch (problem) {
      if (!this.#signal.aborted) this.#top.textContent = problem.message;
    } finally {
      this.#isLoading = false;
    }
  }

  /** Observe the top anew: the observer reports changes, and the top may have come into sight meanwhile. */
  #lookAgain() {
    this.#observer.unobserve(this.#top);
    if (!this.#signal.aborted) this.#observer.observe(this.#top);
  }

  /** Run `change`, and keep the scroll position when content is added above. */
  #keepingPlace(change) {
    const fromEnd = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    change();
    this.#scroller.scrollTop = this.#scroller.scrollHeight - fromEnd;
  }

  async #settleOlder(messages) {
    const wanted = new Set(messages.map((message) => message.turn));
    const isMissing = () => [...wanted].some((turn) => !this.#turns.has(turn));
    if (isMissing() && this.#turnsBefore !== null) {
      this.#know(await api.turns(this.#session, { before: this.#turnsBefore }, this.#signal));
    }
    for (const id of wanted) if (this.#turns.has(id)) this.settle(this.#turns.get(id));
  }
}
