import { type EventType, WatchEvent } from "../../src/model/event.ts";
import { StoredObject } from "../../src/model/object.ts";
import fc from "../property.ts";

/** An object written once, at `revision`. */
export function object(key: string, revision: number, value: string = "", version = 1) {
  return new StoredObject(key, Buffer.from(value), revision, revision, version, 0n);
}

export function event(
  type: EventType,
  key: string,
  revision: number,
  value: string = "",
): WatchEvent {
  return new WatchEvent(type, object(key, revision, value), undefined);
}

export function text(value: Uint8Array): string {
  return Buffer.from(value).toString();
}

/** An event as text: `"ADDED a=1@2"`, with the previous object in brackets. */
export function short({ type, object: { key, value, modRevision }, previous }: WatchEvent): string {
  const before = previous === undefined ? "" : ` (${text(previous.value)}@${previous.modRevision})`;
  return `${type} ${key}=${text(value)}@${modRevision}${before}`;
}

/** The characters at which the orders of UTF-16 and UTF-8 differ, and at which prefixes end. */
const corners = [
  "a",
  "b",
  "/",
  "\ud7ff",
  "\ue000",
  "\uffff",
  "\u{10000}",
  "\u{1f600}",
  "\u{10ffff}",
];

/** Short text of such characters, so that keys and prefixes often match. */
export function cornerText(minLength: number, maxLength: number): fc.Arbitrary<string> {
  return fc.string({ unit: fc.constantFrom(...corners), minLength, maxLength });
}
