import { describe, expect, it } from "vitest";
import { EventWindowCursor } from "../../../src/cacher/catch-up/event-window-cursor.ts";
import type { CursorOrigin } from "../../../src/cacher/catch-up/watch-source.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { BusyClock } from "../busy-clock.ts";
import { short, World } from "./source-world.ts";

/** A cursor that begins after the newest event. */
function begin(
  world: World,
  origin: CursorOrigin,
  request: Partial<CacheWatchRequest> = {},
  onStep?: () => void,
) {
  const reader = world.reader(request, onStep);
  const { context, cache } = world;
  return {
    reader,
    cursor: new EventWindowCursor(reader, context, cache.eventWindow.newest, origin),
  };
}

describe("A cursor in the event window", () => {
  it("leaves out the keys outside of its scope", () => {
    const world = new World();
    const { cursor } = begin(world, "resumed", { scope: { prefix: "a" } });
    world.write("a1", "b1", "a2", "b2");
    expect(short(cursor.next())).toBe("a1 a2 →5 done");
  });

  it("gets a resume point for each 3 events that its filter leaves out, if it may scan as many", () => {
    const world = new World({ scanEvents: 3 });
    const { cursor } = begin(world, "resumed", { predicate: () => false });
    world.write("a", "b", "c", "d", "e", "f", "g");
    expect([1, 2, 3].map(() => short(cursor.next()))).toEqual(["→4", "→7", "done"]);
  });

  it.each([
    [0, undefined],
    [1, "SLOW_CONSUMER"],
  ])(
    "ends its watcher if %i bytes more are kept for its initial state than are allowed",
    (over, reason) => {
      const keys = Array.from({ length: 9 }, (_, i) => `k${i}`);
      const measured = new World();
      measured.write(...keys);
      const world = new World({
        retainedEventBytes: measured.cache.eventWindow.newest.bytes - over,
      });
      const { reader, cursor } = begin(world, "initial");
      world.write(...keys);
      expect(short(cursor.next())).toBe(over > 0 ? undefined : `${keys.join(" ")} →10 done`);
      expect(reader.error?.reason).toBe(reason);
    },
  );

  it("waits for its time slice as one of its owner's watchers", () => {
    const clock = new BusyClock();
    const world = new World({}, clock);
    const served: string[] = [];
    const beginAs = (name: string, owner: object) =>
      begin(world, "resumed", { owner }, () => served.push(name)).cursor;
    const [greedy, modest] = [{}, {}];
    const cursors = [1, 2, 3, 4, 5].map((i) => beginAs(`greedy-${i}`, greedy));
    cursors.push(beginAs("modest", modest));
    world.write("a");
    // The clock advances as it is read.
    while (!world.context.turns.isOver);
    expect(cursors.map((cursor) => cursor.next())).toEqual(cursors.map(() => undefined));
    clock.runImmediates();
    expect(served).toHaveLength(6);
    expect(served.indexOf("modest")).toBe(1);
  });
});
