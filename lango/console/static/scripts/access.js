/**
 * Whose requests these are: a credential in this tab's storage, and nowhere else.
 * It may come in the address as `#key=…`, which no server sees, and is taken out of it at once.
 */

const STORED = "lango.access";
const NOBODY = { key: "", user: "" };

let access = read();

/** The headers that say who calls. */
export function credentials() {
  const headers = {};
  if (access.key) headers.Authorization = `Bearer ${access.key}`;
  if (access.user) headers["Lango-User"] = asHeader(access.user);
  return headers;
}

/** Whom the requests speak for, if the credential does not say it. */
export const actingAs = () => access.user;

export const hasKey = () => access.key !== "";

export function signIn(key, user = "") {
  access = { key, user };
  sessionStorage.setItem(STORED, JSON.stringify(access));
}

export function signOut() {
  access = NOBODY;
  sessionStorage.removeItem(STORED);
}

/** Take a key out of the address, if there is one. */
export function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("key")) return false;
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  signIn(given.get("key"), given.get("user") ?? "");
  return true;
}

function read() {
  try {
    return { ...NOBODY, ...JSON.parse(sessionStorage.getItem(STORED)) };
  } catch {
    return NOBODY;
  }
}

/** A header holds bytes: a name of any script is sent as its UTF-8. */
function asHeader(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
