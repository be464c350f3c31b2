/**
 * The credential of the requests, stored in this tab's session storage only.
 * The address may pass it as `#key=…`, which browsers send to no server; it is removed at once.
 */

const STORED = "lango.access";
const SIGNED_OUT = { key: "", user: "" };

let access = read();

/** The headers that identify the caller. */
export function credentials() {
  const headers = {};
  if (access.key) headers.Authorization = `Bearer ${access.key}`;
  if (access.user) headers["Lango-User"] = asHeader(access.user);
  return headers;
}

/** The user that the requests act as, if one was named at sign-in. */
export const actingAs = () => access.user;

export const hasKey = () => access.key !== "";

export function signIn(key, user = "") {
  access = { key, user };
  sessionStorage.setItem(STORED, JSON.stringify(access));
}

export function signOut() {
  access = SIGNED_OUT;
  sessionStorage.removeItem(STORED);
}

/** Remove a key from the address and sign in with it; whether there was one. */
export function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("key")) return false;
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  signIn(given.get("key"), given.get("user") ?? "");
  return true;
}

function read() {
  try {
    return { ...SIGNED_OUT, ...JSON.parse(sessionStorage.getItem(STORED)) };
  } catch {
    return SIGNED_OUT;
  }
}

/** A header value: the text's UTF-8 bytes, as fetch takes only bytes. */
function asHeader(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
