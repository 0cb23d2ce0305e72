import { describe, expect, test } from "vitest";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { Seeded } from "./seeded.ts";
import { WatchReordering } from "./watch-reordering.ts";

/** A stream's responses, and what was sent, each by its name in field 6. */
class World {
  readonly sent: string[] = [];
  readonly order = new WatchReordering((frame) => {
    this.sent.push(new Message(frame.subarray(5)).text(6));
  });

  add(name: string, fields: Fields): void {
    const message = encode({ ...fields, 6: name });
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    message.copy(frame, 5);
    this.order.add(frame);
  }
}

/** Two watches, an event of each, and progress of both. */
function twoWatches(): World {
  const world = new World();
  world.add("created 1", { 2: 1, 3: true });
  world.add("created 2", { 2: 2, 3: true });
  world.add("event 1", { 2: 1, 11: "" });
  world.add("event 2, first", { 2: 2, 7: true, 11: "" });
  world.add("event 2, last", { 2: 2, 11: "" });
  world.add("progress", { 2: -1 });
  return world;
}

describe("The responses of a watch stream, in another order", () => {
  test("may have `created` before older progress, and progress before `created` with what waits for that", () => {
    const { order, sent } = twoWatches();
    order.sendNext("control");
    for (let i = 0; i < 3; i++) order.sendNext("channel");
    expect(sent).toEqual(["created 1", "event 1", "progress"]);
    order.sendNext("control");
    expect(sent.slice(3)).toEqual(["created 2", "event 2, first", "event 2, last"]);
  });

  test("drop the events of a watch behind its cancellation, and keep compactions with the events", () => {
    const world = twoWatches();
    world.add("compacted 1", { 2: 1, 4: true, 5: 9 });
    world.add("canceled 2", { 2: 2, 4: true });
    for (let i = 0; i < 3; i++) world.order.sendNext("control");
    expect(world.sent).toEqual(["created 1", "created 2", "canceled 2"]);
    while (world.order.waiting("channel") > 0) world.order.sendNext("channel");
    expect(world.sent.slice(3)).toEqual(["event 1", "progress", "compacted 1"]);
  });

  test("left to chance are all of them, in any order that etcd may choose", () => {
    const seen = new Set<string>();
    for (let seed = 0; seed < 200; seed++) {
      const { order, sent } = twoWatches();
      const random = new Seeded(seed);
      while (order.sendSome(random));
      expect(sent).toHaveLength(6);
      expect(sent.indexOf("created 1")).toBeLessThan(sent.indexOf("event 1"));
      expect(sent.indexOf("created 2")).toBeLessThan(sent.indexOf("event 2, first"));
      expect(sent.indexOf("event 2, last")).toBe(sent.indexOf("event 2, first") + 1);
      seen.add(sent.join());
    }
    expect(seen.size).toBe(4);
  });
});
