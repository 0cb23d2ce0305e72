import { createHash } from "node:crypto";
import { isWide } from "../../base/text-memory.ts";

/** Parts whose texts have together no more than so many UTF-16 units are kept as they are. */
const longest = 128;

/**
 * A name that is the same for the same parts, different for different ones, and never long: what is looked up by
 * a selector or a prefix must not keep another copy of it. Texts of some MiB are hashed as they are in memory, as
 * to spell them out in any other way takes several times as long.
 */
export function shortName(...deps: readonly (string | number | boolean | null)[]): string {
  let length = 0;
  for (const part of deps) if (typeof part === "string") length += part.length;
  if (length <= longest) return JSON.stringify(deps);
  const hash = createHash("sha256");
  // So that where one text ends and the next begins is part of it. In here, only texts are arrays.
  hash.update(
    JSON.stringify(
      deps.map((part) => (typeof part === "string" ? [part.length, isWide(part)] : part)),
    ),
  );
  for (const part of deps) {
    if (typeof part === "string") hash.update(part, isWide(part) ? "utf16le" : "latin1");
  }
  // No other name begins so: they are JSON arrays.
  return `sha256:${hash.digest("base64")}`;
}
