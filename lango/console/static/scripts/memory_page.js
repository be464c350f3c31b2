/** A user's memory of an agent: list, search, delete one entry or all. */

import { actingAs } from "./access.js";
import { api } from "./api.js";
import { confirmed } from "./dialogs.js";
import { button, el, fill } from "./elements.js";
import { to } from "./router.js";
import { attempt } from "./sessions/session_actions.js";
import { exactDate, oneLine, when } from "./words.js";

const PAGE = 50;
const TYPING = 200;
const SHORT = 500; // characters that are shown of a long text until it is unfolded

export async function memoryPage(_, { signal, me, frame }) {
  const [agents, { scopes, user }] = await Promise.all([api.agents(signal), me]);
  const seesAll = scopes.includes("admin") && !actingAs();
  const search = new Search(agents, seesAll, user ?? "");
  const list = new MemoryList(search, { signal, frame });
  search.onChange = () => list.load();
  await list.load();
  const node = el("div", { class: "page" },
    el("header", { class: "row between" }, el("h1", {}, "Memory"), list.deleteAll),
    el("p", { class: "muted" }, "What agents find of earlier conversations. Sessions keep their messages when you delete entries here."),
    search.node, list.node);
  return { title: "Memory", node, ready: () => search.focus() };
}

class Search {
  onChange = () => undefined;
  #words = el("input", { type: "search", placeholder: "Search by words" });
  #app;
  #user;

  constructor(agents, seesAll, user) {
    this.#app = el("select", {}, agents.map(({ app }) => el("option", {}, app)));
    this.#user = el("input", { value: user, placeholder: "The user’s id" });
    let timer = 0;
    const changedSoon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.onChange(), TYPING);
    };
    const named = (name, input, kind = "") => el("label", { class: kind }, el("span", {}, name), input);
    this.node = el("form", {
      class: "filters", role: "search", on: { input: changedSoon, submit: (event) => event.preventDefault() },
    }, named("Words", this.#words, "grows"), named("Agent", this.#app), seesAll && named("User", this.#user));
  }

  focus() {
    this.#words.focus();
  }

  get words() {
    return this.#words.value.trim();
  }

  /** Whose memory it is: the names of the agent and the user. */
  get owner() {
    return { app: this.#app.value, user: this.#user.value.trim() };
  }
}

class MemoryList {
  node;
  deleteAll = button("Delete all", () => this.#removeAll());
  #search;
  #signal;
  #frame;
  #entries = el("ul", { class: "memories", "aria-label": "Entries" });
  #empty = el("p", { class: "muted empty", role: "status" });
  #more = el("p", { class: "row" });
  #asked = 0;

  constructor(search, { signal, frame }) {
    [this.#search, this.#signal, this.#frame] = [search, signal, frame];
    this.node = el("div", {}, this.#entries, this.#empty, this.#more);
  }

  /** Load the first page. */
  async load() {
    const { app, user } = this.#search.owner;
    if (app && user) await this.#page(null, (entries) => fill(this.#entries, entries));
    else this.#show([], null, (entries) => fill(this.#entries, entries));
  }

  async #page(after, put) {
    const asked = ++this.#asked;
    const { owner, words } = this.#search;
    try {
      const page = await api.memory({ ...owner, query: words, after, limit: PAGE }, this.#signal);
      if (asked === this.#asked) this.#show(page.entries, page.next, put);
    } catch (problem) {
      if (!this.#signal.aborted) this.#frame.notice(problem.message, "error");
    }
  }

  #show(entries, next, put) {
    put(entries.map((entry) => this.#item(entry)));
    fill(this.#more, next !== null && button("Show more", () =>
      this.#page(next, (items) => this.#entries.append(...items))));
    this.#mark();
  }

  /** Say why the list is empty, if it is. */
  #mark() {
    const isEmpty = this.#entries.childElementCount === 0;
    this.deleteAll.disabled = isEmpty;
    this.#empty.textContent = isEmpty ? this.#reason() : "";
  }

  #reason() {
    const { owner, words } = this.#search;
    if (!owner.app) return "No agents are served here.";
    if (!owner.user) return "Write whose memory to show.";
    if (words) return "No entry has any of these words.";
    return "Nothing yet. With memory: true in lango.yaml, an agent remembers the messages of its turns.";
  }

  #item(entry) {
    const item = el("li");
    const remove = button("Delete", () => this.#remove(entry, item),
      { class: "link", "aria-label": `Delete ${oneLine(entry.text, 60)}` });
    const session = entry.session
      ? el("a", { href: to.chat(entry.session) }, "Session")
      : entry.alias && el("span", {}, entry.alias);
    return fill(item, textOf(entry.text), el("p", { class: "row muted" },
      el("span", {}, entry.author || entry.role),
      el("time", { datetime: entry.at, title: exactDate(entry.at) }, when(entry.at)),
      session, remove));
  }

  async #remove(entry, item) {
    const what = `“${oneLine(entry.text, 120)}”. Agents will not find it again.`;
    if (!(await confirmed("Delete the entry?", what, "Delete"))) return;
    await attempt(this.#frame, async () => {
      await api.deleteMemory(entry.id);
      const next = item.nextElementSibling ?? item.previousElementSibling;
      item.remove();
      this.#mark();
      if (next) next.querySelector("button.link").focus();
      else this.#search.focus();
    });
  }

  async #removeAll() {
    const { owner } = this.#search;
    const what = `Everything that ${owner.app} remembers of ${owner.user}, also what this search does not show.`;
    if (!(await confirmed("Delete the whole memory?", what, "Delete all"))) return;
    await attempt(this.#frame, async () => {
      await api.deleteAllMemory(owner);
      await this.load();
      this.#search.focus();
    });
  }
}

/** A text; a long one unfolds. */
function textOf(text) {
  if (text.length <= SHORT) return el("p", { class: "memory-text" }, text);
  const shown = el("p", { class: "memory-text" }, `${text.slice(0, SHORT)}… `);
  shown.append(button("Show all", () => fill(shown, text), { class: "link" }));
  return shown;
}
