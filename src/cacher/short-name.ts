import { createHash } from "node:crypto";

/** Names up to this length, in UTF-16 units, are kept as they are. */
const longest = 128;

/**
 * A name that is the same for the same text, different for different ones, and never long: what is looked up by
 * a selector or a prefix must not keep another copy of it.
 */
export function shortName(text: string): string {
  if (text.length <= longest) return text;
  // No text as short as this begins so: they are all JSON arrays.
  return `sha256:${createHash("sha256").update(text, "utf16le").digest("base64")}`;
}
