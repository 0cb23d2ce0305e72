/*
 * Sets of texts as sorted arrays, which take a fraction of the memory of a Set.
 */

/** Sorts the texts and removes duplicates. */
export function sortedTexts(texts: readonly string[]): string[] {
  return texts.toSorted().filter((text, i, all) => i === 0 || text !== all[i - 1]);
}

/** Returns the position of the first text that is not less than `text`, or where it would be. */
export function lowerBound(sorted: readonly string[], text: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? "") < text) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function includesText(sorted: readonly string[], text: string): boolean {
  return sorted[lowerBound(sorted, text)] === text;
}
