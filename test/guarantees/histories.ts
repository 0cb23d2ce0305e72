import { brokenBy, linearizable, type SeenRead } from "./guarantees.ts";
import { historyOfKey, type SeenHistory } from "./key-history.ts";
import { type Change, type Sequence, unitsOf } from "./recording.ts";

/** A sequence of streams of one of several histories that a store has had. */
export interface SequenceInTime {
  readonly sequence: Sequence;
  /** The first and the last of the histories that it can be of, by when it began and when it ended. */
  readonly fromEra: number;
  readonly toEra: number;
  /** The newest revision acknowledged before it began, in the first of them; undefined: it is not known. */
  readonly notBefore?: number | undefined;
}

export interface ReadInTime {
  readonly read: SeenRead;
  readonly fromEra: number;
  readonly toEra: number;
}

/** Deliveries, and the histories that all of them may belong to. */
interface Explained {
  /** None: it is of no history, or mixes them. */
  readonly eras: readonly number[];
  /** The violations by the history that explains it best; empty if one explains it. */
  readonly wrong: readonly string[];
}

/** By history: what happened in it. */
export type Eras = readonly (readonly Change[])[];

/** By history: its last revision, also of keys of no resource. A response above it is of another one. None: not known. */
export type LastRevisions = readonly number[];

/** Every promise about a stream, and that it begins with what was so when it was asked for. */
export function explainSequence(
  delivered: SequenceInTime,
  eras: Eras,
  lasts: LastRevisions = [],
): Explained {
  const reached = Math.max(0, ...delivered.sequence.streams.flatMap(unitsOf).map(revisionOf));
  return explain(delivered, eras, (changes, isFirst, era) => [
    ...beyond(reached, lasts[era]),
    ...brokenBy(delivered.sequence, changes),
    ...beginning(delivered.sequence, changes, isFirst ? (delivered.notBefore ?? 0) : 0),
  ]);
}

export function explainRead(
  delivered: ReadInTime,
  eras: Eras,
  lasts: LastRevisions = [],
): Explained {
  const { read } = delivered;
  return explain(delivered, eras, (changes, isFirst, era) => {
    const notBefore = isFirst ? read.notBefore : 0;
    const wrong = linearizable({ ...read, notBefore }, changes);
    return [...beyond(read.revision, lasts[era]), ...wrong.map((what) => `Linearizable: ${what}`)];
  });
}

/** The history of a key, and of which of the store's it may be. */
export interface HistoryInTime {
  readonly history: SeenHistory;
  readonly fromEra: number;
  readonly toEra: number;
}

export function explainHistory(
  delivered: HistoryInTime,
  eras: Eras,
  lasts: LastRevisions = [],
): Explained {
  const { history } = delivered;
  const [{ revision = 0 } = {}] = history.pages;
  return explain(delivered, eras, (changes, isFirst, era) => {
    const notBefore = isFirst ? history.notBefore : 0;
    const wrong = historyOfKey({ ...history, notBefore }, changes);
    return [...beyond(revision, lasts[era]), ...wrong.map((what) => `Complete: ${what}`)];
  });
}

function revisionOf({ revision }: { readonly revision: number }): number {
  return revision;
}

/** A history that has not reached the revision does not explain it. */
function beyond(revision: number, last: number = Infinity): string[] {
  return revision > last ? [`OneHistory: ${revision} is above its last revision, ${last}`] : [];
}

function explain(
  { fromEra, toEra }: { readonly fromEra: number; readonly toEra: number },
  eras: Eras,
  check: (changes: readonly Change[], isFirst: boolean, era: number) => readonly string[],
): Explained {
  const found: number[] = [];
  let best: readonly string[] | undefined;
  for (let era = fromEra; era <= toEra; era++) {
    const wrong = check(eras[era] ?? [], era === fromEra, era);
    if (wrong.length === 0) found.push(era);
    if (best === undefined || wrong.length < best.length) best = wrong;
  }
  return { eras: found, wrong: found.length > 0 ? [] : (best ?? ["It is of no time."]) };
}

/**
 * Linearizable: the initial state, or the bookmark that a stream from now begins with, is not older than
 * what had been acknowledged; and the state is the state.
 */
function beginning(
  { view, streams }: Sequence,
  changes: readonly Change[],
  notBefore: number,
): string[] {
  const [first] = streams.flatMap(unitsOf);
  if (first === undefined) return [];
  const { revision, events, initial } = first;
  if (!initial) {
    const isLate = revision < notBefore;
    return isLate ? [`Linearizable: it begins at ${revision}, before ${notBefore}`] : [];
  }
  const added = events.filter(({ type }) => type !== "ADDED").map(({ object }) => object.key);
  const objects = events.map(({ object }) => object);
  return [
    ...added.map((key) => `Typed: ${JSON.stringify(key)} of the initial state is not ADDED`),
    ...linearizable({ view, notBefore, revision, objects }, changes).map(
      (wrong) => `Linearizable: ${wrong}`,
    ),
  ];
}

/** A delivery under the id of a history. */
export interface Named {
  readonly historyId: string;
  /** The histories that explain it. */
  readonly eras: readonly number[];
  /** For messages. */
  readonly what: string;
}

/**
 * One id names one history: everything delivered under it is explained by the same one. An empty id
 * names none.
 */
export function oneHistoryEach(delivered: readonly Named[]): string[] {
  const possible = new Map<string, readonly number[]>();
  const wrong: string[] = [];
  for (const { historyId, eras, what } of delivered) {
    if (historyId === "" || eras.length === 0) continue;
    const before = possible.get(historyId) ?? eras;
    const both = before.filter((era) => eras.includes(era));
    possible.set(historyId, both.length > 0 ? both : before);
    if (both.length === 0) {
      wrong.push(
        `OneHistory: ${historyId} names history ${eras} to ${what} and also history ${before}`,
      );
    }
  }
  return wrong;
}

/** How a stream ended by itself. */
export interface Ending {
  /** gRPC's; -1: the connection was lost. */
  readonly code: number;
  /** The reason in google.rpc.ErrorInfo; empty if absent. */
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** The last resume point that it delivered. */
  readonly resumePoint: number | undefined;
  /** Whether the client may have dropped messages that it had received before the end. */
  readonly isCutOff: boolean;
}

/**
 * Honest: a stream ends with an error that says why, for one of the reasons that there were; and where it
 * names the revision to resume from, that is the last one that it delivered, or, if messages were dropped, a later one.
 */
export function honestEnd(end: Ending, reasons: ReadonlySet<string>): string[] {
  const { code, reason, metadata, resumePoint, isCutOff } = end;
  if (code === 0) return ["Honest: it ended as if all were said"];
  if (code !== -1 && reason === "") return [`Honest: it ended with code ${code} and no reason`];
  const named = metadata["resume_revision"];
  const isNamedRight =
    named === undefined ||
    Number(named) === resumePoint ||
    (isCutOff && Number(named) > (resumePoint ?? 0));
  return [
    ...(reason === "" || reasons.has(reason)
      ? []
      : [`Honest: it ended as ${reason} for no reason`]),
    ...(isNamedRight
      ? []
      : [`Honest: it ended at ${named}, having delivered up to ${resumePoint}`]),
  ];
}
