/** Keeps a state in the folder that it is given, reports when it is on disk, and never ends by itself. */
import { readdir } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/logger.ts";
import { FileStateKeeper } from "../../src/cache-files/state-keeper.ts";
import { WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { StoredObject } from "../../src/model/object.ts";

const [folder = ""] = process.argv.slice(2);
const keeper = new FileStateKeeper({
  ...{
    folder,
    name: "pods",
    identity: { prefix: "/pods/" },
    clock: systemClock,
    logger: silentLogger,
  },
});
await keeper.load(new AbortController().signal);
const objectAt = (revision: number): StoredObject =>
  new StoredObject("a", Buffer.from(String(revision)), 10, revision, 1, 0n);
keeper.replace({ historyId: "history-1", revision: 10, objects: [objectAt(10)] });
keeper.append(new WatchBatch(12, [new WatchEvent("MODIFIED", objectAt(12), objectAt(10))]));
while (!(await readdir(folder)).includes("1.snapshot")) await delay(10);
// What was appended is written within half a second.
await delay(1_000);
process.send?.("kept");
setInterval(() => {}, 60_000);
