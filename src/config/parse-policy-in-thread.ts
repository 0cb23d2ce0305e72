import { Worker } from "node:worker_threads";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { waitFor } from "../base/wait.ts";
import { PassingFailure } from "../base/watched-files.ts";
import type { ParsedPolicy } from "./parse-policy.ts";

/** How long a policy may take to parse, in milliseconds. The largest takes a second or two. */
const maxMs = 30_000;

/** Maximum size of the thread's heap, in MiB. The largest policy takes about half of it. */
const maxHeapMb = 256;

const worker = import.meta.url.endsWith(".ts") ? "./policy-worker.ts" : "./policy-worker.js";

/**
 * Like `parsePolicy`, in a thread: a service that is running must not pause for a large file. Rejects with a
 * PassingFailure if the policy takes too much time or memory: another time the machine may have more.
 */
export function parsePolicyInThread(
  name: string,
  content: Uint8Array,
  clock: Clock,
): Promise<ParsedPolicy> {
  const thread = new Worker(new URL(worker, import.meta.url), {
    workerData: { name, content },
    resourceLimits: { maxOldGenerationSizeMb: maxHeapMb },
  });
  thread.unref();
  const failed = (why: string) => new PassingFailure(`${name}: ${why}`);
  const expire = (): never => {
    throw failed(`took longer than ${maxMs / 1_000} s to parse.`);
  };
  return waitFor<ParsedPolicy>(
    (resolve, reject) => {
      thread.once("message", resolve);
      thread.once("error", (error: unknown) => {
        reject(failed(`can't be parsed: ${messageOf(error)}`));
      });
      thread.once("exit", () => reject(failed("its thread has ended.")));
      return () => void thread.terminate();
    },
    { deadline: { clock, ms: maxMs, expire } },
  );
}
