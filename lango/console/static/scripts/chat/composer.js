/** The form to write a message, and to stop a turn. */

import { button, el } from "../elements.js";

const TALLEST = 240;

export class Composer {
  #input = el("textarea", {
    rows: "1", placeholder: "Write a message", "aria-label": "Message", autocomplete: "off", enterkeyhint: "send",
  });
  #send = el("button", { class: "primary", type: "submit" }, "Send");
  #stop;
  #onSend;

  /** `onSend(text)` resolves to true when the text is accepted; `onStop()` cancels the turn. */
  constructor({ onSend, onStop, before = null }) {
    this.#onSend = onSend;
    this.#stop = button("Stop", onStop, { class: "stop", hidden: true, title: "Esc" });
    this.node = el("form", { class: "composer", on: { submit: (event) => this.#submit(event) } },
      before, this.#input, this.#stop, this.#send);
    this.#input.addEventListener("input", () => this.#fit());
    this.#input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#submit(event);
    });
  }

  focus() {
    this.#input.focus({ preventScroll: true });
  }

  set isRunning(value) {
    this.#stop.hidden = !value;
  }

  async #submit(event) {
    event.preventDefault();
    const text = this.#input.value.trim();
    if (!text || this.#send.disabled) return;
    this.#send.disabled = true;
    this.#write("");
    // Restore a text that could not be sent, unless the user has typed another.
    if (!(await this.#onSend(text)) && !this.#input.value) this.#write(text);
    this.#send.disabled = false;
    this.focus();
  }

  #write(text) {
    this.#input.value = text;
    this.#fit();
  }

  #fit() {
    this.#input.style.height = "auto";
    this.#input.style.height = `${Math.min(this.#input.scrollHeight, TALLEST)}px`;
  }
}
