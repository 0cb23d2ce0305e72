import { isDeepStrictEqual } from "node:util";
import { type Change, type SeenEvent, shortEvent, shown, type View } from "./recording.ts";

/** A page of the history of a key. */
export interface HistoryPage {
  readonly revision: number;
  readonly events: readonly SeenEvent[];
  /** Of the next page; empty: this is the last one. */
  readonly token: string;
  readonly historyId: string;
  /** Undefined: older changes follow on the next page. */
  readonly end: "CREATION" | "COMPACTION" | "LIMIT" | undefined;
  readonly oldestRevision: number;
}

/** What was asked for, and all pages that came; or those until one failed, or was not requested. */
export interface SeenHistory {
  readonly key: string;
  readonly view: View;
  /** 0: none was asked for. */
  readonly upTo: number;
  /** The newest revision that was acknowledged before the first page was requested. */
  readonly notBefore: number;
  /** Maximum number of changes of a page; 0: not limited. */
  readonly size: number;
  readonly pages: readonly HistoryPage[];
  /** The revision of the newest compaction until the last page came; below 1: there was no compaction. */
  readonly compacted: number;
}

/**
 * The pages together are the changes of the key, the newest first, without gap or repetition, as far back as the store had
 * them: what is missing is what was compacted, which the last page reports.
 */
export function historyOfKey(seen: SeenHistory, changes: readonly Change[]): string[] {
  const { key, view, upTo, notBefore, pages } = seen;
  const revision = pages[0]?.revision ?? 0;
  const isLate = upTo === 0 ? revision < notBefore : revision !== upTo;
  const wanted = changes
    .filter((change) => change.key === key && change.revision <= revision)
    .map((change) => eventOf(change, view))
    .reverse();
  const events = pages.flatMap((page) => page.events);
  const differs = events.findIndex((event, i) => !isDeepStrictEqual(event, wanted[i]));
  const [found, right] = [events[differs], wanted[differs]].map((event) =>
    event === undefined ? "none" : shortEvent(event),
  );
  return [
    ...(isLate ? [`it is of ${revision}, and ${upTo || notBefore} was asked for`] : []),
    ...(differs < 0 ? [] : [`change ${differs} is ${found}, and was ${right}`]),
    ...wrongInPages(seen, revision),
    ...(differs < 0 ? wrongAtEnd(seen, wanted) : []),
  ];
}

function wrongInPages({ pages, size }: SeenHistory, revision: number): string[] {
  return pages.flatMap((page, i) => {
    const isLast = page.token === "";
    return [
      ...(page.revision === revision ? [] : [`page ${i} is of ${page.revision}, not ${revision}`]),
      ...(size === 0 || page.events.length <= size ? [] : [`page ${i} is too large`]),
      ...(isLast === (page.end !== undefined) ? [] : [`page ${i} ends as ${page.end}`]),
    ];
  });
}

/** `wanted`: all changes up to the revision, the newest first, with which those of the pages begin. */
function wrongAtEnd({ pages, compacted }: SeenHistory, wanted: readonly SeenEvent[]): string[] {
  const last = pages.at(-1);
  if (last === undefined || last.token !== "") return [];
  const { end, oldestRevision: oldest } = last;
  const events = pages.flatMap((page) => page.events);
  const missing = wanted.slice(events.length).find(({ object }) => object.modRevision > oldest);
  const begins = events.at(-1)?.type ?? "ADDED";
  const right = begins === "ADDED" ? "CREATION" : "COMPACTION";
  return [
    ...(missing ? [`${shortEvent(missing)} is missing, and all after ${oldest} are known`] : []),
    ...(oldest <= Math.max(1, compacted)
      ? []
      : [`it ends at ${oldest}, and the store was compacted up to ${compacted}`]),
    ...(end === right ? [] : [`it ends with ${begins}, as if by ${end}`]),
  ];
}

function eventOf({ revision, before, after }: Change, view: View): SeenEvent {
  if (after === undefined) {
    const object = before && shown({ ...before, modRevision: revision }, view);
    if (object === undefined) throw new RangeError(`What was deleted at ${revision} is not known.`);
    return { type: "DELETED", object, previous: undefined };
  }
  const type = after.createRevision === after.modRevision ? "ADDED" : "MODIFIED";
  return { type, object: shown(after, view), previous: undefined };
}
