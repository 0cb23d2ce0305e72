import { describe, expect, it } from "vitest";
import { controller } from "../../../src/client/controller/controller.ts";
import type { KeyShard } from "../../../src/client/controller/controller-options.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { utf8 } from "../counters.ts";
import { outcome } from "../informer/outcome.ts";
import { Reconciled, run, serve } from "./controlled.ts";

const etcdOf = etcdOfFile();

/** Keys that are assigned by hand. */
class Assigned implements KeyShard {
  #keys: ReadonlySet<string>;
  #listener: (() => Promise<void>) | undefined;
  /** What the owner before has written. */
  since: { readonly revision: number; readonly historyId: string } | undefined;

  constructor(...keys: readonly string[]) {
    this.#keys = new Set(keys);
  }

  get isObserved(): boolean {
    return this.#listener !== undefined;
  }

  owns(key: string): boolean {
    return this.#keys.has(key);
  }

  ownedSince() {
    return this.since;
  }

  onChange(listener: () => Promise<void>): () => void {
    this.#listener = listener;
    return () => {
      this.#listener = undefined;
    };
  }

  /** Resolves when the lost keys can be given to others. */
  async assign(...keys: readonly string[]): Promise<void> {
    this.#keys = new Set(keys);
    await this.#listener?.();
  }
}

describe("A controller with a shard of the keys", () => {
  it("reconciles only its own, and those that it gets later", async () => {
    const { services } = await serve(await etcdOf());
    const shard = new Assigned("a");
    const reconciled = new Reconciled();
    for (const key of ["a", "b", "c"]) await services.put(key, { selector: "" });
    const controlled = controller({
      ...{ for: services, shard },
      reconcile: async (key) => reconciled.add(key),
    });
    const { stop } = run(controlled);
    await reconciled.times("a");
    const { modRevision } = await services.put("b", { selector: "1" });
    await controlled.waitForRevision(modRevision, { handlers: true });
    expect(reconciled.keys).toEqual(["a"]);
    await shard.assign("a", "b");
    await reconciled.times("b");
    await services.put("b", { selector: "2" });
    await reconciled.times("b", 2);
    // What another had meanwhile is due without a change, too: its work may have ended with it, or was to come later.
    await shard.assign("a");
    await shard.assign("a", "b", "c");
    await reconciled.times("c");
    await reconciled.times("b", 3);
    expect([...reconciled.keys].sort()).toEqual(["a", "b", "b", "b", "c"]);
    await stop();
    expect(shard.isObserved).toBe(false);
  });

  it("begins no key that it has lost while it was queued or delayed", async () => {
    const { services } = await serve(await etcdOf());
    const shard = new Assigned("a", "b", "c");
    const reconciled = new Reconciled();
    const gate = Promise.withResolvers<void>();
    const controlled = controller({
      ...{ for: services, shard },
      async reconcile(key) {
        reconciled.add(key);
        if (key === "a") await gate.promise;
        return key === "c" ? { requeueAfterMs: 1 } : undefined;
      },
    });
    run(controlled);
    await services.put("a", { selector: "" });
    await reconciled.times("a");
    await services.put("c", { selector: "" });
    const { modRevision } = await services.put("b", { selector: "" });
    await controlled.waitForRevision(modRevision, { handlers: true });
    expect(controlled.health().queued).toBe(2);
    const assigned = shard.assign("a", "d");
    gate.resolve();
    await assigned;
    await services.put("d", { selector: "" });
    await reconciled.times("d");
    expect(reconciled.keys).toEqual(["a", "d"]);
    await shard.assign("b", "d");
    await reconciled.times("b");
  });

  it("begins no key that it has lost while it waited for its own write", async () => {
    const { services, direct, relay } = await serve(await etcdOf());
    const shard = new Assigned("a");
    const reconciled = new Reconciled();
    const controlled = controller({
      ...{ for: services, shard },
      async reconcile(key) {
        await direct.put("pods", key, utf8("{}"));
        reconciled.add(key);
      },
    });
    run(controlled);
    await services.put("a", { selector: "" });
    await reconciled.times("a");
    relay.delay(200);
    controlled.enqueue("a");
    await expect.poll(() => controlled.health().reconciling).toEqual(["a"]);
    await shard.assign();
    expect(reconciled.keys).toEqual(["a"]);
    relay.delay(0);
    await shard.assign("a");
    await reconciled.times("a", 2);
  });

  it("reconciles a key that it gets with all that the owner before has written, though its informers are late", async () => {
    const { services, endpoints, direct, relay } = await serve(await etcdOf());
    const shard = new Assigned();
    const seen: unknown[] = [];
    const reconciled = new Reconciled();
    const controlled = controller({
      ...{ for: services, owns: [endpoints], shard },
      async reconcile(key, { lister }) {
        seen.push(lister(endpoints).get(key)?.value);
        reconciled.add(key);
      },
    });
    run(controlled);
    const { modRevision } = await services.put("a", { selector: "" });
    await controlled.waitForRevision(modRevision, { handlers: true });
    relay.delay(300);
    shard.since = await direct.put("endpoints", "a", utf8('{"pods":["p"]}'));
    await shard.assign("a");
    await reconciled.times("a");
    expect(seen[0]).toEqual({ pods: ["p"] });
    // A revision of another store says nothing of this one.
    shard.since = { revision: Number.MAX_SAFE_INTEGER, historyId: "another" };
    relay.delay(0);
    controlled.enqueue("a");
    await reconciled.times("a", 2);
  });

  it("waits again for a key that another one has had while it waited", async () => {
    const { endpoints, direct } = await serve(await etcdOf());
    const shard = new Assigned();
    const seen: unknown[] = [];
    const reconciled = new Reconciled();
    const controlled = controller({
      ...{ for: endpoints, shard },
      async reconcile(key, { object }) {
        seen.push(object?.value.pods);
        reconciled.add(key);
      },
    });
    run(controlled);
    const { modRevision } = await endpoints.put("a", { pods: [] });
    await controlled.waitForRevision(modRevision, { handlers: true });
    const { historyId } = await direct.page("endpoints");
    shard.since = { revision: modRevision + 1, historyId };
    await shard.assign("a");
    await expect.poll(() => controlled.health().reconciling, { interval: 5 }).toEqual(["a"]);
    shard.since = { revision: modRevision + 2, historyId };
    const { revision } = await direct.put("endpoints", "a", utf8('{"pods":["p"]}'));
    await controlled.waitForRevision(revision, { handlers: true });
    await direct.put("endpoints", "a", utf8('{"pods":["q"]}'));
    await reconciled.times("a");
    expect(seen[0]).toEqual(["q"]);
  });

  it("has given up a key that it has lost once its reconcile has ended", async () => {
    const { services } = await serve(await etcdOf());
    const shard = new Assigned("a", "b");
    const reconciled = new Reconciled();
    const gates = { a: Promise.withResolvers<void>(), b: Promise.withResolvers<void>() };
    const controlled = controller({
      ...{ for: services, shard, workers: 2 },
      async reconcile(key) {
        reconciled.add(key);
        await gates[key as "a" | "b"].promise;
      },
    });
    run(controlled);
    for (const key of ["a", "b"]) await services.put(key, { selector: "" });
    await reconciled.times("b");
    await controlled.drain();
    const assigned = shard.assign("b");
    const drained = controlled.drain();
    expect([await outcome(assigned), await outcome(drained)]).toEqual(["pending", "pending"]);
    gates.a.resolve();
    await assigned;
    await drained;
    // It has not waited for a key that is still its own.
    expect(controlled.health().reconciling).toEqual(["b"]);
    gates.b.resolve();
  });

  it("gets what was assigned before it runs", async () => {
    const { services } = await serve(await etcdOf());
    const shard = new Assigned();
    const reconciled = new Reconciled();
    const controlled = controller({
      ...{ for: services, shard, maxKeys: 2 },
      reconcile: async (key) => reconciled.add(key),
    });
    controlled.enqueue("a");
    controlled.enqueue("a");
    controlled.enqueue("b");
    expect(controlled.health().queued).toBe(0);
    expect(() => controlled.enqueue("c")).toThrow("2 keys, its maximum");
    await shard.assign("a");
    run(controlled);
    await reconciled.times("a");
    expect(reconciled.keys).toEqual(["a"]);
  });
});
