import { expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { DeepReads } from "../../../src/cacher/catch-up/deep-reads.ts";
import { FakeClock } from "../../fake-clock.ts";

const { signal } = new AbortController();
const never = (error: WatchFanoutError): never => {
  throw error;
};

it.each([
  [{ maxRevisions: 1_000 }, 5_000, 4_000],
  [{ maxRevisions: 1_000 }, 500, 1],
  [{ maxRevisions: 0 }, 5_000, 1],
  [{ concurrent: 0, maxRevisions: 0 }, 5_000, Infinity],
])("With %j, deep reads at revision %i may begin after %d or later", (bounds, current, oldest) => {
  expect(new DeepReads(new FakeClock(), bounds).oldest(current)).toBe(oldest);
});

it("The end of a deep read frees its place once", async () => {
  const deepReads = new DeepReads(new FakeClock(), { concurrent: 3 });
  const [end] = [
    await deepReads.enter({}, signal, never),
    await deepReads.enter({}, signal, never),
  ];
  for (let i = 0; i < 2; i++) end();
  expect(deepReads.stats()).toMatchObject({ active: 1, begun: 2 });
});

it("Watches that are refused or ended are counted by the limit, which they name", async () => {
  const clock = new FakeClock();
  const bounds = { concurrent: 3, concurrentPerGroup: 2, queued: 0, maxMs: 30_000 };
  const deepReads = new DeepReads(clock, bounds);
  expect([...deepReads.stats().refused]).toEqual([
    ["concurrent", 0],
    ["per_identity", 0],
    ["time", 0],
  ]);
  const late: string[] = [];
  const enter = (owner: object): Promise<unknown> =>
    deepReads.enter(owner, signal, ({ message }) => late.push(message)).catch((error) => error);
  const [greedy, other] = [{}, {}];
  for (let i = 0; i < 2; i++) await enter(greedy);
  const own = await enter(greedy);
  expect(own).toMatchObject({ message: expect.stringContaining("This caller has 2 watches") });
  await enter(other);
  const all = await enter(other);
  expect(all).toMatchObject({ message: expect.stringContaining("All callers together have 3") });
  clock.advance(30_000);
  expect(late).toEqual([1, 2, 3].map(() => expect.stringContaining("for 30 s")));
  expect([...deepReads.stats().refused]).toEqual([
    ["concurrent", 1],
    ["per_identity", 1],
    ["time", 3],
  ]);
});

it("The error of a caller that has all deep reads names the bound of all, if no lower one applies to it", async () => {
  const deepReads = new DeepReads(new FakeClock(), {
    ...{ concurrent: 2, concurrentPerGroup: 2, queued: 0 },
  });
  const owner = {};
  for (let i = 0; i < 2; i++) await deepReads.enter(owner, signal, never);
  const refused = await deepReads.enter(owner, signal, never).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(WatchFanoutError);
  expect(refused).toMatchObject({ metadata: { limit_name: "deep-reads", limit: "2" } });
});
