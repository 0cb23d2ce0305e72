import { hasReason } from "../errors.ts";
import type { Storage } from "../storage/storage.ts";

/** The revision is looked for until it is known as exactly as this part of where it may be. */
const precision = 1 / 32;

/**
 * The oldest revision from `oldest` up to `current` after which no more than `most` objects were made, as
 * far as the storage's counts tell, and about so. `oldest` itself where it does not count.
 *
 * A revision may have written hundreds of keys. To begin as many revisions back as history holds events would
 * then be to replay many times what it holds: of a store that was filled in bulk, all there is.
 */
export async function oldestWithin(
  most: number,
  source: { readonly storage: Storage; readonly prefix: string },
  oldest: number,
  current: number,
  signal: AbortSignal,
): Promise<number> {
  const { storage, prefix } = source;
  if (storage.count === undefined || oldest >= current) return oldest;
  const enough = (await storage.count(prefix, current, signal)) - most;
  if (enough <= 0) return oldest;
  const isWithin = async (revision: number): Promise<boolean> =>
    ((await storage.count?.(prefix, revision, signal)) ?? enough) >= enough;
  let tooOld = oldest;
  try {
    if (await isWithin(oldest)) return oldest;
  } catch (error) {
    if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
    const kept = Number(error.metadata["oldest_revision"] ?? Number.NaN);
    // Whoever lists there finds out anyway.
    if (!(kept > oldest && kept <= current)) return oldest;
    if (await isWithin(kept)) return kept;
    tooOld = kept;
  }
  let within = current;
  while (within - tooOld > Math.max(1, (current - oldest) * precision)) {
    const middle = Math.floor((tooOld + within) / 2);
    if (await isWithin(middle)) within = middle;
    else tooOld = middle;
  }
  return within;
}
