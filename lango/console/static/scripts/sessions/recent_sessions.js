/** The list beside the conversation: the last active sessions, or those found by title. */

import { api } from "../api.js";
import { el, fill } from "../elements.js";
import { currentPath, go, to } from "../router.js";
import { CHANGED, titleOf } from "./session_actions.js";
import { when } from "../words.js";

const SHOWN = 30;
const TYPING = 200;

export class RecentSessions {
  #search = el("input", { type: "search", placeholder: "Search sessions", "aria-label": "Search sessions" });
  #list = el("ul", { class: "recent" });
  #sessions = [];
  #asked = 0;

  constructor() {
    let timer = 0;
    this.#search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.refresh(), TYPING);
    });
    window.addEventListener(CHANGED, () => this.refresh());
    this.node = el("div", { class: "recent-sessions" },
      el("a", { href: to.newChat(), class: "button" }, "New chat"), this.#search, this.#list,
      el("a", { href: to.sessions(), class: "muted" }, "All sessions"));
  }

  /** Reload the list; keeps the old one if the request fails. */
  async refresh() {
    const asked = ++this.#asked;
    const page = await api.sessions({ q: this.#search.value, limit: SHOWN }).catch(() => null);
    if (!page || asked !== this.#asked) return;
    this.#sessions = page.sessions;
    this.mark();
  }

  /** Draw the list, with the open session marked. */
  mark() {
    const [, , open] = currentPath().split("/");
    fill(this.#list, this.#sessions.map((session) =>
      el("li", {}, el("a", { href: to.chat(session.id), "aria-current": session.id === open ? "page" : null },
        el("span", { class: "title" }, titleOf(session)),
        el("span", { class: "meta" }, session.app, el("span", {}, when(session.last_activity)))))));
  }

  clear() {
    this.#sessions = [];
    this.mark();
  }

  /** Focus the search; on a small screen, open the page of sessions. */
  focusSearch() {
    if (!this.node.offsetParent) return go(to.sessions());
    this.#search.focus();
    return this.#search.select();
  }
}
