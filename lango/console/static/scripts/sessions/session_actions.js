/** Actions on a session, for all pages that show one. */

import { api } from "../api.js";
import { asked, confirmed } from "../dialogs.js";
import { el } from "../elements.js";

const LONGEST_TITLE = 256;

/** Dispatched on the window when the list of sessions has changed. */
export const CHANGED = "lango:sessions-changed";

export const changed = () => window.dispatchEvent(new Event(CHANGED));

export const titleOf = (session) => session.title || "Untitled";

/** Rename a session; null if it keeps its title. */
export async function rename(session, frame) {
  const title = await asked("Rename the session", "Title", session.title, LONGEST_TITLE);
  if (title === null) return null;
  return attempt(frame, async () => {
    const renamed = await api.renameSession(session.id, title);
    changed();
    return renamed;
  });
}

/** Delete a session after a confirmation; whether it was deleted. */
export async function remove(session, frame) {
  const what = `“${titleOf(session)}” with its ${session.messages} messages, its turns and files. Turns that run are stopped.`;
  if (!(await confirmed("Delete the session?", what, "Delete"))) return false;
  return (await attempt(frame, async () => {
    await api.deleteSession(session.id);
    changed();
    return true;
  })) === true;
}

/** Save a session as a file. Uses fetch: a link cannot send the credential. */
export function save(session, frame) {
  return attempt(frame, async () => {
    const address = URL.createObjectURL(await api.exportSession(session.id));
    el("a", { href: address, download: `${session.id}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  });
}

/** Act; a problem becomes a notice, and null is returned. */
export async function attempt(frame, act) {
  try {
    return await act();
  } catch (problem) {
    frame.notice(problem.message, "error");
    return null;
  }
}
