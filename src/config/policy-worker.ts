import { parentPort, workerData } from "node:worker_threads";
import { parsePolicy } from "./parse-policy.ts";

/*
 * The thread of parse-policy-in-thread.ts: parses the policy that it gets, and posts the result.
 */

const { name, content }: { name: string; content: Uint8Array } = workerData;
parentPort?.postMessage(parsePolicy(name, content));
