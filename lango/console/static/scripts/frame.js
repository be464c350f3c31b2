/** The frame of every page: the bar, the recent sessions, notices, and announcements. */

import { hasKey } from "./access.js";
import { openHelp } from "./dialogs.js";
import { button, el, fill, symbol } from "./elements.js";
import { currentPath, to } from "./router.js";
import { UNKNOWN } from "./words.js";

const NOTICE_STAYS = 6_000;
const IS_WIDE = /^\/(sessions|usage)$/; // pages without the list of recent sessions
const SENTENCE = /[\s\S]*[.!?:\n](?=\s|$)/;

const PLACES = [
  { name: "Chat", address: to.newChat(), isHere: (path) => path === "/" || path.startsWith("/sessions/") },
  { name: "Sessions", address: to.sessions(), isHere: (path) => path === "/sessions" },
  { name: "Usage", address: to.usage(), isHere: (path) => path === "/usage" },
];

export class Frame {
  #places = el("nav", { class: "places", "aria-label": "Pages" });
  #who = el("span", { class: "who" });
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
    fill(this.#places, PLACES.map(({ name, address, isHere }) =>
      el("a", { href: address, "aria-current": isHere(path) ? "page" : null }, name)));
  }

  /** Show the signed-in user. */
  name({ user, tenant }) {
    this.#who.textContent = [user ?? UNKNOWN, tenant].filter(Boolean).join(" · ");
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
    document.title = title ? `${title} · lango` : "lango console";
    fill(this.#main, page);
    this.#main.removeAttribute("aria-busy");
    this.#main.inert = false;
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
    const said = el("p", { class: "notice", data: { kind } }, text);
    this.#notices.append(said);
    setTimeout(() => said.remove(), NOTICE_STAYS);
  }
}

/** Announces a growing text to screen readers, a sentence at a time. */
export class Announcer {
  node = el("div", { class: "visually-hidden", "aria-live": "polite" });
  #unsaid = "";

  hear(text) {
    this.#unsaid += text;
    const whole = SENTENCE.exec(this.#unsaid)?.[0] ?? "";
    if (whole) this.#say(whole);
    this.#unsaid = this.#unsaid.slice(whole.length);
  }

  /** Announce the rest, and then this text. */
  finish(text = "") {
    for (const said of [this.#unsaid, text]) if (said.trim()) this.#say(said);
    this.#unsaid = "";
  }

  #say(text) {
    this.node.append(el("p", {}, text.trim()));
    if (this.node.childElementCount > 20) this.node.firstElementChild.remove();
  }
}
