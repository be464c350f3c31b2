/** The frame of every page: the bar, the recent sessions, notices, and announcements. */

import { actingAs, hasKey } from "./access.js";
import { openHelp } from "./dialogs.js";
import { button, el, fill, symbol } from "./elements.js";
import { currentPath, to } from "./router.js";
import { UNKNOWN } from "./words.js";

const NOTICE_STAYS = 6_000;
const IS_WIDE = /^\/(sessions|memory|usage|operations)$/; // pages without the list of recent sessions
const SENTENCE = /[\s\S]*[.!?:\n](?=\s|$)/;

const PLACES = [
  { name: "Chat", address: to.newChat(), isHere: (path) => path === "/" || path.startsWith("/sessions/") },
  { name: "Sessions", address: to.sessions(), isHere: (path) => path === "/sessions" },
  { name: "Memory", address: to.memory(), isHere: (path) => path === "/memory" },
  { name: "Usage", address: to.usage(), isHere: (path) => path === "/usage" },
  { name: "Operations", address: to.operations(), isHere: (path) => path === "/operations", isForAdmins: true },
];

export class Frame {
  #places = el("nav", { class: "places", "aria-label": "Pages" });
  #who = el("span", { class: "who" });
  #isAdmin = false;
  #leave;
  #aside = el("aside", { "aria-label": "Recent sessions" });
  #main = el("main", { id: "main", tabindex: "-1" });
  #notices = el("div", { class: "notices", role: "status" });

  constructor({ onSignOut, recent }) {
    this.#leave = button("Sign out", onSignOut, { class: "quiet" });
    this.#aside.append(recent);
    const skip = button("Skip to the page", () => this.#main.focus(), { class: "skip" });
    const help = button(symbol("?"), openHelp, { class: "quiet round", "aria-label": "Shortcuts" });
    const brand = el("a", { class: "brand", href: to.newChat() }, el("img", { src: "icon.svg", alt: "" }), "lango");
    const bar = el("header", { class: "bar" }, brand, this.#places, this.#who, help, this.#leave);
    document.body.append(skip, bar, this.#aside, this.#main, this.#notices);
  }

  /** Mark the current page in the navigation. */
  mark() {
    const path = currentPath();
    this.#leave.hidden = !hasKey();
    const places = PLACES.filter(({ isForAdmins }) => this.#isAdmin || !isForAdmins);
    fill(this.#places, places.map(({ name, address, isHere }) =>
      el("a", { href: address, "aria-current": isHere(path) ? "page" : null }, name)));
  }

  /** Show the signed-in user, and the pages that this user may see. */
  name({ user, tenant, scopes }) {
    this.#who.textContent = [user ?? UNKNOWN, tenant].filter(Boolean).join(" · ");
    this.#isAdmin = scopes.includes("admin") && !actingAs();
    this.mark();
  }

  /** Show only this page, for a user who is not signed in. */
  lock(page) {
    document.body.dataset.page = "locked";
    this.#main.inert = false;
    this.#who.textContent = "";
    fill(this.#main, page);
  }

  /** Show a page. */
  put(page, title) {
    document.body.dataset.page = IS_WIDE.test(currentPath()) ? "wide" : "talk";
    this.entitle(title);
    fill(this.#main, page);
    this.#main.removeAttribute("aria-busy");
    this.#main.inert = false;
  }

  /** Set the title of the browser's tab. */
  entitle(title) {
    document.title = title ? `${title} · lango` : "lango console";
  }

  /** Keep the old page visible but inert until the next is ready: typed text would be lost. */
  wait() {
    this.#main.setAttribute("aria-busy", "true");
    this.#main.inert = true;
  }

  /** Focus the new page, unless the page has set the focus itself. */
  focus() {
    if (!this.#main.contains(document.activeElement)) this.#main.focus({ preventScroll: true });
  }

  /** Show a notice for a few seconds. */
  notice(text, kind = "plain") {
    const notice = el("p", { class: "notice", data: { kind } }, text);
    this.#notices.append(notice);
    setTimeout(() => notice.remove(), NOTICE_STAYS);
  }
}

/** Announces growing messages to screen readers, a sentence at a time and one message after the other. */
export class Announcer {
  node = el("div", { class: "visually-hidden", "aria-live": "polite" });
  #pending = new Map(); // texts by message, in the order of their beginnings
  #complete = new Set();

  /** More text of a message; it waits while an earlier message is incomplete. */
  hear(message, text) {
    this.#pending.set(message, (this.#pending.get(message) ?? "") + text);
    this.#announce();
  }

  /** The message is complete; `text` is announced if none of it was heard. */
  complete(message, text) {
    if (!this.#pending.has(message)) this.#pending.set(message, text);
    this.#complete.add(message);
    this.#announce();
  }

  /** Forget a message that will not be completed. */
  drop(message) {
    this.#pending.delete(message);
    this.#announce();
  }

  /** Announce the rest of all messages, and then this text. */
  finish(text = "") {
    for (const rest of [...this.#pending.values(), text]) this.say(rest);
    this.#pending.clear();
    this.#complete.clear();
  }

  #announce() {
    for (const [message, text] of this.#pending) {
      const isComplete = this.#complete.delete(message);
      const part = isComplete ? text : SENTENCE.exec(text)?.[0] ?? "";
      this.say(part);
      this.#pending.set(message, text.slice(part.length));
      if (!isComplete) return;
      this.#pending.delete(message);
    }
  }

  /** Announce a text now. */
  say(text) {
    if (!text.trim()) return;
    this.node.append(el("p", {}, text.trim()));
    if (this.node.childElementCount > 20) this.node.firstElementChild.remove();
  }
}
