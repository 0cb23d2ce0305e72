import type { WatchEvent } from "../../model/event.ts";
import { keySize } from "../../model/key-bytes.ts";
import type { JournalEntry } from "./journal.ts";
import type { CommitCall, SentEntry } from "./messages.ts";
import { recordCost, recordSize, writeRecord } from "./record.ts";

/** Encodes what a commit keeps: the records of its changes in one buffer, which can be moved to the thread. */
export function encodeCommit(entries: readonly JournalEntry[], elapsedMs: number): CommitCall {
  let size = 0;
  let count = 0;
  for (const entry of entries) {
    if (entry.type !== "changes") continue;
    count += entry.events.length;
    for (const event of entry.events) size += recordSize(event.object, event.type === "DELETED");
  }
  const records = Buffer.allocUnsafeSlow(size);
  const replaced = new Float64Array(count);
  const sent: SentEntry[] = [];
  let end = 0;
  let change = 0;
  for (const entry of entries) {
    if (entry.type !== "changes") {
      sent.push(entry);
      continue;
    }
    const { revision, events, request } = entry;
    if (events.length === 0) throw new RangeError(`Revision ${revision} has no changes.`);
    for (let i = 0; i < events.length; i++) {
      const event = events[i] as WatchEvent;
      const isLast = i === events.length - 1;
      end = writeRecord(records, end, event.object, i, event.type === "DELETED", isLast);
      replaced[change++] = costOfPrevious(event);
    }
    sent.push({ type: "changes", revision, count: events.length, request });
  }
  return { type: "commit", entries: sent, records, replaced, elapsedMs };
}

function costOfPrevious({ previous }: WatchEvent): number {
  return previous === undefined ? 0 : recordCost(recordSize(previous), keySize(previous.key));
}
