/** The events of a turn, to its end; reconnects when the connection is lost. */

import { api, pause } from "../api.js";

const ENDS = new Set(["completed", "failed", "cancelled", "input_required"]);
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 5_000;
const NOTHING_LEFT = 204;

export const isEnd = (event) => ENDS.has(event.type);

/** Yields every event once and in order, until the turn ends or `signal` aborts. */
export async function* follow(turn, signal) {
  let last = 0;
  let wait = FIRST_PAUSE;
  for (;;) {
    try {
      const answer = await api.events(turn, last, signal);
      if (answer.status === NOTHING_LEFT) return;
      for await (const event of parse(answer.body)) {
        last = event.id;
        wait = FIRST_PAUSE;
        yield event;
        if (isEnd(event)) return;
      }
    } catch (problem) {
      if (signal.aborted || !isPassing(problem)) throw problem;
      wait = Math.max(wait, problem.retryAfter ?? 0);
    }
    await pause(wait * (0.5 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, LONGEST_PAUSE);
  }
}

/** Whether to retry; a broken stream throws a TypeError, whose message depends on the browser. */
const isPassing = (problem) => problem.isPassing ?? problem instanceof TypeError;

/** Yields the events of a stream of server-sent events, as they come. */
export async function* parse(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      yield* frames.map(dataOf).filter((event) => event !== null);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** The data of a frame; null for a comment, which is a heartbeat. */
function dataOf(frame) {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? JSON.parse(lines.map((line) => line.slice("data:".length)).join("\n")) : null;
}
