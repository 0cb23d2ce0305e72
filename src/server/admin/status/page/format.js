// Texts and elements. All texts of the service are inserted as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children: elements, or texts. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const svgNamespace = "http://www.w3.org/2000/svg";

export function svg(name, attributes) {
  const made = document.createElementNS(svgNamespace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** What has not changed stays, so that a selection and a screen reader's position remain. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function setClass(target, name) {
  if (target.className !== name) target.className = name;
}

const count = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const numberOf = (value) => (value === undefined ? "–" : count.format(value));
export const rateOf = (value) =>
  value < 10 ? String(Number(value.toFixed(1))) : short.format(value);

export function bytesOf(value) {
  if (value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [amount, unit] = [value, 0];
  for (; amount >= 1_024 && unit < units.length - 1; unit++) amount /= 1_024;
  return `${Number(amount.toFixed(amount < 10 && unit > 0 ? 1 : 0))} ${units[unit]}`;
}

export function durationOf(seconds) {
  if (seconds === undefined) return "–";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400)
    return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

export function msOf(value) {
  if (value === undefined) return "–";
  return value < 1_000 ? `${Number(value.toPrecision(3))} ms` : `${(value / 1_000).toFixed(2)} s`;
}

/** A time of ISO 8601, such as `2026-11-24 03:12:05`, in UTC as in the log. */
export const timeOf = (iso) => iso.replace("T", " ").slice(0, 19);

/** How long ago a time of the service was, at another one. */
export function agoOf(since, at) {
  if (since === undefined) return undefined;
  return Math.max(0, (Date.parse(at) - Date.parse(since)) / 1_000);
}

/** The states of streams with their numbers. */
export function statesOf(byState) {
  return Object.entries(byState)
    .sort(([, a], [, b]) => b - a)
    .map(([state, number]) => `${numberOf(number)} ${state}`)
    .join(", ");
}

export function scopeOf({ scope, kind, hasManyScopes }) {
  if (hasManyScopes) return "various";
  if (scope === undefined) return kind;
  if ("key" in scope) return `key ${scope.key}`;
  if ("prefix" in scope) return scope.prefix === "" ? "all keys" : `prefix ${scope.prefix}`;
  return `from ${scope.from}${scope.to === null ? "" : ` to ${scope.to}`}`;
}

export const stateKinds = { live: "good", stalled: "bad", "catching up": "warn" };
