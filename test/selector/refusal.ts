import { SelectorError } from "../../src/selector/selector-error.ts";

/** The SelectorError that a parser throws; undefined if it accepts the text. Rethrows any other error. */
export function refusal(parse: () => unknown): SelectorError | undefined {
  try {
    parse();
    return undefined;
  } catch (error) {
    if (error instanceof SelectorError) return error;
    throw error;
  }
}
