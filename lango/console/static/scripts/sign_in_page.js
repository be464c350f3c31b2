/** Asks for a credential, which stays in this tab. */

import { signIn } from "./access.js";
import { el } from "./elements.js";

/** The page calls `onDone()` after the user has entered a key. */
export function signInPage(onDone, problem = "") {
  const key = el("input", {
    type: "password", name: "key", required: true, autocomplete: "off", spellcheck: "false", autofocus: true,
  });
  const user = el("input", { name: "user", autocomplete: "off", spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    signIn(key.value.trim(), user.value.trim());
    onDone();
  };
  return el("form", { class: "sign-in", on: { submit } },
    el("h1", {}, "Sign in"),
    el("p", { class: "muted" }, "With an API key (", el("code", {}, "lango keys create"),
      ") or a token. It stays in this tab until you close it."),
    problem && el("p", { class: "problem", role: "alert" }, problem),
    el("label", {}, "API key or token", key),
    el("details", {}, el("summary", {}, "Act as a user"),
      el("label", {}, "User id, for a key that speaks for others", user)),
    el("button", { class: "primary" }, "Sign in"));
}
