import { parentPort, workerData } from "node:worker_threads";
import type { ThreadTask } from "../messages.ts";
import { serveJournal } from "./journal-service.ts";

/*
 * The thread of a SqliteJournal: executes its calls on the data file.
 */

const task: ThreadTask = workerData;
if (parentPort !== null) serveJournal(task, parentPort);
