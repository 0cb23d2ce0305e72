/** A selector that can't be parsed. The message says what was found, where, and what was expected. */
export class SelectorError extends Error {
  override readonly name = "SelectorError";
  /** The position in the text, in UTF-16 units from 0; its length if the text ends too early. */
  readonly position: number;

  constructor(message: string, position: number) {
    super(message);
    this.position = position;
  }
}

/** `expected` ends the sentence, for instance `"," or the end`. An empty `found` is the text's end. */
export function unexpected(found: string, position: number, expected: string): SelectorError {
  const what = found === "" ? "the end" : quote(found);
  return new SelectorError(
    `Found ${what} at position ${position}, expected ${expected}.`,
    position,
  );
}

/** Maximum length of a quoted word, in UTF-16 units. */
const maxQuoted = 80;

/** JSON's quotes also make control characters visible and escape lone surrogates. */
function quote(text: string): string {
  return JSON.stringify(text.length > maxQuoted ? `${text.slice(0, maxQuoted)}…` : text);
}
