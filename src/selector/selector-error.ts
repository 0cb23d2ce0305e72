/** A selector that can't be read. The message says what was found, where, and what was expected. */
export class SelectorError extends Error {
  override readonly name = "SelectorError";
  /** Where in the text, in UTF-16 units from 0; its length where the text ended too early. */
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

/** How much of a word is repeated to its author, in UTF-16 units. */
const maxQuoted = 80;

/** JSON's quotes also make control characters visible and lone surrogates harmless. */
function quote(text: string): string {
  return JSON.stringify(text.length > maxQuoted ? `${text.slice(0, maxQuoted)}…` : text);
}
