import { FieldRequirement, FieldSelector } from "./field-selector.ts";
import { refuseOneMore, refuseTooLong, SelectorError, unexpected } from "./selector-error.ts";

/**
 * Parses a field selector in Kubernetes' grammar, that of k8s.io/apimachinery/pkg/fields:
 * `spec.nodeName=node-7,status.phase!=Failed`, with `==` for `=`, and in a value `\\` for a backslash, `\,` for a comma
 * and `\=` for an equals sign. An empty text selects everything. Throws SelectorError.
 *
 * As there, whitespace is part of the field or value next to it, names of fields have no escapes, and superfluous
 * commas are ignored. Unlike there, selectors have a maximum size, and a field must have a name.
 */
export function parseFieldSelector(text: string): FieldSelector {
  refuseTooLong(text);
  const requirements: FieldRequirement[] = [];
  let start = 0;
  while (start < text.length) {
    const end = endOfTerm(text, start);
    if (end > start) {
      refuseOneMore(requirements.length, start);
      requirements.push(parseTerm(text, start, end));
    }
    start = end + 1;
  }
  return new FieldSelector(requirements);
}

/** Returns the position of the comma that ends the term, or the end of the text. */
function endOfTerm(text: string, start: number): number {
  let i = start;
  while (i < text.length && text[i] !== ",") i += text[i] === "\\" ? 2 : 1;
  return Math.min(i, text.length);
}

function parseTerm(text: string, start: number, end: number): FieldRequirement {
  const equals = text.indexOf("=", start);
  if (equals === -1 || equals >= end) {
    const term = text.slice(start, end);
    throw unexpected(term, start, 'the name of a field, then "=", "==" or "!=", then a value');
  }
  const not = equals > start && text[equals - 1] === "!";
  const operatorAt = not ? equals - 1 : equals;
  if (operatorAt === start) {
    const operator = text.slice(start, equals + 1);
    throw unexpected(operator, start, "the name of a field before it");
  }
  const valueAt = !not && text[equals + 1] === "=" ? equals + 2 : equals + 1;
  const field = text.slice(start, operatorAt);
  return new FieldRequirement(field, not ? "!=" : "=", parseValue(text, valueAt, end));
}

function parseValue(text: string, start: number, end: number): string {
  let value = "";
  let plain = start;
  for (let i = start; i < end; i++) {
    if (text[i] === "=") {
      throw new SelectorError(
        `Found "=" at position ${i} in a value, expected it as \\= there.`,
        i,
      );
    }
    if (text[i] !== "\\") continue;
    if (!isEscaped(text[i + 1])) {
      throw new SelectorError(
        `Found a backslash at position ${i} that escapes nothing, expected \\\\ for a backslash, ` +
          "\\, for a comma or \\= for an equals sign.",
        i,
      );
    }
    value += text.slice(plain, i);
    plain = i + 1;
    i++;
  }
  return value + text.slice(plain, end);
}

function isEscaped(character: string | undefined): boolean {
  return character === "\\" || character === "," || character === "=";
}
