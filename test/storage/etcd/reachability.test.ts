import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { WatchBatch } from "../../../src/model/event.ts";
import { Reflector } from "../../../src/reflector/reflector.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { Relay } from "../../faults/relay.ts";
import { put } from "../conformance/opened.ts";
import { clientOf, newPrefix, Source, silent } from "./source.ts";

const etcdOf = etcdOfFile();

const hour = 3_600_000;

/** Resolves with what it has taken once `resolve` is called. */
function untilCalled<T>(): { readonly called: Promise<T>; readonly resolve: (value: T) => void } {
  const { promise: called, resolve } = Promise.withResolvers<T>();
  return { called, resolve };
}

test("A Reflector follows etcd again as soon as it can be reached, however long its pause is", async () => {
  const etcd = await etcdOf();
  const network = await Relay.to(Number(new URL(etcd.url).port));
  const client = clientOf(network);
  const prefix = newPrefix();
  const storage = new EtcdStorage(client, { prefix });
  const watching = untilCalled<void>();
  const failed = untilCalled<number>();
  const delivered = untilCalled<WatchBatch>();
  const reflector = new Reflector({
    ...{ storage, clock: systemClock, logger: silent },
    backoff: { initialMs: hour, maxMs: hour },
    target: {
      replace: () => watching.resolve(),
      apply: (batch) => {
        if (batch.events.length > 0) delivered.resolve(batch);
      },
    },
    onFailure: ({ pauseMs }) => failed.resolve(pauseMs),
  });
  const running = reflector.run();
  onTestFinished(async () => {
    reflector.stop();
    await running;
    await storage.close();
    await client.close();
    await network.close();
  });
  await watching.called;
  network.refuse();
  expect(await failed.called).toBeGreaterThanOrEqual(hour / 2);
  const revision = await new Source(etcd).write(prefix, [put("a", "1")]);
  network.heal();
  expect((await delivered.called).revision).toBe(revision);
});
