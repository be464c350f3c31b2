/** The header of a session's pages: its title, its three views, its actions. */

import { api } from "../api.js";
import { button, el } from "../elements.js";
import { go, to } from "../router.js";
import { CHANGED, remove, rename, save, titleOf } from "./session_actions.js";

const VIEWS = [
  ["chat", "Chat", to.chat],
  ["context", "Context", to.context],
  ["timeline", "Timeline", to.timeline],
];

/** The title of the browser's tab for a view of a session. */
export function tabTitle(session, current) {
  const name = session.title || session.app;
  const [, face] = VIEWS.find(([view]) => view === current);
  return current === "chat" ? name : `${face} of ${name}`;
}

/** `signal` aborts when the page ends. */
export function sessionHeader(session, current, { frame, signal }) {
  const title = el("h1", {}, titleOf(session));
  const show = (newest) => {
    title.textContent = titleOf(Object.assign(session, newest));
    frame.entitle(tabTitle(session, current));
  };
  const renameIt = async () => {
    const renamed = await rename(session, frame);
    if (renamed && !signal.aborted) show(renamed);
  };
  // The server makes a title of the first message of a session that has none.
  window.addEventListener(CHANGED, async () => {
    const newest = session.title ? null : await api.session(session.id, signal).catch(() => null);
    if (newest && !signal.aborted) show(newest);
  }, { signal });
  const removeIt = async () => {
    if (await remove(session, frame)) go(to.sessions());
  };
  const views = VIEWS.map(([name, face, address]) =>
    el("a", { href: address(session.id), "aria-current": name === current ? "page" : null }, face));
  const menu = el("details", { class: "menu" },
    el("summary", { "aria-label": "Actions" }, el("span", { "aria-hidden": "true" }, "⋯")),
    el("div", { class: "menu-items" },
      button("Rename", renameIt), button("Export", () => save(session, frame)),
      button("Delete", removeIt, { class: "dangerous-text" })));
  closeOnLeaving(menu);
  return el("header", { class: "session-header" },
    el("div", { class: "session-name" }, title, el("span", { class: "chip" }, session.app)),
    el("nav", { class: "views", "aria-label": "Views of the session" }, views), menu);
}

/** Close a menu on a click of an item, on loss of focus, and on Escape. */
function closeOnLeaving(menu) {
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(event.relatedTarget)) menu.open = false;
  });
  menu.addEventListener("click", (event) => {
    if (event.target.closest("button")) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}
