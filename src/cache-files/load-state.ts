import { join } from "node:path";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import type { Turns } from "../base/turns.ts";
import type { WatchEvent } from "../model/event.ts";
import { compareKeys } from "../model/key-order.ts";
import type { StoredObject } from "../model/object.ts";
import { type FileHead, headBytes, otherThan, readHead, type StateIdentity } from "./blocks.ts";
import type { Disk, ReadableFile } from "./disk.ts";
import type { KeptState } from "./kept-state.ts";
import { inKeyOrder } from "./key-sorting.ts";
import { readLog } from "./log-file.ts";
import type { LogRecord } from "./records.ts";
import { readSnapshot } from "./snapshot-file.ts";

/*
 * The files of a cache:
 *
 *     N.snapshot   the objects at a revision
 *     N.log        the batches from a revision on: that of N.snapshot, if there is one, or the one at which the log before ends
 *     N.new        a snapshot that is not complete
 *
 * The state is that of the newest snapshot that can be read, and of all logs that follow on it without a gap. The logs before
 * the snapshot have older events. Logs follow on each other if their lineage is the same, and the later one begins at the
 * revision at which the earlier one ends: in one lineage there is one state at each revision. So it does not matter which
 * files were lost, or how much of the end of a log.
 */

const fileName = /^(\d+)\.(snapshot|log|new)$/;

export interface FileName {
  readonly name: string;
  readonly number: number;
  readonly kind: "snapshot" | "log" | "new";
}

/** The files of a cache in a folder, the oldest first. */
export function filesAmong(names: readonly string[]): readonly FileName[] {
  const files: FileName[] = [];
  for (const name of names) {
    const [, number, kind] = fileName.exec(name) ?? [];
    if (kind === undefined) continue;
    files.push({ name, number: Number(number), kind: kind as FileName["kind"] });
  }
  return files.sort((one, other) => one.number - other.number);
}

export interface Loading {
  readonly disk: Disk;
  readonly folder: string;
  readonly name: string;
  readonly identity: StateIdentity;
  /** Older events are not read above this size of their logs, in bytes. */
  readonly windowBytes: number;
  readonly maxEvents: number;
  /** Files from this number on are not read. */
  readonly below?: number | undefined;
  readonly turns: Turns;
  readonly signal: AbortSignal;
  /** Called with each file that is not used, and why. */
  readonly onUnused: (file: string, problem: string) => void;
}

/** A state, and the files that it is from. */
export interface LoadedState extends KeptState {
  readonly lineage: string;
  readonly snapshot: UsedFile;
  /** The oldest first. */
  readonly logs: readonly UsedFile[];
}

export interface UsedFile {
  readonly number: number;
  readonly bytes: number;
  /** The revision at its beginning. */
  readonly revision: number;
}

type ReadHead = FileHead & { readonly end: number };

/** Reads the newest state; undefined: nothing can be used. Rejects with the signal's reason, or the error of the disk. */
export async function loadState(loading: Loading): Promise<LoadedState | undefined> {
  const { disk, folder, below = Infinity } = loading;
  const files = filesAmong(await disk.list(folder)).filter(({ number }) => number < below);
  const logs = files.filter(({ kind }) => kind === "log");
  for (const file of files.filter(({ kind }) => kind === "snapshot").reverse()) {
    const read = await readSnapshotFile(loading, file);
    if (read === undefined) continue;
    const state = new ReplayedState(read.head, read.objects);
    const after = await replay(
      loading,
      state,
      logs.filter(({ number }) => number >= file.number),
    );
    const before = await olderLogs(
      loading,
      read.head,
      logs.filter(({ number }) => number < file.number),
    );
    const objects = await loading.turns.run(state, state.merged(), loading.signal);
    const events = before.flatMap(({ events: older }) => older).concat(state.events);
    const oldest = before[0]?.file.revision ?? read.head.revision;
    // An atomic batch leaves events out.
    const eventsAfter = state.eventsAfter ?? oldest;
    return {
      ...{
        historyId: state.historyId,
        revision: state.revision,
        syncedAt: state.syncedAt,
        objects,
      },
      ...newestEvents(events, eventsAfter, loading.maxEvents),
      lineage: read.head.lineage,
      snapshot: { number: file.number, bytes: read.bytes, revision: read.head.revision },
      logs: [...before.map(({ file: older }) => older), ...after],
    };
  }
  return undefined;
}

interface ReadFile {
  readonly head: ReadHead;
  readonly objects: StoredObject[];
  readonly bytes: number;
}

async function readSnapshotFile(
  loading: Loading,
  { name }: FileName,
): Promise<ReadFile | undefined> {
  const { disk, folder, turns, signal } = loading;
  const file = await disk.openToRead(join(folder, name));
  try {
    const bytes = await file.size();
    const start = Buffer.allocUnsafe(Math.min(bytes, headBytes));
    await file.read(start, 0);
    const head = checkedHead(loading, name, start);
    if (head === undefined) return undefined;
    const objects = await readSnapshot(file, bytes, head, turns, signal);
    if (objects !== undefined) return { head, objects, bytes };
    loading.onUnused(name, "it is damaged");
    return undefined;
  } finally {
    await closed(file);
  }
}

function checkedHead(loading: Loading, name: string, start: Buffer): ReadHead | undefined {
  const head = readHead(start);
  const problem =
    head === undefined ? "it is damaged" : otherThan(head, loading.name, loading.identity);
  if (problem === undefined) return head;
  loading.onUnused(name, problem);
  return undefined;
}

/** Applies the logs that follow on the state. Returns those that do. */
async function replay(
  loading: Loading,
  state: ReplayedState,
  logs: readonly FileName[],
): Promise<readonly UsedFile[]> {
  const used: UsedFile[] = [];
  for (const { name, number } of logs) {
    const read = await readLogFile(loading, name);
    if (read === undefined || read.head.lineage !== state.lineage) continue;
    const { head, bytes } = read;
    // After a damaged part of another log.
    if (head.revision !== state.revision) continue;
    state.historyId = head.historyId;
    const take = (record: LogRecord): void => state.take(record);
    await loading.turns.run(state, readLog(bytes, head, take), loading.signal);
    state.cut();
    used.push({ number, bytes: bytes.length, revision: head.revision });
  }
  return used;
}

interface OlderLog {
  readonly file: UsedFile;
  readonly events: readonly WatchEvent[];
}

/** The logs that end where the snapshot begins, the oldest first, within the bound of their size. */
async function olderLogs(
  loading: Loading,
  snapshot: ReadHead,
  logs: readonly FileName[],
): Promise<readonly OlderLog[]> {
  const older: OlderLog[] = [];
  let { revision } = snapshot;
  let size = 0;
  for (const { name, number } of logs.toReversed()) {
    if (size >= loading.windowBytes) break;
    const read = await readLogFile(loading, name);
    if (read === undefined || read.head.lineage !== snapshot.lineage) break;
    const { head, bytes } = read;
    const log = new ReplayedState(head, []);
    const take = (record: LogRecord): void => log.take(record);
    await loading.turns.run(log, readLog(bytes, head, take), loading.signal);
    log.cut();
    if (log.revision !== revision || log.eventsAfter !== undefined) break;
    size += bytes.length;
    const file = { number, bytes: bytes.length, revision: head.revision };
    older.unshift({ file, events: log.events });
    revision = head.revision;
  }
  return older;
}

async function readLogFile(
  loading: Loading,
  name: string,
): Promise<{ readonly head: ReadHead; readonly bytes: Buffer } | undefined> {
  const file = await loading.disk.openToRead(join(loading.folder, name));
  try {
    const bytes = Buffer.allocUnsafeSlow(await file.size());
    await file.read(bytes, 0);
    loading.signal.throwIfAborted();
    const head = checkedHead(loading, name, bytes);
    return head && { head, bytes };
  } finally {
    await closed(file);
  }
}

/** What was read is right, whether or not the file can be closed. */
async function closed(file: ReadableFile): Promise<void> {
  await file.close().catch(() => {});
}

/** The newest events, whole revisions only, and the revision that all of them follow. */
function newestEvents(
  events: readonly WatchEvent[],
  eventsAfter: number,
  maxEvents: number,
): Pick<KeptState, "events" | "eventsAfter"> {
  const dropped = events[events.length - maxEvents - 1];
  const after = Math.max(eventsAfter, dropped?.revision ?? 0);
  const first = events.findIndex(({ revision }) => revision > after);
  return { events: first < 0 ? [] : events.slice(first), eventsAfter: after };
}

/** The state of a snapshot, and what logs have changed since. */
class ReplayedState {
  readonly lineage: string;
  readonly #objects: StoredObject[];
  /** The newest object of each key that has changed; undefined: it was deleted. */
  readonly #changes = new Map<string, StoredObject | undefined>();
  /** The events of an atomic batch that is not complete. */
  #open: WatchEvent[] = [];
  events: WatchEvent[] = [];
  /** The revision of the last atomic batch, of which not every event is there; undefined: all batches have every event. */
  eventsAfter: number | undefined;
  historyId: string;
  revision: number;
  syncedAt: number;

  constructor(head: FileHead, objects: StoredObject[]) {
    this.lineage = head.lineage;
    this.historyId = head.historyId;
    this.revision = head.revision;
    this.syncedAt = head.syncedAt;
    this.#objects = objects;
  }

  take(record: LogRecord): void {
    if ("historyId" in record) {
      this.historyId = record.historyId;
      return;
    }
    const { revision, events, isAtomic, syncedAt } = record;
    for (const event of events) this.#open.push(event);
    if (revision === undefined) return;
    for (const event of this.#open) this.#apply(event);
    if (isAtomic) {
      this.events = [];
      this.eventsAfter = revision;
    } else {
      for (const event of this.#open) this.events.push(event);
    }
    this.#open = [];
    this.revision = revision;
    this.syncedAt = syncedAt;
  }

  /** Drops an atomic batch that the end of a log has cut off. */
  cut(): void {
    this.#open = [];
  }

  /** The objects in key order. Uses the state up. */
  *merged(): TimeSlicedWork<readonly StoredObject[]> {
    if (this.#changes.size === 0) return this.#objects;
    const before = this.#objects;
    const changes = yield* inKeyOrder([...this.#changes]);
    const merged: StoredObject[] = [];
    let at = 0;
    for (const [key, object] of changes) {
      while (at < before.length && compareKeys((before[at] as StoredObject).key, key) < 0) {
        merged.push(before[at++] as StoredObject);
        if (at % objectsPerStep === 0) yield;
      }
      if (before[at]?.key === key) at++;
      if (object !== undefined) merged.push(object);
    }
    for (; at < before.length; at++) {
      merged.push(before[at] as StoredObject);
      if (at % objectsPerStep === 0) yield;
    }
    return merged;
  }

  #apply({ type, object }: WatchEvent): void {
    this.#changes.set(object.key, type === "DELETED" ? undefined : object);
  }
}

const objectsPerStep = 512;
