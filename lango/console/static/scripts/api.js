/** The client of the HTTP API. Answers are JSON; errors are thrown as Problem. */

import { credentials } from "./access.js";

const ROOT = new URL("../", document.baseURI);
const UNAUTHORIZED = 401;
const ATTEMPTS = 4;
const FIRST_PAUSE = 300;

/** Dispatched on the window when the server refuses the credential. */
export const SIGNED_OUT = "lango:signed-out";

/** An error that the server returned, or status 0 if it did not answer. */
export class Problem extends Error {
  constructor(status, body = {}, retryAfter = 0) {
    super(body.detail ?? body.title ?? "The server does not answer.");
    this.status = status;
    this.errorId = body.error_id ?? "";
    this.retryAfter = retryAfter;
  }

  /** Whether the error is temporary: a retry may succeed. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }

  static async of(answer) {
    const body = await answer.json().catch(() => ({ title: answer.statusText }));
    return new Problem(answer.status, body, Number(answer.headers.get("Retry-After")) * 1_000);
  }
}

/** Send one request and return the answer; throws a Problem unless its status is 2xx. */
export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...credentials(), ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const answer = await fetch(new URL(path, ROOT), {
    method,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
  }).catch((cause) => {
    if (signal?.aborted) throw cause;
    throw new Problem(0);
  });
  if (answer.ok) return answer;
  if (answer.status === UNAUTHORIZED) window.dispatchEvent(new Event(SIGNED_OUT));
  throw await Problem.of(answer);
}

async function get(path, query = {}, signal = undefined) {
  return (await request(`${path}${search(query)}`, { signal })).json();
}

/** Submit with retries; the idempotency key makes the server act once. */
async function post(path, body, signal = undefined) {
  const headers = { "Idempotency-Key": randomKey() };
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await (await request(path, { method: "POST", body, headers, signal })).json();
    } catch (problem) {
      if (!problem.isPassing || attempt === ATTEMPTS) throw problem;
      await pause(problem.retryAfter || FIRST_PAUSE * 2 ** attempt, signal);
    }
  }
}

function search(query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== "" && one != null && one !== false) parameters.append(name, one);
  }
  return parameters.size ? `?${parameters}` : "";
}

/** A random key. Not by `randomUUID`, which pages without TLS do not have. */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Wait; rejects when `signal` aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

const session = (id) => `v1/sessions/${encodeURIComponent(id)}`;
const turn = (id) => `v1/turns/${encodeURIComponent(id)}`;

export const api = {
  me: (signal) => get("v1/me", {}, signal),
  agents: async (signal) => (await get("v1/agents", {}, signal)).agents,
  usage: (query, signal) => get("v1/usage", query, signal),
  workload: (signal) => get("v1/workload", {}, signal),
  workers: (signal) => get("v1/workers", {}, signal),
  failures: (signal) => get("v1/failures", {}, signal),
  approvals: (signal) => get("v1/approvals", {}, signal),

  sessions: (query, signal) => get("v1/sessions", query, signal),
  session: (id, signal) => get(session(id), {}, signal),
  createSession: (app, title) => post("v1/sessions", { app, title }),
  renameSession: async (id, title) =>
    (await request(session(id), { method: "PATCH", body: { title } })).json(),
  deleteSession: (id) => request(session(id), { method: "DELETE" }),
  exportSession: async (id) => (await request(`${session(id)}/export`)).blob(),
  messages: (id, query, signal) => get(`${session(id)}/messages`, query, signal),
  context: (id, call, signal) => get(`${session(id)}/context`, { call }, signal),

  memory: (query, signal) => get("v1/memory", query, signal),
  deleteMemory: (id) => request(`v1/memory/${encodeURIComponent(id)}`, { method: "DELETE" }),
  deleteAllMemory: (owner) => request(`v1/memory${search(owner)}`, { method: "DELETE" }),

  turns: (id, query, signal) => get(`${session(id)}/turns`, query, signal),
  turn: (id, signal) => get(turn(id), {}, signal),
  timeline: (id, signal) => get(`${turn(id)}/timeline`, {}, signal),
  submit: (id, message, signal) => post(`${session(id)}/turns`, { message }, signal),
  retry: (id) => post(`${turn(id)}/retry`),
  cancel: (id) => post(`${turn(id)}/cancel`),
  answer: (id, call, approved) => post(`${turn(id)}/approvals`, { call, approved }),
  events: (id, after, signal) =>
    request(`${turn(id)}/events?thoughts=true`, { headers: { "Last-Event-ID": String(after) }, signal }),
};
