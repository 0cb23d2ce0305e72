import { honest } from "../guarantees/guarantees.ts";
import {
  type Eras,
  explainHistory,
  explainRead,
  explainSequence,
  honestEnd,
  type Named,
  oneHistoryEach,
} from "../guarantees/histories.ts";
import { faithful, WritesDone } from "../guarantees/writes.ts";
import type { RecordedHistory } from "./history-reader.ts";
import type { RecordedReader } from "./recorded-reader.ts";
import type { RecordedWriter } from "./recorded-writer.ts";
import type { Truth } from "./truth.ts";
import type { WatchRecord } from "./watch-record.ts";

/** What happened in a world, as its clients and etcd have recorded it. */
export interface Observations {
  readonly truth: Pick<Truth, "era" | "eras">;
  readonly watchers: readonly WatchRecord[];
  readonly writers: readonly RecordedWriter[];
  readonly reader: Pick<RecordedReader, "reads" | "failed"> & {
    readonly histories?: readonly RecordedHistory[];
  };
  /** Why streams may end. */
  readonly reasons: ReadonlySet<string>;
  /** Every watcher has received everything up to this revision. */
  readonly level: number;
  /** By history of etcd. Default: not known. */
  readonly lastRevisions?: readonly number[];
  /** Whether an operator has put another id into the marker key at each restore. Default: not. */
  readonly areRestoresMarked?: boolean;
}

/** The checkers of all guarantees, over everything that the clients of a world received. Empty: no violation. */
export function wrongIn(world: Observations): string[] {
  const eras = world.truth.eras.map(({ changes }) => changes);
  const named: Named[] = [];
  return [
    ...wrongInWatches(world, eras, named),
    ...wrongInReads(world, eras, named),
    ...wrongInHistories(world, eras, named),
    ...wrongInWrites(world, eras, named),
    ...oneHistoryEach(named),
  ];
}

function wrongInWatches(world: Observations, eras: Eras, named: Named[]): string[] {
  const wrong: string[] = [];
  for (const watcher of world.watchers) {
    // A LATEST_STATE stream continues across events that its replica has missed. Which these are differs by replica,
    // and checked in test/model.
    if (watcher.continuesAfterLoss && world.reasons.has("HISTORY_LOST")) continue;
    for (const recorded of watcher.sequences) {
      const { fromEra, toEra, begins, historyId } = recorded;
      const sequence = watcher.sequenceOf(recorded);
      const observed = { sequence, fromEra, toEra, notBefore: begins?.notBefore };
      const explained = explainSequence(observed, eras, world.lastRevisions);
      wrong.push(...explained.wrong.map((what) => `${watcher.name}: ${what}`));
      named.push({ historyId, eras: explained.eras, what: watcher.name });
    }
    for (const end of watcher.ends) {
      const said = `${watcher.name}, by ${end.endpoint}, "${end.message}"`;
      wrong.push(...honestEnd(end, world.reasons).map((what) => `${said}: ${what}`));
    }
    const live = watcher.sequences.at(-1);
    if (live === undefined) continue;
    const { changes } = world.truth.era;
    wrong.push(
      ...honest(watcher.sequenceOf(live), changes, world.level).map(
        (what) => `${watcher.name}: Honest: ${what}`,
      ),
    );
  }
  return wrong;
}

function wrongInReads(world: Observations, eras: Eras, named: Named[]): string[] {
  const wrong: string[] = [];
  for (const { historyId, what, ...observed } of world.reader.reads) {
    const explained = explainRead(observed, eras, world.lastRevisions);
    wrong.push(...explained.wrong.map((broken) => `${what}: ${broken}`));
    // A replica that had not come to the snapshot follows the new history under the old id, until a replica that had
    // come further has detected it and replaced the id.
    const isNamed = world.areRestoresMarked === true || observed.fromEra === observed.toEra;
    if (isNamed) named.push({ historyId, eras: explained.eras, what });
  }
  for (const { what, code, reason, message } of world.reader.failed) {
    const end = { code, reason, metadata: {}, resumePoint: undefined, isCutOff: false };
    // A call that took too long was ended by gRPC.
    if (code === 4) continue;
    wrong.push(
      ...honestEnd(end, world.reasons).map((broken) => `${what}, "${message}": ${broken}`),
    );
  }
  return wrong;
}

function wrongInHistories(world: Observations, eras: Eras, named: Named[]): string[] {
  const { histories = [] } = world.reader;
  return histories.flatMap(({ historyId, what, ...observed }) => {
    const explained = explainHistory(observed, eras, world.lastRevisions);
    // As for other reads.
    const isNamed = world.areRestoresMarked === true || observed.fromEra === observed.toEra;
    if (isNamed) named.push({ historyId, eras: explained.eras, what });
    return explained.wrong.map((broken) => `${what}: ${broken}`);
  });
}

function wrongInWrites(world: Observations, eras: Eras, named: Named[]): string[] {
  const done = eras.map((changes) => new WritesDone(changes));
  return world.writers.flatMap(({ writes }) =>
    writes.flatMap((write) => {
      // A write in progress when etcd was restored may belong to either history.
      const found = done[write.fromEra];
      if (write.fromEra !== write.toEra || found === undefined) return [];
      if (write.outcome === "acknowledged") {
        named.push({ historyId: write.historyId ?? "", eras: [write.fromEra], what: write.id });
      }
      return faithful(write, found).map((what) => `Faithful: ${what}`);
    }),
  );
}
