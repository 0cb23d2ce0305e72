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

/** In UTF-16 units. */
export const maxSelectorLength = 64 * 1024;

/** Maximum number of requirements: each event is matched against them. */
export const maxRequirements = 1_000;

export function refuseTooLong(text: string): void {
  if (text.length <= maxSelectorLength) return;
  throw new SelectorError(
    `The selector is ${text.length} characters long, expected at most ${maxSelectorLength}.`,
    maxSelectorLength,
  );
}

/** To be called before each further requirement, which begins at `position`. */
export function refuseOneMore(requirements: number, position: number): void {
  if (requirements < maxRequirements) return;
  throw new SelectorError(
    `Found one more requirement at position ${position}, expected at most ${maxRequirements}.`,
    position,
  );
}
