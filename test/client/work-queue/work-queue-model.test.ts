import { expect, it } from "vitest";
import { ItemExponentialFailureRateLimiter } from "../../../src/client/work-queue/rate-limiter.ts";
import { WorkQueue, WorkQueueFullError } from "../../../src/client/work-queue/work-queue.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { QueueModel } from "./queue-model.ts";

type Step =
  | { readonly do: "add" | "addRateLimited" | "forget"; readonly key: string }
  | { readonly do: "addAfter"; readonly key: string; readonly ms: number }
  | { readonly do: "get" | "shutDown" | "drain" }
  | { readonly do: "abort" | "done"; readonly which: number }
  | { readonly do: "advance"; readonly ms: number };

const key = fc.constantFrom("a", "b", "c", "d", "e");
const ms = fc.constantFrom(0, 1, 10, 20, 40, 3_000_000_000);
const which = fc.nat(3);

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("add"), key }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("addAfter"), key, ms }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("addRateLimited"), key }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("forget"), key }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("get") }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("abort"), which }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("done"), which }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("advance"), ms }) },
);
const end: fc.Arbitrary<Step> = fc.record({ do: fc.constantFrom("shutDown", "drain") });

const steps = fc
  .tuple(
    fc.array(step, { maxLength: 60 }),
    fc.option(end, { nil: undefined }),
    fc.array(fc.oneof({ weight: 12, arbitrary: step }, { weight: 1, arbitrary: end }), {
      maxLength: 15,
    }),
  )
  .map(([before, ending, after]) =>
    ending === undefined ? before : [...before, ending, ...after],
  );

/** A queue and its model, with the same calls. */
class Twins {
  readonly clock = new FakeClock();
  readonly model: QueueModel;
  readonly queue: WorkQueue<string>;
  readonly got = new Map<number, string | undefined>();
  readonly aborts = new Map<number, AbortController>();
  /** The number of pending drains. */
  drains = 0;
  #getters = 0;

  constructor(maxKeys: number) {
    this.model = new QueueModel(maxKeys);
    this.queue = new WorkQueue({
      clock: this.clock,
      maxKeys,
      rateLimiter: new ItemExponentialFailureRateLimiter(10, 1_000_000),
    });
  }

  take(step: Step): void {
    const { queue, model } = this;
    switch (step.do) {
      case "add":
        this.#sameOutcome(
          () => queue.add(step.key),
          () => model.add(step.key),
        );
        break;
      case "addAfter":
        this.#sameOutcome(
          () => queue.addAfter(step.key, step.ms),
          () => model.addAfter(step.key, step.ms),
        );
        break;
      case "addRateLimited":
        this.#sameOutcome(
          () => queue.addRateLimited(step.key),
          () => model.addRateLimited(step.key),
        );
        break;
      case "forget":
        queue.forget(step.key);
        model.failures.delete(step.key);
        break;
      case "get":
        this.#get();
        break;
      case "abort":
        this.#abort(step.which);
        break;
      case "done":
        this.#done(step.which);
        break;
      case "advance":
        this.clock.advance(step.ms);
        model.advance(step.ms);
        break;
      case "shutDown":
        queue.shutDown();
        model.shutDown();
        break;
      case "drain":
        queue.shutDownWithDrain().then(() => this.drains--);
        this.drains++;
        model.drain();
        break;
    }
  }

  expectSame(): void {
    const { model, queue } = this;
    expect(this.got).toEqual(model.got);
    expect(queue.length).toBe(model.ready.length);
    expect(queue.processing).toBe(model.processing.size);
    expect(queue.delayed).toBe(model.delayed.length);
    expect(queue.shuttingDown).toBe(model.state !== "open");
    for (const name of "abcde") expect(queue.numRequeues(name)).toBe(model.failures.get(name) ?? 0);
    expect(this.clock.pendingTimers).toBe(model.delayed.length === 0 ? 0 : 1);
    if (model.state === "shut down") expect(this.drains).toBe(0);
  }

  #sameOutcome(act: () => void, expected: () => boolean): void {
    if (expected()) act();
    else expect(act).toThrow(WorkQueueFullError);
  }

  #get(): void {
    const getter = this.#getters++;
    const abort = new AbortController();
    this.aborts.set(getter, abort);
    this.queue.get({ signal: abort.signal }).then(
      (taken) => this.got.set(getter, taken),
      (error) => expect(error).toBe(abort.signal.reason),
    );
    this.model.get(getter);
  }

  #abort(which: number): void {
    const [getter = -1] = this.model.getters.splice(which % (this.model.getters.length || 1), 1);
    this.aborts.get(getter)?.abort();
  }

  #done(which: number): void {
    const held = [...this.model.processing];
    const worked = held[which % held.length];
    if (worked === undefined) return;
    this.queue.done(worked);
    this.model.done(worked);
  }
}

it("A WorkQueue behaves as its model, for any sequence of calls.", async () => {
  await fc.assert(
    fc.asyncProperty(steps, fc.constantFrom(2, 3, 100), async (todo, maxKeys) => {
      const twins = new Twins(maxKeys);
      for (const next of todo) {
        twins.take(next);
        await twins.clock.settle();
        twins.expectSame();
      }
    }),
    { numRuns: runs(400) },
  );
});
