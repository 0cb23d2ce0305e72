import { expect, it } from "vitest";
import { revisionTooOld } from "../../../src/base/errors.ts";
import { ObjectCache, ObjectManager } from "../../../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { ScriptedClient } from "./scripted-client.ts";

interface Value {
  readonly n: number;
  readonly frozen: boolean;
}

interface Consumer {
  readonly id: string;
  readonly keys: readonly string[];
}

type Step =
  | { readonly do: "add" | "delete" | "break"; readonly key: string }
  | { readonly do: "deliver"; readonly key: string; readonly frozen: boolean }
  | { readonly do: "register"; readonly consumer: Consumer }
  | { readonly do: "unregister"; readonly id: string };

const key = fc.constantFrom("a", "b", "c", "d", "e", "f");
const id = fc.constantFrom("x", "y", "z");
const consumer = fc.record({ id, keys: fc.array(key, { maxLength: 6 }) });

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant("add"), key }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("delete"), key }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("break"), key }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("deliver"), key, frozen: fc.boolean() }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("register"), consumer }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("unregister"), id }) },
);

/** The expected state of one key with references. */
interface Known {
  references: number;
  served: Value | undefined;
}

/** The naive model: counts references. */
class Model {
  readonly known = new Map<string, Known>();
  readonly consumers = new Map<string, Set<string>>();
  watches = 0;

  add(key: string): void {
    const known = this.known.get(key) ?? { references: 0, served: undefined };
    if (known.references === 0) this.watches++;
    known.references++;
    this.known.set(key, known);
  }

  delete(key: string): void {
    const known = this.known.get(key);
    if (known === undefined) return;
    known.references--;
    if (known.references === 0) this.known.delete(key);
  }

  register({ id, keys }: Consumer): void {
    const old = this.consumers.get(id) ?? new Set();
    const now = new Set(keys);
    for (const each of now) if (!old.has(each)) this.add(each);
    for (const each of old) if (!now.has(each)) this.delete(each);
    this.consumers.set(id, now);
  }

  unregister(id: string): void {
    for (const each of this.consumers.get(id) ?? []) this.delete(each);
    this.consumers.delete(id);
  }

  watched(key: string): boolean {
    const known = this.known.get(key);
    return known !== undefined && known.served?.frozen !== true;
  }

  get open(): string[] {
    return [...this.known.keys()].filter((each) => this.watched(each)).sort();
  }
}

function twins() {
  const clock = new FakeClock();
  const client = new ScriptedClient();
  const cache = new ObjectCache<Value>({
    client,
    resource: "things",
    codec: jsonValues<Value>(),
    isImmutable: ({ value }) => value.frozen,
    clock,
    random: () => 0.5,
    onError: () => {},
  });
  const manager = new ObjectManager<Consumer, Value>({
    cache,
    consumerId: (registered) => registered.id,
    referencedKeys: (registered) => registered.keys,
  });
  return { clock, client, cache, manager, model: new Model() };
}

type Twins = ReturnType<typeof twins>;

function take(next: Step, n: number, { client, cache, manager, model }: Twins): void {
  switch (next.do) {
    case "add":
      cache.addReference(next.key);
      model.add(next.key);
      break;
    case "delete":
      // Only the consumers delete their own references.
      if (![...model.consumers.values()].some((keys) => keys.has(next.key))) {
        cache.deleteReference(next.key);
        model.delete(next.key);
      }
      break;
    case "break":
      if (!model.watched(next.key)) break;
      client.of(next.key).fail(revisionTooOld(1, 2));
      model.watches++;
      break;
    case "deliver": {
      const known = model.known.get(next.key);
      if (known === undefined || !model.watched(next.key)) break;
      known.served = { n, frozen: next.frozen };
      client.of(next.key).initial(n, JSON.stringify(known.served));
      break;
    }
    case "register":
      manager.registerConsumer(next.consumer);
      model.register(next.consumer);
      break;
    case "unregister":
      manager.unregisterConsumer({ id: next.id, keys: [] });
      model.unregister(next.id);
      break;
  }
}

it("Exactly the keys with references that are not immutable are watched, once each.", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 50 }), async (todo) => {
      const both = twins();
      const { clock, client, cache, manager, model } = both;
      for (const [n, next] of todo.entries()) {
        take(next, n + 1, both);
        // Longer than any pause before a failed watch is started again.
        await clock.elapse(30_000);
        expect(client.open).toEqual(model.open);
        expect([cache.size, cache.watching]).toEqual([model.known.size, model.open.length]);
        expect(manager.consumers).toBe(model.consumers.size);
        // No watch that was needed throughout was ended and started again.
        expect(client.watches.length).toBe(model.watches);
        for (const [known, { served }] of model.known) {
          if (served !== undefined) expect((await cache.get(known)).value).toEqual(served);
        }
      }
      await cache.close();
      expect([client.open, clock.pendingTimers]).toEqual([[], 0]);
    }),
    { numRuns: runs(300) },
  );
});
