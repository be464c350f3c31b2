/** All sessions: filter by title, agent, user, status and date; rename, export, delete. */

import { actingAs } from "../access.js";
import { api } from "../api.js";
import { button, el, fill } from "../elements.js";
import { to } from "../router.js";
import { CHANGED, remove, rename, save, titleOf } from "./session_actions.js";
import { brief, count, exactDate, when } from "../words.js";

const PAGE = 50;
const TYPING = 200;
const DAY = 24 * 60 * 60 * 1_000;
const STATUSES = ["running", "queued", "input_required", "failed", "completed", "cancelled", "scheduled"];

export async function sessionsPage(_, { signal, me, frame }) {
  const [agents, { scopes }] = await Promise.all([api.agents(signal), me]);
  const seesAll = scopes.includes("admin") && !actingAs();
  const filters = new Filters(agents, seesAll);
  const table = new SessionTable(filters, { signal, frame, seesAll });
  filters.onChange = () => table.load();
  window.addEventListener(CHANGED, () => table.load(), { signal });
  await table.load();
  const node = el("div", { class: "page" }, el("h1", {}, "Sessions"), filters.node, table.node);
  return { title: "Sessions", node, ready: () => filters.focus() };
}

class Filters {
  onChange = () => undefined;
  #inputs;
  #seesAll;

  constructor(agents, seesAll) {
    this.#seesAll = seesAll;
    this.#inputs = {
      q: el("input", { type: "search", placeholder: "Search titles" }),
      app: choice("Any agent", agents.map(({ app }) => app)),
      user: seesAll && el("input", { placeholder: "Any user" }),
      status: choice("Any status", STATUSES),
      since: el("input", { type: "date" }),
      until: el("input", { type: "date" }),
    };
    const { q, app, user, status, since, until } = this.#inputs;
    let timer = 0;
    const changedSoon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.onChange(), TYPING);
    };
    this.node = el("form", {
      class: "filters", role: "search", on: { input: changedSoon, submit: (event) => event.preventDefault() },
    }, named("Title", q, "grows"), named("Agent", app), user && named("User", user),
    named("Status", status), named("From", since), named("To", until));
  }

  focus() {
    this.#inputs.q.focus();
  }

  /** The query of the filters. The day of “to” is included. */
  get query() {
    const { q, app, user, status, since, until } = this.#inputs;
    const asked = user ? user.value.trim() : "";
    return {
      q: q.value.trim(), app: app.value, status: status.value, user: asked, everyone: this.#seesAll && !asked,
      since: startOf(since.value), until: startOf(until.value, DAY), limit: PAGE,
    };
  }
}

const choice = (any, values) =>
  el("select", {}, el("option", { value: "" }, any), values.map((value) => el("option", {}, value)));

const named = (name, input, kind = "") => el("label", { class: kind }, el("span", {}, name), input);

function startOf(day, later = 0) {
  return day && new Date(new Date(`${day}T00:00:00`).getTime() + later).toISOString();
}

class SessionTable {
  #filters;
  #signal;
  #frame;
  #seesAll;
  #rows = el("tbody");
  #more = el("p", { class: "row" });
  #empty = el("p", { class: "muted empty", hidden: true }, "No session is like that.");
  #next = null;
  #asked = 0;

  constructor(filters, { signal, frame, seesAll }) {
    [this.#filters, this.#signal, this.#frame, this.#seesAll] = [filters, signal, frame, seesAll];
    const head = ["Title", "Agent", seesAll && "User", "Status", "Messages", "Tokens", "Last active", ""]
      .filter((name) => name !== false)
      .map((name) => el("th", { scope: "col", class: /Messages|Tokens/.test(name) ? "number" : "" },
        name || el("span", { class: "visually-hidden" }, "Actions")));
    this.node = el("div", {},
      el("table", { class: "sessions" }, el("thead", {}, el("tr", {}, head)), this.#rows),
      this.#empty, this.#more);
  }

  /** Load the first page. */
  async load() {
    await this.#page(null, (rows) => fill(this.#rows, rows));
    this.#empty.hidden = this.#rows.childElementCount > 0;
  }

  async #page(cursor, put) {
    const asked = ++this.#asked;
    try {
      const page = await api.sessions({ ...this.#filters.query, cursor }, this.#signal);
      if (asked !== this.#asked) return;
      put(page.sessions.map((session) => this.#row(session)));
      this.#next = page.next;
      fill(this.#more, this.#next && button("Show more", () => this.#loadMore()));
    } catch (problem) {
      if (!this.#signal.aborted) this.#frame.notice(problem.message, "error");
    }
  }

  #loadMore() {
    return this.#page(this.#next, (rows) => this.#rows.append(...rows));
  }

  #row(session) {
    const cell = (label, content, kind = "") => el("td", { class: kind, data: { label } }, content);
    const act = (name, what) => button(name, () => what(session, this.#frame),
      { class: "link", "aria-label": `${name} ${titleOf(session)}` });
    return el("tr", {},
      el("th", { scope: "row" }, el("a", { href: to.chat(session.id) }, titleOf(session))),
      cell("Agent", session.app),
      this.#seesAll && cell("User", session.user),
      cell("Status", statusMark(session.status)),
      cell("Messages", count(session.messages), "number"),
      cell("Tokens", brief(session.tokens), "number"),
      cell("Last active", el("time", { datetime: session.last_activity, title: exactDate(session.last_activity) },
        when(session.last_activity))),
      cell("", [act("Rename", rename), act("Export", save), act("Delete", remove)], "actions"));
  }
}

/** A state as a coloured word. */
export const statusMark = (state) => (state ? el("span", { class: "state", data: { state } }, state.replace("_", " ")) : "–");
