/** Modal dialogs, by the browser's `dialog` element. */

import { button, el } from "./elements.js";

const SHORTCUTS = [
  ["Enter", "send the message"],
  ["Shift + Enter", "begin a new line"],
  ["Esc", "stop the turn that runs"],
  ["Ctrl + K", "search the sessions"],
  ["Alt + N", "begin a new chat"],
];

/** Ask for a confirmation; false if refused. */
export async function confirmed(title, text, yes) {
  return (await ask(title, [el("p", {}, text)], yes, { isDangerous: true })) !== null;
}

/** Ask for a line of text; null if cancelled. */
export async function asked(title, label, value, most) {
  const input = el("input", { name: "answer", value, maxlength: most, autofocus: true });
  const form = await ask(title, [el("label", {}, label, input)], "Save");
  return form === null ? null : input.value;
}

export function openHelp() {
  const rows = SHORTCUTS.map(([keys, what]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, what)]);
  return ask("Shortcuts", [el("dl", { class: "shortcuts" }, rows.flat())], "Close", { isQuestion: false });
}

function ask(title, content, yes, { isDangerous = false, isQuestion = true } = {}) {
  const dialog = el("dialog", { "aria-label": title });
  const no = isQuestion && button("Cancel", () => dialog.close(), { class: "quiet" });
  const go = el("button", { class: isDangerous ? "dangerous" : "primary" }, yes);
  const form = el("form", { method: "dialog" }, el("h2", {}, title), content, el("div", { class: "row end" }, no, go));
  dialog.append(form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let answer = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault(); // the page's policy forbids form actions, even method="dialog"
      answer = form;
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    dialog.showModal();
  });
}
