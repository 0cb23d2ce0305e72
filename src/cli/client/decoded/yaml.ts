import { createRequire } from "node:module";
import type { Json } from "./json-path.ts";

/** Loaded with the first document: other commands start faster without it. */
const loadYaml = (): typeof import("yaml") => createRequire(import.meta.url)("yaml");

/** Characters that would control a terminal or mislead a reader, as in printable.ts, except line ends and tabs. */
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
const allowed = /[\n\t]/g;

/**
 * A document as YAML, which reads as exactly the same document. A text with unprintable characters is in double quotes,
 * with escapes in their place.
 */
export function yamlText(document: Json): string {
  const { Document, visit } = loadYaml();
  const yaml = new Document(document, { aliasDuplicateObjects: false });
  visit(yaml, {
    Scalar: (_, node) => {
      const { value } = node;
      if (typeof value === "string" && unprintable.test(value.replace(allowed, ""))) {
        node.type = "QUOTE_DOUBLE";
      }
    },
  });
  return yaml
    .toString({ lineWidth: 0 })
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) =>
      character === "\n" || character === "\t" ? character : escaped(character),
    );
}

function escaped(character: string): string {
  const hex = (character.codePointAt(0) ?? 0).toString(16);
  return hex.length > 4 ? `\\U${hex.padStart(8, "0")}` : `\\u${hex.padStart(4, "0")}`;
}
