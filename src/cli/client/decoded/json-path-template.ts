import { closingPosition, type Json, JsonPath, textOf } from "./json-path.ts";

/** A part of a template: text, a path whose values are printed, or parts that are printed for each value of a path. */
type Part =
  | { readonly text: string }
  | { readonly path: JsonPath }
  | { readonly range: JsonPath; readonly parts: readonly Part[] };

/**
 * A template as of `kubectl -o jsonpath`: text with paths in braces, such as
 * `{range .items[*]}{.key}{"\t"}{.value.spec.node}{"\n"}{end}`. Text without braces is one path.
 */
export class JsonPathTemplate {
  readonly #parts: readonly Part[];

  /** Throws an error whose message is a part of a sentence if it is not a template. */
  constructor(template: string) {
    if (template.trim() === "") throw new Error("the template is empty");
    this.#parts = partsOf(template.includes("{") ? template : `{${template}}`);
  }

  /** The text for a document. The values of a path have a space between. A path that leads nowhere gives no text. */
  textFor(document: Json): string {
    return rendered(this.#parts, document, document);
  }
}

function rendered(parts: readonly Part[], root: Json, current: Json): string {
  let text = "";
  for (const part of parts) {
    if ("text" in part) text += part.text;
    else if ("path" in part) text += valuesOf(part.path, root, current).map(textOf).join(" ");
    else {
      for (const value of valuesOf(part.range, root, current)) {
        text += rendered(part.parts, root, value);
      }
    }
  }
  return text;
}

function valuesOf(path: JsonPath, root: Json, current: Json): readonly Json[] {
  return path.valuesIn(path.isAbsolute ? root : current);
}

function partsOf(template: string): readonly Part[] {
  const outermost: Part[] = [];
  /** The ranges that are open, the innermost last. */
  const open: Part[][] = [];
  let parts = outermost;
  let at = 0;
  while (at < template.length) {
    const start = template.indexOf("{", at);
    if (start !== at) parts.push({ text: template.slice(at, start === -1 ? undefined : start) });
    if (start === -1) break;
    const end = closingPosition(template, start, "{", "}");
    if (end === -1) throw new Error("the template has a { without its }");
    const inner = template.slice(start + 1, end).trim();
    at = end + 1;
    const range = /^range\s+(.*)$/s.exec(inner);
    if (range !== null) {
      const nested: Part[] = [];
      parts.push({ range: new JsonPath((range[1] ?? "").trim()), parts: nested });
      open.push(parts);
      parts = nested;
    } else if (inner === "end") {
      const outer = open.pop();
      if (outer === undefined) throw new Error("the template has an {end} without its {range}");
      parts = outer;
    } else {
      parts.push(/^["']/.test(inner) ? { text: unquoted(inner) } : { path: new JsonPath(inner) });
    }
  }
  if (open.length > 0) throw new Error("the template has a {range} without its {end}");
  return outermost;
}

const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t" };

function unquoted(quoted: string): string {
  const quote = quoted[0];
  if (quoted.length < 2 || quoted.at(-1) !== quote) {
    throw new Error(`the template has a text without its closing quote: ${quoted}`);
  }
  return quoted.slice(1, -1).replace(/\\(.)/gs, (_, letter: string) => escapes[letter] ?? letter);
}
