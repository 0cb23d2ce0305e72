import { writeSync } from "node:fs";
import { systemClock } from "../../../src/base/clock.ts";
import { hasReason } from "../../../src/base/errors.ts";
import { JournalFault } from "../../../src/storage/journal/journal.ts";
import type { DataSync } from "../../../src/storage/journal/messages.ts";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { JournalModel } from "./model.ts";

/*
 * A process that commits four times, and writes when it begins and ends each commit, or what that fails with.
 */

const [, , file, sync] = process.argv;
const journal = await SqliteJournal.open(file as string, {
  clock: systemClock,
  sync: sync as DataSync,
});
const model = new JournalModel();
for (let number = 1; number <= 4; number++) {
  const entry = model.write([{ key: "a", value: Buffer.from(String(number)) }]);
  if (entry === undefined) throw new Error("no changes");
  writeSync(2, `commit ${number}\n`);
  try {
    await journal.commit([entry]);
    writeSync(2, `kept ${number}\n`);
  } catch (error) {
    const kind = error instanceof JournalFault ? "fault" : hasReason(error, "STORAGE_FULL");
    writeSync(2, `failed ${number}: ${kind}\n`);
    if (kind === true) model.takeBack();
  }
}
await journal.close();
