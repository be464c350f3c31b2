/** The views of a message, a tool call and an approval. */

import { button, el, fill } from "../elements.js";
import { showMarkdown } from "./markdown.js";
import { oneLine, pretty } from "../words.js";

const STATUS = {
  running: "running…",
  completed: "done",
  pending: "still working",
  failed: "failed",
  waiting: "waits for you",
  denied: "denied",
};
const RESULT = { failed: "Error", pending: "Result so far" };

/** A message of the user or of an agent. */
export class MessageView {
  #text = "";
  #thoughts = "";
  #isWhole = false;
  #isDrawing = false;
  #body = el("div", { class: "text" });
  #author = el("p", { class: "author" });
  #thinking = null;

  constructor(role) {
    this.role = role;
    this.node = el("article", { class: "message", data: { role } }, this.#author, this.#body);
    this.node.hidden = true; // until there is something to show
  }

  /** Add text, unless the message is complete: a replayed log repeats its deltas. */
  add(text) {
    if (this.#isWhole) return false;
    this.#text += text;
    this.#draw();
    return true;
  }

  think(text) {
    if (this.#isWhole) return;
    this.#thoughts += text;
    this.#draw();
  }

  /** Set the complete text; false if the message was complete before. */
  complete(text) {
    const isNew = !this.#isWhole;
    this.#text = text;
    this.#isWhole = true;
    this.#drawNow();
    return isNew;
  }

  /** Remove the text so far: the message will not be completed. */
  reset() {
    if (this.#isWhole) return;
    [this.#text, this.#thoughts] = ["", ""];
    this.#drawNow();
  }

  /** Show the author. The message must have its place: the name of the message before is not repeated. */
  name(author) {
    this.#author.textContent = this.role === "user" ? "You" : author;
    this.node.setAttribute("aria-label", this.#author.textContent || "Message");
    this.node.dataset.author = author;
    this.#author.hidden = previousAuthor(this.node) === author;
  }

  /** Draw at most once per frame. */
  #draw() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#drawNow();
    });
  }

  #drawNow() {
    this.node.hidden = !this.#text && !this.#thoughts;
    this.node.toggleAttribute("data-growing", !this.#isWhole);
    if (this.role === "user") this.#body.textContent = this.#text;
    else showMarkdown(this.#body, this.#text);
    if (this.#thoughts) this.#drawThoughts();
  }

  #drawThoughts() {
    if (!this.#thinking) {
      this.#thinking = el("p", { class: "thoughts-text" });
      this.#body.before(el("details", { class: "thoughts" }, el("summary", {}, "Thoughts"), this.#thinking));
    }
    this.#thinking.textContent = this.#thoughts;
  }
}

/** The author of the previous message of the turn: the same name is not shown twice. */
function previousAuthor(node) {
  let before = node.previousElementSibling;
  while (before && before.dataset.author === undefined) before = before.previousElementSibling;
  return before?.dataset.author;
}

/** Code that a model ran, or the output of code. */
export class PartView {
  constructor({ kind, text, language, outcome, truncated }) {
    const what = kind === "code" ? ["Code", language] : ["Output", outcome === "ok" ? null : outcome];
    const label = what.filter(Boolean).join(" · ");
    this.node = el("section", { class: "part", data: { kind, outcome: outcome ?? "" }, "aria-label": label },
      el("p", { class: "label" }, label),
      el("pre", { tabindex: "0" }, truncated ? `${text}…` : text));
  }
}

/** A collapsed tool call, with its arguments and result. */
export class ToolView {
  state = "running";
  #given = null;
  #result = null;
  #isFinal = false;
  #status = el("span", { class: "status" });
  #bar = el("progress", { max: 1, "aria-label": "Progress", hidden: true });
  #preview = el("span", { class: "preview" });
  #body = el("div", { class: "tool-body" });

  constructor(name) {
    this.name = name;
    const summary = el("summary", {}, el("code", { class: "name" }, name), this.#preview, this.#bar, this.#status);
    this.node = el("details", { class: "tool", on: { toggle: () => this.#unfold() } }, summary, this.#body);
    this.#show("running");
  }

  started(given) {
    this.#given = given;
    this.#preview.textContent = preview(given);
  }

  /** Show how far the tool is, until it has a result. */
  reports({ current, total, text }) {
    if (this.state !== "running" && this.state !== "waiting") return;
    this.#show("running");
    const share = total > 0 ? Math.min(Math.max(current / total, 0), 1) : null;
    this.#bar.hidden = share === null;
    this.#bar.value = share ?? 0;
    const far = share === null ? `${current}` : `${Math.round(share * 100)} %`;
    this.#status.textContent = text ? `${far} · ${oneLine(text, 80)}` : far;
  }

  /** Show a result. The log of the call's turn repeats its first value, which does not replace the final one. */
  finished(result, error, isFinal = false) {
    if (this.#isFinal && !isFinal) return;
    this.#isFinal = isFinal;
    this.#result = error ?? result;
    const isFirstValue = this.state === "pending" && !isFinal;
    if (error !== undefined && error !== null) this.#show("failed");
    else this.#show(isFirstValue ? "pending" : "completed");
  }

  /** The tool has returned, and its result comes later, from elsewhere. */
  works() {
    if (!this.#isFinal) this.#show("pending");
  }

  waits() {
    this.#result = null;
    this.#show("waiting");
  }

  answered(isApproved) {
    if (this.state === "waiting") this.#show(isApproved ? "running" : "denied");
  }

  #show(state) {
    this.state = state;
    this.node.dataset.state = state;
    this.#status.textContent = STATUS[state];
    this.#bar.hidden = true;
    if (this.node.open) this.#unfold();
  }

  /** Build the body when the call is expanded. */
  #unfold() {
    if (!this.node.open) return;
    fill(this.#body,
      labelled("Arguments", this.#given),
      labelled(RESULT[this.state] ?? "Result", this.#result));
  }
}

function labelled(label, value) {
  if (value === null || value === undefined) return [];
  return [el("p", { class: "label" }, label), el("pre", { tabindex: "0" }, pretty(value))];
}

/** The arguments on one line: `item: tea, amount: 3`. */
function preview(given) {
  const parts = Object.entries(given ?? {}).map(([name, value]) =>
    `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return oneLine(parts.join(", "), 120);
}

/** A call that waits for a user's credential: the address of the consent, if it is one. */
export class CredentialView {
  constructor({ name, kind, auth_uri: address }) {
    const isWeb = /^https?:\/\//i.test(address ?? "");
    this.node = el("section", { class: "approval", "aria-label": `Credential for ${name}` },
      el("p", {}, el("code", {}, name), ` needs a credential of yours (${kind}).`),
      isWeb && el("p", {}, el("a", { href: address, target: "_blank", rel: "noopener noreferrer" },
        "Open the consent page")),
      el("p", { class: "muted" }, isWeb
        ? "The agent continues when you have consented: reload this page then."
        : "The application sends it to the agent."));
  }
}

/** A call that waits for a person. `answer(isApproved)` submits the decision. */
export class ApprovalView {
  constructor({ name, arguments: given, hint }, answer) {
    const yes = button("Approve", () => this.#decide(answer, true), { class: "primary" });
    const no = button("Deny", () => this.#decide(answer, false));
    this.buttons = answer ? el("div", { class: "row" }, yes, no) : null;
    this.node = el("section", { class: "approval", "aria-label": `Approval of ${name}` },
      el("p", {}, "May ", el("code", {}, name), " run?"),
      hint && el("p", { class: "muted" }, hint),
      el("dl", { class: "given" }, Object.entries(given).flatMap(([key, value]) =>
        [el("dt", {}, key), el("dd", {}, pretty(value))])),
      this.buttons);
  }

  async #decide(answer, isApproved) {
    const buttons = [...this.buttons.children];
    buttons.forEach((each) => { each.disabled = true; });
    const isTaken = await answer(isApproved);
    if (isTaken) this.node.remove();
    else buttons.forEach((each) => { each.disabled = false; });
  }
}
