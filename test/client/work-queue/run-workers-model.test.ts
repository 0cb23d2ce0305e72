import { expect, it } from "vitest";
import { ItemExponentialFailureRateLimiter } from "../../../src/client/work-queue/rate-limiter.ts";
import { runWorkers } from "../../../src/client/work-queue/run-workers.ts";
import { WorkQueue } from "../../../src/client/work-queue/work-queue.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";

/** A change that the work on its key must see. */
const change = fc.record({
  afterMs: fc.nat(20),
  key: fc.constantFrom("a", "b", "c"),
  delayMs: fc.oneof(fc.constant(0), fc.nat(30)),
});
/** The result of one run of work. */
const run = fc.record({ ms: fc.nat(25), fails: fc.boolean() });

it("For any adds and failures, each key is processed after its last change, by one worker at a time.", async () => {
  const changes = fc.array(change, { maxLength: 40 });
  const runs = fc.array(run, { maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 4 }), changes, runs, async (count, todo, script) => {
      const clock = new FakeClock();
      const rateLimiter = new ItemExponentialFailureRateLimiter(1, 50);
      const queue = new WorkQueue<string>({ clock, rateLimiter });
      const version = new Map<string, number>();
      /** The version that a successful run had seen when it began. */
      const seen = new Map<string, number>();
      const working = new Set<string>();
      const overlaps: string[] = [];
      let began = 0;
      let failed = 0;
      const work = async (key: string): Promise<void> => {
        if (working.has(key) || working.size >= count) overlaps.push(key);
        working.add(key);
        const { ms, fails } = script[began++] ?? { ms: 1, fails: false };
        const at = version.get(key) ?? 0;
        await new Promise<void>((resolve) => clock.setTimeout(resolve, ms));
        working.delete(key);
        if (fails) {
          failed++;
          throw new Error("As the script has it.");
        }
        seen.set(key, at);
      };
      const running = runWorkers(count, queue, work, { onError: () => {} });
      for (const { afterMs, key, delayMs } of todo) {
        await clock.elapse(afterMs);
        version.set(key, (version.get(key) ?? 0) + 1);
        queue.addAfter(key, delayMs);
      }
      await clock.elapse(100_000);
      expect(overlaps).toEqual([]);
      expect(seen).toEqual(version);
      expect(began).toBeLessThanOrEqual(todo.length + failed);
      expect([queue.length, queue.delayed, queue.processing, clock.pendingTimers]).toEqual([
        0, 0, 0, 0,
      ]);
      queue.shutDown();
      await running;
    }),
    { numRuns: 100 },
  );
});
