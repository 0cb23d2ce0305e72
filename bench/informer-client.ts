/**
 * An informer over a connection in a process of its own. Started by informer.ts and spoken to over IPC. Needs
 * `--expose-gc`.
 */
import { connect } from "../src/client/client.ts";
import type { SharedInformer } from "../src/client/informer/shared-informer.ts";
import { bytes } from "../src/client/values/value-codec.ts";
import { answerParent } from "./child.ts";
import { cpuSeconds } from "./process-usage.ts";
import { resource } from "./requests.ts";

export type InformerQuestion =
  /** Connects, lists one object, and says who it is: what is loaded by then is not measured. */
  | { readonly do: "begin"; readonly address: string }
  /** Starts the informer and waits until it has synced, and its handler too. */
  | { readonly do: "sync" }
  /** Collects garbage, and says how many bytes are held then. */
  | { readonly do: "held" };

/** What the informer's process says of a sync. */
export interface Synced {
  readonly objects: number;
  /** Until all objects were in the Indexer, and the CPU of this process for it. */
  readonly seconds: number;
  readonly cpuSeconds: number;
  /** Until a handler had been told of each of them as well. */
  readonly handlerSeconds: number;
  readonly told: number;
}

let informer: SharedInformer<Uint8Array> | undefined;

answerParent<InformerQuestion>(async (question) => {
  if (question.do === "begin") return begin(question.address);
  if (question.do === "held") return held();
  if (informer === undefined) throw new Error("It has not begun.");
  return sync(informer);
});

async function begin(address: string): Promise<number> {
  const objects = connect({ address }).resource(resource, bytes);
  informer = objects.informer();
  for await (const _page of objects.list({ prefix: "0000000", pageSize: 1 })) break;
  return process.pid;
}

function held(): number {
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function sync(informer: SharedInformer<Uint8Array>): Promise<Synced> {
  let told = 0;
  const handler = informer.addEventHandler({ onAdd: () => told++ });
  const started = performance.now();
  const cpuBefore = cpuSeconds(process.pid);
  informer.start();
  await informer.waitForSync();
  const seconds = (performance.now() - started) / 1_000;
  const cpu = cpuSeconds(process.pid) - cpuBefore;
  await handler.waitForSync();
  const handlerSeconds = (performance.now() - started) / 1_000;
  const { size: objects } = informer.indexer;
  return { objects, seconds, cpuSeconds: cpu, handlerSeconds, told };
}
