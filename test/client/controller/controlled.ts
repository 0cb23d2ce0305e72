import { onTestFinished } from "vitest";
import type { Controller } from "../../../src/client/controller/controller.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { Changing, inTime } from "../../faults/patience.ts";
import { serveResources } from "../served-resources.ts";

export interface Service {
  readonly selector: string;
}

export interface Pod {
  readonly service: string;
}

export interface Endpoints {
  readonly pods: readonly string[];
}

const services = jsonValues<Service>((parsed) => {
  const { selector } = parsed as Partial<Service>;
  if (typeof selector !== "string") throw new TypeError("It has no selector.");
  return { selector };
});
const endpoints = jsonValues<Endpoints>((parsed) => {
  const { pods } = parsed as Partial<Endpoints>;
  if (pods === undefined) throw new TypeError("It has no pods.");
  return { pods };
});

/** Services, pods and endpoints of one etcd, over a connection that can be disturbed. */
export async function serve(etcd: Etcd) {
  const { client, relay, direct } = await serveResources(etcd, ["services", "pods", "endpoints"]);
  return {
    client,
    relay,
    direct,
    services: client.resource("services", services),
    pods: client.resource("pods", jsonValues<Pod>()),
    endpoints: client.resource("endpoints", endpoints),
  };
}

/** The keys that were reconciled, in order. */
export class Reconciled {
  readonly keys: string[] = [];
  readonly #changing = new Changing();

  add(key: string): void {
    this.keys.push(key);
    this.#changing.changed();
  }

  /** Resolves once the key was reconciled so often. */
  async times(key: string, times: number = 1): Promise<void> {
    await inTime(
      () => `${times} reconciles of ${key}, not ${this.keys}`,
      this.#changing.until(() => this.keys.filter((each) => each === key).length >= times),
    );
  }

  clear(): void {
    this.keys.length = 0;
  }
}

/** Runs a controller until the test has finished, or it is stopped. */
export function run(controller: Controller) {
  const stopping = new AbortController();
  const running = controller.run(stopping.signal);
  // A test looks at it, or not.
  running.catch(() => {});
  const stop = (): Promise<void> => {
    stopping.abort();
    return running;
  };
  onTestFinished(() => stop().catch(() => {}));
  return { running, stop };
}
