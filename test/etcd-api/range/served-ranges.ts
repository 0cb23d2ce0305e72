import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { CachedResources } from "../../../src/etcd-api/cached/cached-resources.ts";
import { NewestHeader } from "../../../src/etcd-api/cached/newest-header.ts";
import type { EtcdCall } from "../../../src/etcd-api/calls/etcd-call.ts";
import { RangeCall } from "../../../src/etcd-api/range/range-call.ts";
import {
  isRangePath,
  RangeService,
  rangePaths,
} from "../../../src/etcd-api/range/range-service.ts";
import type { RawServices } from "../../../src/server/calls/methods.ts";
import { refused } from "../../../src/server/calls/refusals.ts";
import { Rounds } from "../../../src/server/kernel/rounds.ts";
import type { RunningServer, ServerOptions } from "../../../src/server/server.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { startReady } from "../../cacher/ready.ts";
import { encode } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve } from "../../server/served.ts";
import { RawGrpc } from "../raw-grpc.ts";

/** The range of all keys of the resource, as a RangeRequest. */
export const whole = encode({ 1: "/s/", 2: "/s0" });

export const [rangePath, rangeStreamPath] = rangePaths;

export interface ServedRanges {
  /** Of the calls; the cache has another one. */
  readonly clock: ManualTimers;
  readonly server: RunningServer;
  readonly client: RawGrpc;
  readonly cacher: Cacher;
  readonly service: RangeService;
  readonly calls: Rounds<EtcdCall>;
  /** Number of calls that would have been relayed; they end as UNIMPLEMENTED. */
  relayed(): number;
}

/** Serves Range and RangeStream of a resource with these values from its cache, without an etcd. */
export async function servedRanges(
  values: readonly string[],
  limits: ServerOptions["limits"] = {},
): Promise<ServedRanges> {
  const storage = new MemoryStorage({ clock: systemClock });
  for (const [i, value] of values.entries()) {
    await storage.put({ key: String(i).padStart(6, "0"), value: Buffer.from(value) });
  }
  const logger = pino({ level: "silent" });
  const cacher = new Cacher({ storage, rawKeys: true, clock: systemClock, logger, name: "s" });
  await startReady(cacher);
  const clock = new ManualTimers();
  const calls = new Rounds<EtcdCall>(clock, {
    ...{ intervalMs: 1_000, visitsPerStep: 64, visit: (call) => call.check(clock.now()) },
  });
  const newestHeader = new NewestHeader();
  newestHeader.observeMessage({ isInUse: true }, encode({ 1: encode({ 1: 7, 2: 8, 3: 1, 4: 2 }) }));
  const cached = new CachedResources(clock, newestHeader);
  const service = new RangeService({
    ...{
      calls,
      cached,
      newestHeader,
      clock,
      upstream: { whenAvailable: () => {} },
    },
  });
  const read = {
    get: storage.get.bind(storage),
    isAvailable: async () => true,
    currentRevisionWith: () => storage.currentRevision(),
  };
  cached.serve([{ name: "s", keys: { prefix: Buffer.from("/s/") }, cacher, storage: read }]);
  const { server } = await serve(new Map(), clock, { rawServices: relayedTo(service), limits });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(async () => {
    client.close();
    await cacher.close();
  });
  return { clock, server, client, cacher, service, calls, relayed: () => service.counts.relayed };
}

function relayedTo(service: RangeService): RawServices {
  return {
    methodAt: (path) =>
      isRangePath(path)
        ? {
            ...{ name: path.slice(1), label: path.slice(1), sheds: "call" },
            ...{ isStreaming: false, mayWrite: false, isRepeatable: true },
            serve: (call, metadata, context) =>
              new RangeCall(path, call, metadata, context, service, () =>
                call.end(refused(status.UNIMPLEMENTED, "rawServices")),
              ).start(),
          }
        : undefined,
    drain: () => {},
  };
}
