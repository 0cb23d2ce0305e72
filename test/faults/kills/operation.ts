/** A write that a client of the embedded store has begun, and what it knows of it. */
export interface Operation {
  /** Stands in the values that it puts, as `"write":"ID"`, and in no other. */
  readonly id: string;
  readonly puts: readonly string[];
  readonly deletes: readonly string[];
  /** All objects below it are deleted. */
  readonly deletePrefix?: string | undefined;
  /** The granted lease of what it puts. */
  readonly lease?: bigint | undefined;
  /** What it puts has a lease of its own, of this length. */
  readonly ttlSeconds?: number | undefined;
  /** This lease ends. */
  readonly revokes?: bigint | undefined;
  /** With what it is repeated if its outcome is unknown. */
  readonly requestId?: string | undefined;
  /** The newest revision that any client had seen when it began: it is done later. */
  readonly after: number;
  /** In the milliseconds of `performance.now`. */
  readonly begunAt: number;
  endedAt?: number | undefined;
  outcome: "acknowledged" | "refused" | "unknown";
  /** Of an acknowledged one. */
  revision?: number | undefined;
  /** Of an acknowledged DeletePrefix: how many it deleted. */
  deleted?: number | undefined;
  /** The object that a refusal has shown. */
  conflict?: { readonly key: string; readonly modRevision: number } | undefined;
}
