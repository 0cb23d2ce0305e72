import { systemClock } from "../../../src/base/clock.ts";
import { SqliteJournal } from "../../../src/storage/journal/sqlite-journal.ts";

/*
 * A process that has the data file of its argument open until it is killed.
 */

await SqliteJournal.open(process.argv[2] as string, { clock: systemClock });
process.stdout.write("open\n");
process.stdin.resume();
