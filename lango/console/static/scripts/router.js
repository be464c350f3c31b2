/** Pages by the URL fragment; a page ends when the next one opens. */

/** The addresses of all pages; every link is made here. */
export const to = {
  newChat: () => "#/",
  sessions: () => "#/sessions",
  memory: () => "#/memory",
  usage: () => "#/usage",
  operations: () => "#/operations",
  chat: (session) => `#/sessions/${session}`,
  context: (session, call = "") => `#/sessions/${session}/context${call && `/${call}`}`,
  timeline: (session, turn = "") => `#/sessions/${session}/turns${turn && `/${turn}`}`,
};

/** The path in the URL fragment; `/` if there is none. */
export const currentPath = () => (location.hash.startsWith("#/") ? location.hash.slice(1) : "/");

export function go(address) {
  location.hash = address;
}

export class Router {
  #routes;
  #show;
  #leaving = new AbortController();

  /** `routes`: pairs of a pattern with named groups and a page; `show` shows a page. */
  constructor(routes, show) {
    this.#routes = routes;
    this.#show = show;
  }

  /** Show the page of the current address; aborts the signal of the previous page. */
  open() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    const { signal } = this.#leaving;
    const path = currentPath();
    for (const [pattern, page] of this.#routes) {
      const found = pattern.exec(path);
      if (found) return this.#show(page, { ...found.groups }, signal);
    }
    return go(to.newChat());
  }

  /** End the current page, and show none. */
  close() {
    this.#leaving.abort();
  }
}
