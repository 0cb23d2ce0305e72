import { SelectorError } from "./selector-error.ts";

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
