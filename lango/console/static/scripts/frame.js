/** What stands around every page: the bar, the list of recent sessions, notices, what is read out. */

import { hasKey } from "./access.js";
import { openHelp } from "./dialogs.js";
import { button, el, fill, symbol } from "./elements.js";
import { currentPath, to } from "./router.js";
import { UNKNOWN } from "./words.js";

const NOTICE_STAYS = 6_000;
const IS_WIDE = /^\/(sessions|usage)$/; // the pages that have no list beside them
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

  /** Show where we are. */
  mark() {
    const path = currentPath();
    this.#leave.hidden = !hasKey();
    fill(this.#places, PLACES.map(({ name, address, isHere }) =>
      el("a", { href: address, "aria-current": isHere(path) ? "page" : null }, name)));
  }

  /** Show who is here. */
  name({ user, tenant }) {
    this.#who.textContent = [user ?? UNKNOWN, tenant].filter(Boolean).join(" · ");
  }

  /** The window without what is only for who is signed in. */
  lock(page) {
    document.body.dataset.page = "locked";
    this.#main.inert = false;
    this.#who.textContent = "";
    fill(this.#main, page);
  }

  /** Put a page up. */
  put(page, title) {
    document.body.dataset.page = IS_WIDE.test(currentPath()) ? "wide" : "talk";
    document.title = title ? `${title} · lango` : "lango console";
    fill(this.#main, page);
    this.#main.removeAttribute("aria-busy");
    this.#main.inert = false;
  }

  /** Until the next page is there, the old one is seen and not used: words would go astray. */
  wait() {
    this.#main.setAttribute("aria-busy", "true");
    this.#main.inert = true;
  }

  /** Bring the reader's place to the new page, if the page has taken it nowhere itself. */
  focus() {
    if (!this.#main.contains(document.activeElement)) this.#main.focus({ preventScroll: true });
  }

  /** Say something in passing. */
  notice(text, kind = "plain") {
    const said = el("p", { class: "notice", data: { kind } }, text);
    this.#notices.append(said);
    setTimeout(() => said.remove(), NOTICE_STAYS);
  }
}

/** Reads a growing text out, a sentence at a time: letters that trickle in cannot be listened to. */
export class Announcer {
  node = el("div", { class: "visually-hidden", "aria-live": "polite" });
  #unsaid = "";

  hear(text) {
    this.#unsaid += text;
    const whole = SENTENCE.exec(this.#unsaid)?.[0] ?? "";
    if (whole) this.#say(whole);
    this.#unsaid = this.#unsaid.slice(whole.length);
  }

  /** Say the rest, and then this. */
  finish(text = "") {
    for (const said of [this.#unsaid, text]) if (said.trim()) this.#say(said);
    this.#unsaid = "";
  }

  #say(text) {
    this.node.append(el("p", {}, text.trim()));
    if (this.node.childElementCount > 20) this.node.firstElementChild.remove();
  }
}
