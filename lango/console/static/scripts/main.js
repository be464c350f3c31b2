/** The entry point: signs in and opens the page of the address. */

import { hasKey, signOut, takeKeyFromAddress } from "./access.js";
import { api, SIGNED_OUT } from "./api.js";
import { chatPage, newChatPage } from "./chat/chat_page.js";
import { contextPage } from "./insight/context_page.js";
import { button, el } from "./elements.js";
import { Frame } from "./frame.js";
import { operationsPage } from "./insight/operations_page.js";
import { memoryPage } from "./memory_page.js";
import { RecentSessions } from "./sessions/recent_sessions.js";
import { go, Router, to } from "./router.js";
import { sessionsPage } from "./sessions/sessions_page.js";
import { signInPage } from "./sign_in_page.js";
import { timelinePage } from "./insight/timeline_page.js";
import { usagePage } from "./insight/usage_page.js";

const SESSION = "^/sessions/(?<session>[\\w.-]+)";
const ROUTES = [
  [/^\/$/, newChatPage],
  [/^\/sessions$/, sessionsPage],
  [/^\/memory$/, memoryPage],
  [/^\/usage$/, usagePage],
  [/^\/operations$/, operationsPage],
  [new RegExp(`${SESSION}$`), chatPage],
  [new RegExp(`${SESSION}/context(/(?<call>[\\w.-]+))?$`), contextPage],
  [new RegExp(`${SESSION}/turns(/(?<turn>[\\w.-]+))?$`), timelinePage],
];

const recent = new RecentSessions();
const frame = new Frame({ onSignOut: leave, recent: recent.node });
const router = new Router(ROUTES, show);
let me = null;
let isLocked = false;

/** Start, or restart with another credential. */
function enter() {
  isLocked = false;
  me = api.me();
  me.then((who) => frame.name(who), () => undefined); // pages that await `me` report the error
  recent.refresh();
  router.open();
}

async function show(page, parameters, signal) {
  frame.mark();
  recent.mark();
  frame.wait();
  try {
    const { title, node, ready } = await page(parameters, { signal, me, frame });
    if (signal.aborted) return;
    frame.put(node, title);
    ready?.();
  } catch (problem) {
    if (signal.aborted || isLocked) return;
    frame.put(problemPage(problem));
  }
  frame.focus();
}

function problemPage(problem) {
  return el("div", { class: "problem-page", role: "alert" },
    el("h1", {}, "This page cannot be shown"),
    el("p", {}, problem.message),
    problem.errorId && el("p", {}, "The server’s log has it as ", el("code", {}, problem.errorId), "."),
    button("Try again", enter));
}

function lock(problem = "") {
  if (isLocked) return;
  isLocked = true;
  router.close();
  recent.clear();
  frame.lock(signInPage(enter, problem));
}

function leave() {
  signOut();
  go(to.newChat());
  lock();
}

window.addEventListener("hashchange", () => {
  if (takeKeyFromAddress()) enter();
  else if (!isLocked) router.open();
});
window.addEventListener(SIGNED_OUT, () => {
  const isRefused = hasKey();
  signOut();
  lock(isRefused ? "The server does not know this key: it may have expired or been revoked." : "");
});
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    recent.focusSearch();
  } else if (event.code === "KeyN" && event.altKey) {
    event.preventDefault();
    go(to.newChat());
  }
});

takeKeyFromAddress();
enter();
