/**
 * The name that is most similar to `text`; undefined if none is similar. At most a third of its letters, or one if that is
 * more, may be wrong, missing, superfluous or swapped with a neighbour.
 */
export function nearest(text: string, names: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(text.length / 3)) + 1;
  for (const name of names) {
    if (Math.abs(name.length - text.length) >= bestDistance) continue;
    const distance = editDistance(text, name);
    if (distance < bestDistance) {
      best = name;
      bestDistance = distance;
    }
  }
  return best;
}

/** A question to append to a message about an unknown name; empty if no name is similar. */
export function didYouMean(text: string, names: Iterable<string>): string {
  const meant = nearest(text, names);
  return meant === undefined ? "" : ` Did you mean ${JSON.stringify(meant)}?`;
}

/** The optimal string alignment distance. Only the last two rows of the table are in memory. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const steps = [at(last, j) + 1, at(row, j - 1) + 1, at(last, j - 1) + same];
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) steps.push(at(beforeLast, j - 2) + 1);
      row.push(Math.min(...steps));
    }
    beforeLast = last;
    last = row;
  }
  return at(last, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}
