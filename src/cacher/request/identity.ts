import { createHash } from "node:crypto";
import { isWide } from "../../base/text-memory.ts";

/** Maximum length of all text parts together, in UTF-16 units, up to which a name spells them out. */
const maxSpelledOut = 128;

/**
 * Returns a short name for a list of parts: equal for equal parts, and different for different ones. A map with such
 * keys does not hold further copies of long selectors and prefixes. Texts are hashed in the encoding that they have in
 * memory, since encoding texts of some MiB in another way takes several times as long.
 */
export function shortName(...parts: readonly (string | number | boolean | null)[]): string {
  let length = 0;
  for (const part of parts) if (typeof part === "string") length += part.length;
  if (length <= maxSpelledOut) return JSON.stringify(parts);
  const hash = createHash("sha256");
  // The lengths make the borders between texts part of the name. Arrays stand for texts, and for nothing else.
  hash.update(
    JSON.stringify(
      parts.map((part) => (typeof part === "string" ? [part.length, isWide(part)] : part)),
    ),
  );
  for (const part of parts) {
    if (typeof part === "string") hash.update(part, isWide(part) ? "utf16le" : "latin1");
  }
  // Spelled-out names are JSON arrays, so none begins with this prefix.
  return `sha256:${hash.digest("base64")}`;
}
