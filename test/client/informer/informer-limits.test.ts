import { describe, expect, it, test } from "vitest";
import type { ReflectorFailure } from "../../../src/reflector/reflector.ts";
import type { ListRequest, ListResult } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BreakingStorage } from "../../reflector/breaking-storage.ts";
import { Informed } from "./informed.ts";

const kib = 1024;
const large = "x".repeat(10 * kib);

/** The failures of listing and watching, by the words that identify them. */
function failing() {
  const failures: ReflectorFailure[] = [];
  const onWatchError = (failure: ReflectorFailure): void => void failures.push(failure);
  return { failures, onWatchError };
}

describe("An informer of a state that exceeds maxBytes", () => {
  it("holds none of it, reports that, and tries again", async () => {
    const { failures, onWatchError } = failing();
    const informed = new Informed({ maxBytes: 25 * kib, onWatchError });
    await informed.write({ a: large, b: large, c: large });
    await informed.start();
    expect(informed.state).toEqual({});
    expect(failures).toMatchObject([
      {
        error: {
          reason: "INVALID_REQUEST",
          message: expect.stringMatching(/25600 bytes.*maxBytes/),
        },
        next: "list",
      },
    ]);
    await informed.write({ c: null });
    await informed.clock.elapse(10_000);
    expect(Object.keys(informed.state)).toEqual(["a", "b"]);
    await informed.informer.stop();
  });

  it("keeps its state while it exceeds the bound, and continues when it fits", async () => {
    const { failures, onWatchError } = failing();
    const informed = await Informed.start({ maxBytes: 25 * kib, onWatchError });
    await informed.write({ a: large, b: large });
    await informed.write({ c: large });
    expect(Object.keys(informed.state)).toEqual(["a", "b"]);
    expect(failures).toMatchObject([{ error: { reason: "INVALID_REQUEST" }, next: "list" }]);
    await informed.write({ a: "small" });
    await informed.clock.elapse(10_000);
    expect(Object.keys(informed.state)).toEqual(["a", "b", "c"]);
    expect(informed.informer.failure).toBeUndefined();
    await informed.informer.stop();
  });

  it("counts the current state, not earlier ones: objects may be created, changed and deleted indefinitely", async () => {
    const { failures, onWatchError } = failing();
    const informed = await Informed.start({ maxBytes: 25 * kib, onWatchError });
    for (let i = 0; i < 10; i++) {
      await informed.write({ a: large, [`b${i}`]: large });
      await informed.write({ [`b${i}`]: null });
    }
    expect(failures).toEqual([]);
    await informed.informer.stop();
  });

  it("does not read a list to the end if it has no end", async () => {
    const { failures, onWatchError } = failing();
    const clock = new FakeClock();
    const storage = new Endless({ clock });
    const informed = new Informed({ storage, clock, maxBytes: 1024 * kib, onWatchError });
    informed.informer.start();
    await clock.settle();
    expect(failures).toMatchObject([{ error: { reason: "INVALID_REQUEST" } }]);
    expect(storage.listed).toBeLessThan(120);
    await informed.informer.stop();
  });
});

test.each([
  ["maxBytes", 0],
  ["maxBytes", Number.NaN],
  ["queueBytes", -1],
])("An informer whose %s is %d can't be created.", (option, value) => {
  expect(() => new Informed({ [option]: value })).toThrow(
    expect.objectContaining({ reason: "INVALID_REQUEST", field: option }),
  );
});

/** Each page has a next page. */
class Endless extends BreakingStorage {
  listed = 0;

  override async list(request: ListRequest): Promise<ListResult> {
    if (this.listed === 0) await this.put({ key: "a", value: Buffer.from(large) });
    const { items, revision } = await super.list({
      ...request,
      startAfter: undefined,
      at: { match: "ANY" },
    });
    this.listed++;
    return { items, revision, next: "a", remaining: undefined };
  }
}
