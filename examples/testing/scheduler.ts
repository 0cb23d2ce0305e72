/**
 * A small controller, and its tests: it assigns each pod without a node to the node n1. In its signature is what a test
 * needs to give it: a client, which also has the clock, and a signal to stop it.
 */
import { type Client, type Clock, jsonValues, runWorkers, WorkQueue } from "watch-fanout/client";

export interface Pod {
  readonly node: string;
}

/** Runs until the signal is aborted. Default of `clock`: the system time. */
export async function runScheduler(
  client: Client,
  signal: AbortSignal,
  clock?: Clock,
): Promise<void> {
  const pods = client.resource("pods", jsonValues<Pod>());
  const queue = new WorkQueue<string>({ clock });
  const informer = pods.informer({ onWatchError: () => {} });
  informer.addEventHandler({ onChange: (key) => queue.add(key) });
  informer.start();
  try {
    await runWorkers(1, queue, schedule, { signal, onError: () => {} });
  } finally {
    await informer.stop();
  }

  async function schedule(key: string): Promise<void> {
    const pod = informer.indexer.get(key);
    if (pod === undefined || pod.value.node !== "") return;
    // What fails, such as a conflict, is tried again after a pause.
    await pods.put(key, { node: "n1" }, { expectedModRevision: pod.modRevision });
  }
}
