import { once } from "node:events";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { EtcdApi } from "../../src/etcd-api/etcd-api.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode } from "../foreign/protobuf.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { serve } from "../server/served.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

const etcdOf = etcdOfFile();

test("A connection that is closed to even out the load ends streams as a member that stops, and finishes calls", async () => {
  const clock = new ManualTimers();
  const api = new EtcdApi({
    ...{ endpoints: [(await etcdOf()).url], tls: undefined, progressIntervalMs: 600_000 },
    ...{ clock, logger: pino({ level: "silent" }) },
  });
  onTestFinished(() => api.close());
  const { server } = await serve(new Map(), clock, { rawServices: api });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(() => client.close());
  const watch = client.open("/etcdserverpb.Watch/Watch");
  watch.send(encode({ 1: encode({ 1: "a" }) }));
  await watch.untilMessages(1);
  const keepalives = client.open("/etcdserverpb.Lease/LeaseKeepAlive");
  keepalives.send(encode({ 1: 1 }));
  await keepalives.untilMessages(1);
  const put = client.open("/etcdserverpb.KV/Put");
  put.send(encode({ 1: "a", 2: "written" }));
  while (api.stats().calls < 3) await new Promise(setImmediate);
  const goneAway = once(client.session, "goaway");
  server.drainOldest(1);
  await goneAway;
  for (const stream of [watch, keepalives]) {
    const { code, message } = statusOf(await stream.response);
    // clientv3 resumes both after UNAVAILABLE.
    expect([code, decodeURIComponent(message)]).toEqual(["14", "etcdserver: server stopped"]);
  }
  // It may have been written already, so its client could not repeat it.
  put.halfClose();
  expect(statusOf(await put.response).code).toBe("0");
});
