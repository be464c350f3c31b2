/** Pages by the part of the address behind #, and the end of each when the next one comes. */

/** Where each page is: links are made here, so that no page spells another's address. */
export const to = {
  newChat: () => "#/",
  sessions: () => "#/sessions",
  usage: () => "#/usage",
  chat: (session) => `#/sessions/${session}`,
  context: (session, call = "") => `#/sessions/${session}/context${call && `/${call}`}`,
  timeline: (session, turn = "") => `#/sessions/${session}/turns${turn && `/${turn}`}`,
};

/** The address as a path, without what is not one. */
export const currentPath = () => (location.hash.startsWith("#/") ? location.hash.slice(1) : "/");

export function go(address) {
  location.hash = address;
}

export class Router {
  #routes;
  #show;
  #leaving = new AbortController();

  /** `routes`: pairs of a pattern with named groups, and a page; `show` puts a page up. */
  constructor(routes, show) {
    this.#routes = routes;
    this.#show = show;
  }

  /** Put up the page of the current address; the one before is told by its signal. */
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

  /** End the page that is up, and show none. */
  close() {
    this.#leaving.abort();
  }
}
