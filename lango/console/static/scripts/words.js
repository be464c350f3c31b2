/** Formats numbers, times and money for people. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const whole = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const exactClock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const longDate = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
});

export const UNKNOWN = "–";

/** 12,345. */
export const count = (number) => (number === null || number === undefined ? UNKNOWN : whole.format(number));

/** 12.3K, where there is little room. */
export const brief = (number) => (number < 10_000 ? whole.format(number) : short.format(number));

/** 1 message, 2 messages. */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** US dollars, with more digits for smaller amounts. */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return UNKNOWN;
  const digits = dollars === 0 || dollars >= 1 ? 2 : dollars >= 0.01 ? 3 : 5;
  return `$${dollars.toFixed(digits)}`;
}

/** A duration, such as 1.5 s or 2 min 3 s. */
export function duration(milliseconds) {
  if (milliseconds < SECOND) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < MINUTE) return `${(milliseconds / SECOND).toFixed(1)} s`;
  if (milliseconds < HOUR) return parts(milliseconds, MINUTE, "min", SECOND, "s");
  if (milliseconds < DAY) return parts(milliseconds, HOUR, "h", MINUTE, "min");
  return parts(milliseconds, DAY, "d", HOUR, "h");
}

function parts(milliseconds, large, largeName, small, smallName) {
  const rest = Math.floor((milliseconds % large) / small);
  return `${Math.floor(milliseconds / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** Milliseconds from one time to another, or to now. */
export const between = (from, to) => (to ? Date.parse(to) : Date.now()) - Date.parse(from);

/** The time if it is today, else the date. */
export function when(time) {
  const then = new Date(time);
  const isToday = then.toDateString() === new Date().toDateString();
  return isToday ? clock.format(then) : date.format(then);
}

export const exactTime = (time) => exactClock.format(new Date(time));

export const exactDate = (time) => longDate.format(new Date(time));

/** A UTC day such as 2026-11-15, without a shift to the local time zone. */
export const dayName = (day) => date.format(new Date(`${day}T12:00:00`));

/** The text on one line of at most `room` characters. */
export function oneLine(text, room = 200) {
  const flat = text.slice(0, room * 2).replace(/\s+/g, " ").trim();
  return flat.length > room ? `${flat.slice(0, room)}…` : flat;
}

/** A value as indented JSON; a string as it is. */
export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
