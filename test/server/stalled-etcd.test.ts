import { setImmediate as nextTurn } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { Cacher } from "../../src/cacher/cacher.ts";
import { defaultKeepalive } from "../../src/etcd/client/member.ts";
import { startAdmin } from "../../src/server/admin/admin.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import type { PutRequest, WriteResult } from "../../src/storage/storage.ts";
import { writeService } from "../../src/wire/services.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { clientOf, newPrefix, silent } from "../storage/etcd/source.ts";
import { RawConnection, type RawEnd } from "./http2/raw-connection.ts";
import { ManualTimers } from "./limits/manual-timers.ts";
import { serve } from "./served.ts";

const etcdOf = etcdOfFile();
const resource = "things";
const mebibyte = 1024 ** 2;
const hourMs = 3_600_000;
/** Of 1 MiB each, so that 64 MiB are in flight. */
const writesWithStore = 64;

/** An etcd that counts the writes that it has received and not answered. */
class CountingStorage extends EtcdStorage {
  writing = 0;

  override async put(request: PutRequest): Promise<WriteResult> {
    this.writing++;
    try {
      return await super.put(request);
    } finally {
      this.writing--;
    }
  }
}

test("A stalled etcd is sent at most 64 MiB of writes; further ones fail after 5 s, and succeed once it responds again", async () => {
  const etcd = await etcdOf();
  // Time limits of the etcd client use the system clock; those of the server use the test's clock.
  const client = clientOf(etcd, {
    requestTimeoutMs: 60_000,
    keepalive: { ...defaultKeepalive, timeoutMs: 60_000 },
  });
  const storage = new CountingStorage(client, { prefix: newPrefix() });
  const clock = new ManualTimers();
  const cacher = new Cacher({ storage, clock, logger: silent, name: resource });
  onTestFinished(async () => {
    etcd.resume();
    await cacher.close();
    await storage.close();
    await client.close();
  });
  cacher.start();
  while (!cacher.ready) {
    clock.advance(1);
    await nextTurn();
  }
  const limits = { requestMs: hourMs, keepaliveTimeMs: hourMs };
  const served = await serve(new Map([[resource, cacher]]), clock, { limits });
  const admin = await startAdmin({
    listen: { host: "127.0.0.1", port: 0 },
    readiness: () => [],
    metrics: { contentType: "text/plain", render: async () => "" },
    logger: pino({ level: "silent" }),
  });
  onTestFinished(() => admin.close());

  const ends: RawEnd[] = [];
  const put = (connection: RawConnection, key: string, value: Buffer): Promise<RawEnd> => {
    const request = writeService.Put.requestSerialize({ resource, key, value });
    const { ended } = connection.call(writeService.Put.path, request).drain();
    return ended.then((end) => {
      ends.push(end);
      return end;
    });
  };

  await etcd.pause();
  const writers = Array.from({ length: 6 }, () => new RawConnection(served.server.port));
  const value = Buffer.alloc(mebibyte, "x");
  const writes = writers.flatMap((writer, w) =>
    Array.from({ length: 14 }, (_, i) => put(writer, `${w}-${i}`, value)),
  );
  while (storage.writing < writesWithStore) await nextTurn();

  // 20 more wait. Those that arrive later wait 5 s from then on.
  while (ends.length < writes.length - writesWithStore) {
    clock.advance(1_000);
    await nextTurn();
    expect(storage.writing).toBe(writesWithStore);
  }
  for (const { code, message } of ends) {
    expect({ code, message }).toEqual({
      code: status.UNAVAILABLE,
      message: expect.stringMatching(
        /^This replica has been too busy for this request for 5 s.*Nothing was done/,
      ),
    });
  }
  const livez = await fetch(`http://127.0.0.1:${admin.port}/livez`);
  expect([livez.status, await livez.text()]).toEqual([200, "ok\n"]);
  const cached = await served.client.list({ resource, revision_match: "REVISION_MATCH_ANY" });
  expect(cached.items).toEqual([]);

  etcd.resume();
  const codes = (await Promise.all(writes)).map(({ code }) => code);
  expect(codes.filter((code) => code === status.OK)).toHaveLength(writesWithStore);
  for (const [w, writer] of writers.entries()) {
    expect(await put(writer, `again-${w}`, value)).toMatchObject({ code: status.OK });
  }
  // Refused writes had no effect: the store has the answered writes only.
  expect(await storage.count("", await storage.currentRevision())).toBe(writesWithStore + 6);
  expect(storage.writing).toBe(0);
});
