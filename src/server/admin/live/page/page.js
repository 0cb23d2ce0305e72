// What the modules of the live page share.

export const byId = (id) => document.getElementById(id);

/** Sets a text, and changes nothing if it is the same. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** A key as it is shown: in quotes if nothing of it would be seen. */
export const labelOf = (key) => (key.trim() === "" ? JSON.stringify(key) : key);

const strict = new TextDecoder("utf-8", { fatal: true });
const texts = new WeakMap();

/** The value of an object as text, in lines if it is JSON, or its bytes. */
export function textOf(object) {
  let text = texts.get(object);
  if (text === undefined) {
    text = readable(object.value);
    texts.set(object, text);
  }
  return text;
}

function readable(value) {
  let text;
  try {
    text = strict.decode(value);
  } catch {
    return Array.from(value, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export const numberOf = (number) => number.toLocaleString("en-US");
