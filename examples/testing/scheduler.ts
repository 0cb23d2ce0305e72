/**
 * A small controller, and its tests: it assigns each pod without a node to the node n1. Its parameters are what a test has
 * to give it: a client, a signal that stops it, and a clock.
 */
import { type Client, type Clock, controller, jsonValues } from "watch-fanout/client";

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
  const scheduler = controller({
    for: pods,
    clock,
    onError: () => {},
    async reconcile(key, { object }) {
      if (object?.value.node !== "") return;
      // What fails, such as a conflict, is tried again after a pause.
      await pods.put(key, { node: "n1" }, { expectedModRevision: object.modRevision });
    },
  });
  await scheduler.run(signal);
}
