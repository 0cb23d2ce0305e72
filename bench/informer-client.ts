/**
 * An informer over a connection, in its own process. Started by informer.ts, which sends it messages by IPC. Needs
 * `--expose-gc`.
 */
import { connect } from "../src/client/connect.ts";
import type { SharedInformer } from "../src/client/informer/shared-informer.ts";
import { bytes } from "../src/client/values/value-codec.ts";
import { answerParent } from "./child.ts";
import { cpuSeconds } from "./process-usage.ts";
import { resource } from "./servers.ts";

export type InformerQuestion =
  /** Connects, lists one object, and reports its process id: code that is loaded by then is not measured. */
  | { readonly do: "begin"; readonly address: string }
  /** Starts the informer and waits until it and its handler have synced. */
  | { readonly do: "sync" }
  /** Collects garbage and reports the retained bytes. */
  | { readonly do: "held" };

/** The result of a sync. */
export interface Synced {
  readonly objects: number;
  /** Time until all objects are in the Indexer, and the CPU of this process until then. */
  readonly seconds: number;
  readonly cpuSeconds: number;
  /** Time until the handler was called for each of them. */
  readonly handlerSeconds: number;
  readonly told: number;
}

let informer: SharedInformer<Uint8Array> | undefined;

answerParent<InformerQuestion>(async (question) => {
  if (question.do === "begin") return begin(question.address);
  if (question.do === "held") return held();
  if (informer === undefined) throw new Error("The informer has not been started.");
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
