/*
 * Sets of texts that are kept as sorted arrays: a Set does the same, and takes several times the memory.
 */

/** Each text once, sorted. */
export function sortedTexts(texts: readonly string[]): string[] {
  return texts.toSorted().filter((text, i, all) => i === 0 || text !== all[i - 1]);
}

/** Where the first text that is not below `text` is, or would be. */
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
