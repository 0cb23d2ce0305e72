import { SelectorError } from "../../src/selector/selector-error.ts";

/** What a parser throws, or undefined if it takes the text. Whatever is not a SelectorError goes on. */
export function refusal(parse: () => unknown): SelectorError | undefined {
  try {
    parse();
    return undefined;
  } catch (error) {
    if (error instanceof SelectorError) return error;
    throw error;
  }
}
