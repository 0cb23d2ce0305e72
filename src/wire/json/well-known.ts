import { type MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";
import { InvalidJson } from "./invalid-json.ts";
import type { Message } from "./message-type.ts";

/*
 * The messages of protobuf whose JSON is not an object with their fields:
 * https://protobuf.dev/programming-guides/json/.
 */

const isDuration = (type: Message): boolean =>
  type.package === "google.protobuf" && type.name === "Duration";
const isFieldMask = (type: Message): boolean =>
  type.package === "google.protobuf" && type.name === "FieldMask";

/** Maximum length of a field mask, in characters: it is converted in one step, which takes 0.2 us for each path or capital. */
const maxMaskLength = 64 * 1024;

/**
 * The fields of a message that JSON has another form for, as an object; other values as they are. A field mask may also be an
 * object, whose paths may have capitals. Throws InvalidJson.
 */
export function wellKnownValue(type: Message, given: unknown): unknown {
  if (typeof given !== "string") return given;
  if (isDuration(type)) return durationIn(given);
  if (!isFieldMask(type)) return given;
  if (given.length > maxMaskLength) {
    throw new InvalidJson(`the field mask has ${given.length} characters, above ${maxMaskLength}`);
  }
  const paths = given === "" ? [] : given.split(",");
  return { paths: paths.map((path) => path.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)) };
}

function durationIn(text: string): object {
  const [, sign, whole = "", fraction = ""] = /^(-?)(\d{1,12})(?:\.(\d{1,9}))?s$/.exec(text) ?? [];
  if (sign === undefined) {
    throw new InvalidJson(`invalid duration ${JSON.stringify(text.slice(0, 64))}; write "3.5s"`);
  }
  return { seconds: `${sign}${whole}`, nanos: Number(`${sign}${fraction.padEnd(9, "0")}`) };
}

/** The JSON of a message that has another form than an object. Undefined: it is an object, and nothing was read. */
export function wellKnownJson(type: Message, cursor: MessageCursor): string | undefined {
  if (!isDuration(type)) return undefined;
  let [seconds, nanos] = [0n, 0n];
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x08) seconds = BigInt.asIntN(64, cursor.bigint());
    else if (tag === 0x10) nanos = BigInt.asIntN(32, cursor.bigint());
    else cursor.skip(tag);
  }
  if (nanos === 0n) return `"${seconds}s"`;
  const isNegative = seconds < 0n || nanos < 0n;
  const parts = [seconds, nanos].map((part) => String(part < 0n ? -part : part));
  const [whole, fraction] = parts as [string, string];
  if (fraction.length > 9) throw new WireFault("has a duration with too many nanoseconds");
  return `"${isNegative ? "-" : ""}${whole}.${fraction.padStart(9, "0").replace(/0+$/, "")}s"`;
}
