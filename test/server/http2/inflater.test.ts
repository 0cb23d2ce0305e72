import { createHook } from "node:async_hooks";
import { gzipSync } from "node:zlib";
import { expect, onTestFinished, test } from "vitest";
import { Inflater } from "../../../src/server/http2/inflater.ts";

const message = gzipSync(Buffer.alloc(1_000));

/** Inflates messages of owners, and records the order of their completion. */
class Order {
  readonly inflater = new Inflater();
  readonly turns: string[] = [];
  readonly done: string[] = [];

  add(owner: { readonly name: string }, count: number, isWanted = true): void {
    for (let i = 0; i < count; i++) {
      const name = `${owner.name}${i}`;
      this.inflater.add({
        owner,
        encoding: "gzip",
        message,
        maxBytes: 10_000,
        onTurn: () => {
          this.turns.push(name);
          return isWanted;
        },
        onInflated: ({ length }) => this.done.push(`${name}: ${length}`),
        onRefused: () => this.done.push(`${name}: refused`),
      });
    }
  }

  async untilDone(count: number): Promise<void> {
    while (this.done.length < count) await new Promise((resolve) => setImmediate(resolve));
  }
}

test("At most two messages are inflated at once", async () => {
  const order = new Order();
  order.add({ name: "a" }, 10);
  expect(order.turns).toEqual(["a0", "a1"]);
  await order.untilDone(10);
  expect(order.turns).toHaveLength(10);
  expect(new Set(order.done)).toEqual(new Set(Array.from({ length: 10 }, (_, i) => `a${i}: 1000`)));
});

test("Connections are served in rotation: many messages of one do not delay others", async () => {
  const order = new Order();
  order.add({ name: "a" }, 100);
  order.add({ name: "b" }, 3);
  await order.untilDone(103);
  expect(order.turns.slice(0, 9)).toEqual(["a0", "a1", "a2", "b0", "a3", "b1", "a4", "b2", "a5"]);
});

test("Messages that are no longer needed are skipped", async () => {
  const order = new Order();
  order.add({ name: "gone" }, 50, false);
  order.add({ name: "a" }, 1);
  await order.untilDone(1);
  expect(order.done).toEqual(["a0: 1000"]);
});

test("A small message that becomes large takes the event loop few steps", async () => {
  const inflating = new Set<number>();
  let steps = 0;
  const hook = createHook({
    init: (id, type) => void (type === "ZLIB" && inflating.add(id)),
    before: (id) => void (inflating.has(id) && steps++),
  }).enable();
  onTestFinished(() => void hook.disable());
  const bytes = 2 * 1024 ** 2;
  const inflated = await new Promise<Buffer>((resolve, reject) => {
    new Inflater().add({
      owner: {},
      encoding: "gzip",
      message: gzipSync(Buffer.alloc(bytes)),
      maxBytes: bytes,
      onTurn: () => true,
      onInflated: resolve,
      onRefused: reject,
    });
  });
  expect(inflated).toHaveLength(bytes);
  expect(steps).toBeGreaterThan(0);
  // Of 128 KiB, and its begin and end. In those of Node.js it takes 130.
  expect(steps).toBeLessThanOrEqual(bytes / (128 * 1024) + 2);
});
