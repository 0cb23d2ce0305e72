import { writeSync } from "node:fs";
import { systemClock } from "../../../src/base/clock.ts";
import type { DataSync } from "../../../src/storage/journal/messages.ts";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";
import { JournalModel } from "./model.ts";

/*
 * A process that commits four times, and writes when it begins and ends each commit.
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
  await journal.commit([entry]);
  writeSync(2, `kept ${number}\n`);
}
await journal.close();
