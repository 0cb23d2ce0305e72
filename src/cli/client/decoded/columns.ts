import { printableText } from "../../output/printable.ts";
import { type Json, JsonPath, textOf } from "./json-path.ts";

/** Columns that the user chose, as of `kubectl -o custom-columns`: `NAME:.key,NODE:.value.spec.node`. */
export class Columns {
  readonly headings: readonly string[];
  readonly #paths: readonly JsonPath[];

  /** Throws an error whose message is a part of a sentence if the text does not describe columns. */
  constructor(text: string) {
    const columns = partsOf(text).map((part) => {
      const colon = part.indexOf(":");
      if (colon < 1 || colon === part.length - 1) {
        throw new Error(`a column is HEADING:PATH, such as NAME:.key, not ${JSON.stringify(part)}`);
      }
      // Braces around a path are kubectl's, too.
      const path = part.slice(colon + 1).replace(/^\{(.*)\}$/s, "$1");
      return { heading: printableText(part.slice(0, colon)), path: new JsonPath(path) };
    });
    this.headings = columns.map(({ heading }) => heading);
    this.#paths = columns.map(({ path }) => path);
  }

  /** The cells for a document, each on one line. Several values of a path have a comma between. */
  rowOf(document: Json): string[] {
    return this.#paths.map((path) => {
      const values = path.valuesIn(document);
      return values.length === 0 ? "<none>" : printableText(values.map(textOf).join(","));
    });
  }
}

/** The text at its commas, except those in brackets or quotes. */
function partsOf(text: string): readonly string[] {
  const parts = text.match(/(?:\[(?:"[^"]*"|'[^']*'|[^\]"'])*\]|[^,[])+/g);
  if (parts === null || parts.join(",") !== text) {
    throw new Error("columns are HEADING:PATH with a comma between");
  }
  return parts;
}
